"""Wherever a turn ends, every call has its result, the session is free and the screen knows how it went."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mxclaw_nb.core import AgentCore, TurnOptions, TurnStream, bounded
from mxclaw_nb.protocol import (
    Event,
    Message,
    MessageCompleted,
    StoreError,
    ToolCompleted,
    ToolContext,
    ToolResult,
    ToolStarted,
    TurnCompleted,
    TurnFailedEvent,
    TurnWriter,
    Usage,
    UserInput,
    event_to_json,
)
from mxclaw_nb.providers.rehearsal import ChatRequest, Reply, ScriptedCall, call, calls, say, sequence
from tests.end_to_end.program import assert_events_sound, assert_wire_valid

from .conftest import Play, Stage, SteeredTool
from .faulty import with_faults, with_writers


async def all_of(stream: TurnStream) -> list[Event]:
    async with asyncio.timeout(30):
        return [event async for event in stream]


def sound(events: Sequence[Event]) -> None:
    assert_events_sound([json.loads(event_to_json(event)) for event in events])


def ended(events: Sequence[Event]) -> dict[str, str]:
    """Of each tool by name: the status of its call."""
    return {event.name: event.status for event in events if isinstance(event, ToolCompleted)}


async def is_free_and_whole(stage: Stage, session_id: str) -> None:
    """Rows and events agree, and the next turn works."""
    messages = await stage.store.messages(session_id)
    called = [made.id for message in messages for made in message.tool_calls]
    answered = [message.tool_call_id for message in messages if message.role == "tool"]
    assert sorted(called) == sorted(map(str, answered))
    sound(list(await stage.store.events(session_id)))
    events = await all_of(stage.core.submit_turn(session_id, UserInput("next")))
    assert isinstance(events[-1], TurnCompleted)
    assert_wire_valid(stage.server.requests[-1])


THREE = calls(call("one", name="a"), call("one", name="b"), call("list_dir"))


async def quick(name: str, _context: ToolContext) -> ToolResult:
    return ToolResult(f"done {name}")


def tool(**more: Any) -> SteeredTool:
    return SteeredTool("one", more.pop("act", quick), **more)


def replies(first: Reply) -> Any:
    """That reply to the first prompt; text to all else."""

    def script(request: ChatRequest) -> Reply:
        return first if request.number == 0 else say("ok")

    return script


def test_a_cancel_while_a_reply_is_being_stored_leaves_none_of_its_calls_open(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        streams: list[TurnStream] = []

        async def before(_what: str, messages: Sequence[Message], _events: Sequence[Event]) -> None:
            if any(message.tool_calls for message in messages):
                streams[0].cancel()
                await asyncio.sleep(0.05)  # the cancel arrives while this write is under way

        core = with_faults(stage, before)
        streams.append(core.submit_turn(session.id, UserInput("go")))
        events = await all_of(streams[0])
        assert isinstance(events[-1], TurnFailedEvent) and events[-1].code == "cancelled"
        sound(events)
        results = [event.result for event in events if isinstance(event, ToolCompleted)]
        assert len(results) == 3 and all("before this call was started" in text for text in results)
        await is_free_and_whole(stage, session.id)

    play(replies(THREE), scenario, tool())


def test_a_cancel_while_results_wait_to_be_stored_loses_none(play: Play) -> None:
    """Calls that ran side by side store their results one after the other; a cancel meets them in that queue."""

    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        streams: list[TurnStream] = []

        async def before(_what: str, messages: Sequence[Message], _events: Sequence[Event]) -> None:
            if any(message.role == "tool" for message in messages):
                streams[0].cancel()
                await asyncio.sleep(0.02)

        core = with_faults(stage, before)
        streams.append(core.submit_turn(session.id, UserInput("go")))
        events = await all_of(streams[0])
        assert isinstance(events[-1], TurnFailedEvent) and events[-1].code == "cancelled"
        sound(events)
        assert len([event for event in events if isinstance(event, ToolCompleted)]) == 3
        await is_free_and_whole(stage, session.id)

    play(replies(THREE), scenario, tool())


def test_a_limit_that_ends_the_turn_before_the_calls_run_gives_them_their_results(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        services = stage.core._services

        class Priced:
            """The real provider, with a price."""

            async def stream(self, request: Any) -> AsyncIterator[Any]:
                async for item in services.provider.stream(request):
                    yield replace(item, usage=Usage(1, 1, cost=2.0)) if hasattr(item, "tool_calls") else item

            def price_known(self, _model: Any) -> bool:
                return True

        core = AgentCore(replace(services, provider=Priced()))  # type: ignore[arg-type]
        events = await all_of(core.submit_turn(session.id, UserInput("go"), TurnOptions(max_cost=1.0)))
        assert isinstance(events[-1], TurnFailedEvent) and events[-1].code == "max_cost"
        sound(events)
        assert set(ended(events).values()) == {"interrupted"}
        await is_free_and_whole(stage, session.id)

    play(replies(THREE), scenario, tool())


def test_t11_a_result_that_comes_after_the_cancel_is_only_logged(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    running = asyncio.Event()

    async def stubborn(_name: str, _context: ToolContext) -> ToolResult:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return ToolResult("too late")
        raise AssertionError

    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        stream = stage.submit(session)
        events: list[Event] = []
        async with asyncio.timeout(20):
            async for event in stream:
                events.append(event)
                if isinstance(event, ToolStarted):
                    await running.wait()
                    stream.cancel()
        assert isinstance(events[-1], TurnFailedEvent) and events[-1].code == "cancelled"
        assert len(stage.server.requests) == 1, "the turn did not go on"
        assert ended(events) == {"one": "interrupted"}
        assert not any("too late" in message.content for message in await stage.store.messages(session.id))
        await is_free_and_whole(stage, session.id)

    logging.getLogger("mxclaw_nb").propagate = True
    with caplog.at_level(logging.INFO, "mxclaw_nb.core"):
        play(replies(call("one", name="x")), scenario, tool(act=stubborn))
    assert "returned after it was cancelled" in caplog.text


def test_a_tool_that_does_not_end_is_left_to_itself(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "PATIENCE_S", 0.2)
    released = asyncio.Event()

    async def immortal(_name: str, _context: ToolContext) -> ToolResult:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return ToolResult("at last")

    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        stream = stage.submit(session)
        events: list[Event] = []
        started = 0.0
        async with asyncio.timeout(20):
            async for event in stream:
                events.append(event)
                if isinstance(event, ToolStarted):
                    started = time.monotonic()
                    stream.cancel()
        assert time.monotonic() - started < 5
        assert isinstance(events[-1], TurnFailedEvent)
        assert ended(events) == {"one": "interrupted"}
        released.set()
        await is_free_and_whole(stage, session.id)

    play(replies(call("one", name="x")), scenario, tool(act=immortal))


def test_a_tool_that_cancels_itself_does_not_end_the_turn(play: Play) -> None:
    async def quits(_name: str, _context: ToolContext) -> ToolResult:
        raise asyncio.CancelledError

    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        events = await stage.turn(session)
        assert isinstance(events[-1], TurnCompleted)
        assert ended(events) == {"one": "error"}
        await is_free_and_whole(stage, session.id)

    play(replies(call("one", name="x")), scenario, tool(act=quits))


def test_a_result_that_could_not_be_stored_is_stored_with_the_end_of_the_turn(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session(mode="allow-all")

        async def before(what: str, messages: Sequence[Message], _events: Sequence[Event]) -> None:
            if what == "commit" and any(message.role == "tool" for message in messages):
                raise StoreError("the disk is full")

        events = await all_of(with_faults(stage, before).submit_turn(session.id, UserInput("go")))
        last = events[-1]
        assert isinstance(last, TurnFailedEvent) and (last.code, last.message) == ("error", "the disk is full")
        sound(events)
        [result] = [message for message in await stage.store.messages(session.id) if message.role == "tool"]
        assert (result.content, result.status) == ("done x", "ok")
        await is_free_and_whole(stage, session.id)

    play(replies(call("one", name="x")), scenario, tool(risk="write", concurrency_safe=False))


def test_a_reply_that_could_not_be_stored_keeps_its_text_and_shows_no_calls(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()

        async def before(what: str, messages: Sequence[Message], _events: Sequence[Event]) -> None:
            if what == "commit" and any(message.role == "assistant" for message in messages):
                raise StoreError("the disk is full")

        events = await all_of(with_faults(stage, before).submit_turn(session.id, UserInput("go")))
        assert isinstance(events[-1], TurnFailedEvent) and events[-1].code == "error"
        sound(events)
        [completed] = [event for event in events if isinstance(event, MessageCompleted)]
        assert (completed.text, completed.incomplete, completed.tool_calls) == ("Both.", True, ())
        await is_free_and_whole(stage, session.id)

    play(replies(THREE.saying("Both.")), scenario, tool())


@pytest.mark.parametrize("error", [StoreError("no more numbers"), RuntimeError("a bug")], ids=["store", "bug"])
@pytest.mark.parametrize("reply", [say("fine"), THREE], ids=["text", "calls"])
def test_the_end_is_shown_even_where_it_cannot_be_written(error: Exception, reply: Reply, play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()

        async def before(what: str, _messages: Sequence[Message], events: Sequence[Event]) -> None:
            if what == "release" and events:
                raise error

        events = await all_of(with_faults(stage, before).submit_turn(session.id, UserInput("go")))
        last = events[-1]
        assert isinstance(last, TurnFailedEvent) and last.code == "error"
        assert "could not be saved" in last.message
        numbers = [event.sequence for event in events]
        assert numbers == sorted(set(numbers))
        assert not any(isinstance(event, TurnCompleted) for event in events)

    play(replies(reply), scenario, tool())


def test_the_end_is_shown_even_where_there_are_no_more_numbers(play: Play) -> None:
    class Numberless:
        """A writer that has used up its numbers after the first few."""

        def __init__(self, writer: TurnWriter) -> None:
            self._writer, self._left = writer, 3

        def __getattr__(self, name: str) -> Any:
            return getattr(self._writer, name)

        def next_sequence(self) -> int:
            if not self._left:
                raise StoreError("There are no more numbers.")
            self._left -= 1
            return self._writer.next_sequence()

    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        events = await all_of(with_writers(stage, Numberless).submit_turn(session.id, UserInput("go")))
        last = events[-1]
        assert isinstance(last, TurnFailedEvent) and "no more numbers" in last.message
        numbers = [event.sequence for event in events]
        assert numbers == sorted(set(numbers))

    play(replies(say("word " * 20)), scenario)


def test_ids_that_count_from_zero_in_every_reply_are_told_apart(play: Play) -> None:
    def script(request: ChatRequest) -> Reply:
        rounds = sum(message.role == "assistant" for message in request.messages)
        if rounds in (3, 7):
            return say("done")
        return calls(ScriptedCall("one", json.dumps({"name": str(rounds)}), id="call_0"))

    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        events = await stage.turn(session) + await stage.turn(session, "again")
        sound(events)
        ids = [event.call_id for event in events if isinstance(event, ToolCompleted)]
        assert ids == ["call_0", "call_0-2", "call_0-3", "call_0-4", "call_0-5", "call_0-6"]
        for request in stage.server.requests:
            assert_wire_valid(request)

    play(script, scenario, tool())


def test_when_the_events_end_the_session_is_free(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        for _ in range(5):
            stream = stage.submit(session)
            await all_of(stream)
            assert not stage.core.running
            assert (await stage.store.session(session.id)).state == "idle"

    play(sequence(*[say("ok")] * 5), scenario)
