"""Ending a turn early: by the user, by time, from elsewhere, by losing the lease; nothing is left half-known."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable

import pytest

from mxclaw_nb.core import TurnStream
from mxclaw_nb.protocol import (
    Event,
    LeaseGone,
    MessageDelta,
    PermissionRequested,
    PermissionResolved,
    ToolCompleted,
    ToolContext,
    ToolResult,
    ToolStarted,
    TurnCompleted,
    TurnFailedEvent,
)
from mxclaw_nb.providers.rehearsal import Speech, call, calls, say, sequence

from .conftest import Play, Stage, SteeredTool

WHILE: dict[str, tuple[Speech, type[Event]]] = {  # type: ignore[valid-type]
    "streaming": (say("word " * 50, pause_s=0.05), MessageDelta),
    "awaiting approval": (call("write_file", path="a", content="x"), PermissionRequested),
    "a command runs": (call("run_command", command="trap '' TERM; sleep 60 & sleep 60"), ToolStarted),
}
BOUND = {"streaming": 0.5, "awaiting approval": 0.5, "a command runs": 1.0}


async def cancel_at(
    stream: TurnStream, kind: type[object], cancel: Callable[[], Awaitable[object]]
) -> tuple[list[Event], float]:
    """All events of a turn that is cancelled at the first event of that kind, and the seconds that its end took."""
    events: list[Event] = []
    asked = 0.0
    async with asyncio.timeout(20):
        async for event in stream:
            events.append(event)
            if isinstance(event, kind) and not asked:
                asked = time.monotonic()
                await cancel()
    return events, time.monotonic() - asked


@pytest.mark.parametrize("moment", WHILE)
def test_a_cancelled_turn_ends_soon_and_leaves_the_session_idle(play: Play, moment: str) -> None:
    reply, kind = WHILE[moment]

    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        mode = "allow-all" if moment == "a command runs" else "ask"
        async with stage.submit(session, mode=mode) as stream:

            async def cancel() -> None:
                stream.cancel()

            events, took = await cancel_at(stream, kind, cancel)
        last = events[-1]
        assert isinstance(last, TurnFailedEvent) and last.code == "cancelled"
        assert took < BOUND[moment] + 0.5  # room for a busy machine; the bar itself is measured elsewhere
        assert (await stage.store.session(session.id)).state == "idle"
        assert not await stage.store.pending_approvals()
        assert not stage.core.running
        answered = {event.call_id for event in events if isinstance(event, ToolCompleted)}
        called = {made.id for message in await stage.store.messages(session.id) for made in message.tool_calls}
        assert answered == called
        assert isinstance((await stage.turn(session, "again"))[-1], TurnCompleted)

    play(sequence(reply, say("ok")), scenario)


def test_text_that_was_shown_before_the_cancel_is_kept_and_marked(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        async with stage.submit(session) as stream:

            async def cancel() -> None:
                stream.cancel()

            events, _ = await cancel_at(stream, MessageDelta, cancel)
        shown = "".join(event.delta for event in events if isinstance(event, MessageDelta))
        stored = (await stage.store.messages(session.id))[-1]
        assert stored.role == "assistant" and stored.incomplete and stored.content == shown

    play(sequence(say("word " * 50, pause_s=0.05)), scenario)


def test_a_cancelled_approval_is_resolved_as_denied(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.submit(await stage.session()) as stream:

            async def cancel() -> None:
                stream.cancel()

            events, _ = await cancel_at(stream, PermissionRequested, cancel)
        [resolved] = [event for event in events if isinstance(event, PermissionResolved)]
        assert (resolved.answer, resolved.by) == ("deny", "cancelled")

    play(sequence(call("run_command", command="true")), scenario)


def test_running_and_waiting_calls_are_recorded_as_interrupted(play: Play) -> None:
    started = asyncio.Event()

    async def act(name: str, _context: ToolContext) -> ToolResult:
        if name == "quick":
            return ToolResult("done")
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        events: list[Event] = []
        async with stage.submit(session, mode="allow-all") as stream:
            async for event in stream:
                events.append(event)
                if isinstance(event, ToolStarted) and len([e for e in events if isinstance(e, ToolStarted)]) == 2:
                    await started.wait()
                    stream.cancel()
        done = [event for event in events if isinstance(event, ToolCompleted)]
        assert [event.status for event in done] == ["ok", "interrupted", "interrupted"]
        assert "unknown" in done[1].result and "Nothing was done" in done[2].result
        stored = [message for message in await stage.store.messages(session.id) if message.role == "tool"]
        assert [message.status for message in stored] == ["ok", "interrupted", "interrupted"]

    names = ("quick", "slow", "never")
    poke = SteeredTool("poke", act, risk="write")
    play(sequence(calls(*(call("poke", name=name) for name in names))), scenario, poke)


def test_closing_the_stream_cancels_the_turn(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        stream = stage.submit(session)
        while not isinstance(await anext(stream), MessageDelta):
            pass
        await stream.aclose()
        assert (await stage.store.session(session.id)).state == "idle"
        assert not stage.core.running
        await stage.server.until(lambda: stage.server.abandoned == 1)

    play(sequence(say("word " * 500, pause_s=0.05)), scenario)


def test_dropping_the_stream_cancels_the_turn(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        async for event in stage.submit(session):
            if isinstance(event, MessageDelta):
                break
        gc.collect()
        async with asyncio.timeout(5):
            while stage.core.running:  # noqa: ASYNC110 - nobody is left to be told of its end
                await asyncio.sleep(0.01)
        assert (await stage.store.session(session.id)).state == "idle"

    play(sequence(say("word " * 500, pause_s=0.05)), scenario)


def test_a_cancelled_consumer_can_see_the_turn_end(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        stream = stage.submit(session)
        first = asyncio.Event()

        async def consume() -> None:
            async for _event in stream:
                first.set()

        task = asyncio.ensure_future(consume())
        await first.wait()
        task.cancel()
        await asyncio.wait({task})
        stream.cancel()
        rest = [event async for event in stream]
        assert isinstance(rest[-1], TurnFailedEvent) and rest[-1].code == "cancelled"

    play(sequence(say("word " * 500, pause_s=0.05)), scenario)


def test_a_turn_out_of_time_fails_with_timeout(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        events = await stage.turn(session, timeout_s=0.4)
        assert isinstance(events[-1], TurnFailedEvent) and events[-1].code == "timeout"
        assert (await stage.store.session(session.id)).state == "failed"

    play(sequence(say("word " * 500, pause_s=0.05)), scenario)


def test_another_process_can_stop_a_turn(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        elsewhere = stage.another_store()
        async with stage.submit(session) as stream:
            events, took = await cancel_at(
                stream, MessageDelta, lambda: elsewhere.request_stop(session.id, "by mxclaw stop")
            )
        last = events[-1]
        assert isinstance(last, TurnFailedEvent) and last.code == "cancelled" and "mxclaw stop" in last.message
        assert took < 2.0
        assert not await elsewhere.request_stop(session.id, "by mxclaw stop")

    play(sequence(say("word " * 500, pause_s=0.05)), scenario)


def test_this_process_can_stop_a_turn_by_its_session(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        async with stage.submit(session) as stream:
            events, _ = await cancel_at(stream, MessageDelta, lambda: stage.core.stop(session.id, "by you"))
        assert isinstance(events[-1], TurnFailedEvent) and "by you" in events[-1].message

    play(sequence(say("word " * 500, pause_s=0.05)), scenario)


def test_a_lost_lease_stops_the_turn(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        async with stage.submit(session) as stream:

            async def lose() -> None:
                turn = stage.core._turns[session.id]
                assert turn is not None
                turn.signal(LeaseGone("taken over"))

            events, _ = await cancel_at(stream, MessageDelta, lose)
        assert isinstance(events[-1], TurnFailedEvent) and events[-1].code == "lease_lost"

    play(sequence(say("word " * 500, pause_s=0.05)), scenario)


def test_cancelling_while_the_turn_starts_leaves_no_lease(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        for _ in range(20):
            start = asyncio.ensure_future(stage.submit(session).start())
            await asyncio.sleep(0.001)
            start.cancel()
            await asyncio.wait({start})
            gc.collect()
        async with asyncio.timeout(10):
            while stage.core.running:  # noqa: ASYNC110 - nobody is left to be told of its end
                await asyncio.sleep(0.01)
        assert (await stage.store.session(session.id)).state == "idle"
        writer = await stage.another_store().acquire(session.id, "t-x", on_signal=lambda _signal: None)
        await writer.release(state="idle")

    play(lambda _request: say("word " * 50, pause_s=0.05), scenario)
