"""Properties of whole turns: whatever the model says and whenever somebody stops it, the invariants hold."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxclaw_nb.core import AgentCore, TurnOptions
from mxclaw_nb.protocol import (
    AlreadyAnswered,
    Answer,
    Event,
    LeaseHeld,
    PermissionRequested,
    SessionBusy,
    ToolContext,
    ToolResult,
    TurnCompleted,
    TurnFailedEvent,
    UserInput,
    event_to_json,
)
from mxclaw_nb.providers.rehearsal import ChatRequest, Reply, ScriptedCall, Speech, fail, raw, say
from tests.end_to_end.program import assert_events_sound, assert_prefix_stable, assert_wire_valid

from .conftest import SteeredTool, stage

TEXTS = st.sampled_from(["", " ", "Some words of text.", "中文的回答", "a\0b", "word " * 40])
IDS = st.sampled_from(["", "call_0", "call_0", "x", "y z", "call_0-2"])
CALLS = st.builds(
    ScriptedCall,
    name=st.sampled_from(["look", "look", "look", "change", "change", "list_dir", "read_file", "no_such_tool", "?"]),
    arguments=st.sampled_from(
        ['{"name":"a"}', '{"name":"b"}', '{"name":"fail"}', '{"name":"crash"}', "{}", '{"path":"."}', '{"x', "[1]", ""]
    ),
    id=IDS,
)
SPEECHES = st.builds(
    Speech,
    text=TEXTS,
    reasoning=st.sampled_from(["", "hm"]),
    calls=st.lists(CALLS, max_size=4).map(tuple),
    finish_reason=st.sampled_from([None, None, None, "stop", "length", "tool_calls", "odd"]),
    ending=st.sampled_from(["complete", "complete", "complete", "complete", "cut", "reset"]),
)
REPLIES = st.one_of(
    SPEECHES,
    SPEECHES,
    SPEECHES,
    st.just(fail(400, "no")),
    st.just(raw(b"data: [DONE]\n\n")),
)
ANSWERS = st.sampled_from(
    [Answer("allow_once"), Answer("allow_session"), Answer("deny"), Answer("deny", "not now"), None]
)


async def act(name: str, _context: ToolContext) -> ToolResult:
    if name == "fail":
        return ToolResult("it failed", "error", 1)
    if name == "crash":
        raise ValueError("a bug in a tool")
    await asyncio.sleep(0)
    return ToolResult(f"did {name}")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    replies=st.lists(REPLIES, min_size=1, max_size=6),
    prompts=st.integers(1, 3),
    rounds=st.integers(1, 4),
    answer=ANSWERS,
    stop_at=st.one_of(st.none(), st.integers(0, 30)),
)
def test_invariants_hold_whatever_is_said_and_whenever_it_is_stopped(
    replies: list[Reply], prompts: int, rounds: int, answer: Answer | None, stop_at: int | None
) -> None:
    def script(request: ChatRequest) -> Reply:
        return replies[request.number] if request.number < len(replies) else say("Done.")

    async def scenario(folder: Path) -> None:
        tools = (
            SteeredTool("look", act),
            SteeredTool("change", act, risk="write", concurrency_safe=False),
        )
        (folder / "ws").mkdir()
        async with stage(script, folder / "home", folder / "ws", *tools) as made:
            session = await made.session()
            shown: list[Event] = []
            for prompt in range(prompts):
                options = TurnOptions(max_iterations=rounds, can_answer=answer is not None)
                stream = made.core.submit_turn(session.id, UserInput(f"prompt {prompt}"), options)
                events: list[Event] = []
                async for event in stream:
                    events.append(event)
                    if len(events) - 1 == stop_at:
                        stream.cancel()
                    if isinstance(event, PermissionRequested) and answer is not None:
                        with contextlib.suppress(AlreadyAnswered):  # by the end of the turn
                            await made.core.answer(event.request_id, answer, "user")
                assert isinstance(events[-1], TurnCompleted | TurnFailedEvent)
                shown += events
            assert_events_sound([json.loads(event_to_json(event)) for event in shown])
            stored = list(await made.store.events(session.id, limit=100_000))
            assert_events_sound([json.loads(event_to_json(event)) for event in stored])
            facts = [event for event in shown if not event.type.endswith((".delta", ".output"))]
            assert [event for event in stored if not event.type.endswith((".delta", ".output"))] == facts
            messages = await made.store.messages(session.id)
            called = [call.id for message in messages for call in message.tool_calls]
            answered = [str(message.tool_call_id) for message in messages if message.role == "tool"]
            assert sorted(called) == sorted(answered)
            assert len(set(called)) == len(called)
            for request in made.server.requests:
                assert_wire_valid(request)
            assert_prefix_stable(list(made.server.requests))
            assert (await made.store.session(session.id)).state in ("idle", "failed")
            assert not made.core.running

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scenario(Path(folder)))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(rivals=st.integers(2, 5), kinds=st.lists(st.booleans(), min_size=5, max_size=5))
def test_of_any_number_of_rivals_one_runs(rivals: int, kinds: list[bool]) -> None:
    """In this process and, as it seems to the store, in others."""

    async def scenario(folder: Path) -> None:
        gate = asyncio.Event()

        async def script(_request: ChatRequest) -> Reply:
            await gate.wait()
            return say("Mine.")

        (folder / "ws").mkdir()
        async with stage(script, folder / "home", folder / "ws") as made:
            session = await made.session()
            cores = [
                AgentCore(replace(made.core._services, store=made.another_store())) if kinds[number] else made.core
                for number in range(rivals)
            ]
            streams = [core.submit_turn(session.id, UserInput("go")) for core in cores]
            outcomes = await asyncio.gather(*(stream.start() for stream in streams), return_exceptions=True)
            winners = [stream for stream, outcome in zip(streams, outcomes, strict=True) if outcome is None]
            assert len(winners) == 1
            assert all(isinstance(outcome, SessionBusy | LeaseHeld) for outcome in outcomes if outcome is not None)
            gate.set()
            events = [event async for event in winners[0]]
            assert isinstance(events[-1], TurnCompleted)
            assert len(made.server.requests) == 1

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scenario(Path(folder)))
