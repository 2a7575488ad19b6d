"""A turn from the prompt to its end: events, rounds, results, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from mxclaw_nb.protocol import (
    Answer,
    Event,
    LeaseHeld,
    MessageCompleted,
    MessageDelta,
    NotFound,
    Notice,
    PermissionRequested,
    PermissionResolved,
    SessionBusy,
    ToolCompleted,
    ToolContext,
    ToolFailure,
    ToolOutput,
    ToolResult,
    TurnCompleted,
    TurnFailedEvent,
    TurnStarted,
    UsageError,
    UsageEvent,
)
from mxclaw_nb.providers.rehearsal import (
    ChatRequest,
    Reply,
    ScriptedCall,
    Speech,
    call,
    calls,
    fail,
    raw,
    say,
    sequence,
)

from .conftest import Play, Stage, SteeredTool


def kinds(events: Sequence[Event]) -> list[str]:
    """Event types in order, runs of deltas told once."""
    found: list[str] = []
    for event in events:
        if not found or found[-1] != event.type:
            found.append(event.type)
    return found


def results(events: Sequence[Event]) -> list[tuple[str, str]]:
    return [(event.name, event.status) for event in events if isinstance(event, ToolCompleted)]


def failure(events: Sequence[Event]) -> TurnFailedEvent:
    last = events[-1]
    assert isinstance(last, TurnFailedEvent), last
    return last


def test_a_turn_of_text_alone(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        events = await stage.turn(session, "hello")
        assert kinds(events) == ["turn.started", "message.delta", "message.completed", "usage", "turn.completed"]
        assert "".join(event.delta for event in events if isinstance(event, MessageDelta)) == "Hello, 你好."
        assert isinstance(events[-1], TurnCompleted) and events[-1].text == "Hello, 你好."
        numbers = [event.sequence for event in events]
        assert numbers == sorted(set(numbers))
        assert {event.session_id for event in events} == {session.id}
        messages = await stage.store.messages(session.id)
        assert [message.role for message in messages] == ["system", "user", "assistant"]
        after = await stage.store.session(session.id)
        assert after.state == "idle" and after.input_tokens > 0

    play(sequence(say("Hello, 你好.")), scenario)


def test_what_the_user_said_is_on_disk_before_the_model_is_asked(play: Play) -> None:
    seen: list[list[str]] = []
    stages: list[Stage] = []
    ids: list[str] = []

    async def script(_request: ChatRequest) -> Reply:
        stored = await stages[0].another_store().messages(ids[0])
        seen.append([message.content for message in stored if message.role == "user"])
        return say("ok")

    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        stages.append(stage)
        ids.append(session.id)
        await stage.turn(session, "remember me")
        assert seen == [["remember me"]]

    play(script, scenario)


def test_a_tool_round_feeds_the_result_back_and_the_prefix_stays_byte_identical(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        (stage.workspace / "a.txt").write_text("forty-two\n")
        session = await stage.session()
        events = await stage.turn(session, "read it")
        assert results(events) == [("read_file", "ok")]
        await stage.turn(session, "again")
        first, second, third = (request.raw for request in stage.server.requests)
        prefixes = [raw[: raw.index(b'],"tools":')] for raw in (first, second, third)]
        assert prefixes[1].startswith(prefixes[0]) and prefixes[2].startswith(prefixes[1])
        assert len({raw[raw.index(b'],"tools":') :] for raw in (first, second, third)}) == 1
        sent = stage.server.requests[1].messages
        assert sent[-1].role == "tool" and "forty-two" in sent[-1].text
        assert sent[-2].tool_calls and sent[-2].tool_calls[0].id == sent[-1].tool_call_id

    play(sequence(call("read_file", path="a.txt").saying("Let me look."), say("It says 42."), say("Still.")), scenario)


def test_the_round_limit_is_an_explicit_failure_and_the_session_goes_on(play: Play) -> None:
    def script(request: ChatRequest) -> Reply:
        return call("list_dir", path=".") if request.number < 2 else say("done")

    async def scenario(stage: Stage) -> None:
        (stage.workspace / "x").mkdir()
        session = await stage.session()
        events = await stage.turn(session, max_iterations=1)
        assert failure(events).code == "max_iterations" and "its 1 round before" in failure(events).message
        assert results(events) == [("list_dir", "ok")]
        assert (await stage.store.session(session.id)).state == "failed"
        assert failure(await stage.turn(session, max_iterations=1)).code == "max_iterations"
        assert isinstance((await stage.turn(session, "continue"))[-1], TurnCompleted)
        assert (await stage.store.session(session.id)).state == "idle"

    play(script, scenario)


def test_eight_rounds_are_the_default(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        events = await stage.turn(await stage.session())
        assert failure(events).code == "max_iterations"
        assert len(stage.server.requests) == 8

    play(lambda request: call("glob", pattern=f"{request.number}*"), scenario)


def test_reads_of_one_reply_run_side_by_side_and_at_most_eight_at_once(play: Play) -> None:
    running = peak = 0

    async def act(_name: str, _context: ToolContext) -> ToolResult:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        for _ in range(20):
            await asyncio.sleep(0)
        running -= 1
        return ToolResult("ok")

    async def scenario(stage: Stage) -> None:
        events = await stage.turn(await stage.session())
        assert len(results(events)) == 12
        assert peak == 8
        sent = stage.server.requests[1].messages
        assert sent[-13].tool_calls is not None
        assert [message.tool_call_id for message in sent[-12:]] == [made.id for made in sent[-13].tool_calls]

    peek = SteeredTool("peek", act)
    play(sequence(calls(*(call("peek", name=str(n)) for n in range(12))), say("done")), scenario, peek)


@pytest.mark.parametrize(
    "other",
    [
        ScriptedCall("poke", '{"name":"w"}'),
        ScriptedCall("slow_read", '{"name":"u"}'),
        ScriptedCall("peek", '{"name":5}'),
        ScriptedCall("nope", "{}"),
    ],
    ids=["a write", "not concurrency-safe", "invalid", "unknown"],
)
def test_a_batch_with_anything_else_runs_one_after_the_other_in_order(play: Play, other: ScriptedCall) -> None:
    running = 0
    order: list[str] = []

    async def act(name: str, _context: ToolContext) -> ToolResult:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        order.append(name)
        running -= 1
        return ToolResult("ok")

    async def scenario(stage: Stage) -> None:
        events = await stage.turn(await stage.session(), mode="allow-all")
        assert len(results(events)) == 4
        assert [name for name in order if name in "123"] == ["1", "2", "3"]

    tools = (
        SteeredTool("peek", act),
        SteeredTool("poke", act, risk="write"),
        SteeredTool("slow_read", act, concurrency_safe=False),
    )
    reply = calls(call("peek", name="1"), call("peek", name="2"), other, call("peek", name="3"))
    play(sequence(reply, say("done")), scenario, *tools)


def test_every_call_gets_its_result_whatever_becomes_of_its_siblings(play: Play) -> None:
    async def act(name: str, _context: ToolContext) -> ToolResult:
        if name == "raise":
            raise RuntimeError("boom")
        if name == "fail":
            raise ToolFailure("cannot do that")
        if name == "deny":
            raise ToolFailure("outside the workspace", status="denied")
        return ToolResult(f"did {name}")

    async def scenario(stage: Stage) -> None:
        events = await stage.turn(await stage.session())
        completed = {event.result: event.status for event in events if isinstance(event, ToolCompleted)}
        assert completed == {
            "did fine": "ok",
            "Tool failed: RuntimeError: boom": "error",
            "cannot do that": "error",
            "outside the workspace": "denied",
            "did well": "ok",
        }
        assert isinstance(events[-1], TurnCompleted)

    names = ["fine", "raise", "fail", "deny", "well"]
    play(sequence(calls(*(call("peek", name=n) for n in names)), say("done")), scenario, SteeredTool("peek", act))


def test_calls_that_never_run_tell_the_model_why(play: Play) -> None:
    async def act(name: str, _context: ToolContext) -> ToolResult:
        return ToolResult(name)

    reply = Speech(
        calls=(
            ScriptedCall("nope", "{}"),
            ScriptedCall("peek", '{"name": 5}'),
            ScriptedCall("peek", '{"name": "cut'),
            ScriptedCall("peek", '{"name": "a"}', id="same"),
            ScriptedCall("peek", '{ "name" : "a" }'),
        )
    )

    async def scenario(stage: Stage) -> None:
        events = await stage.turn(await stage.session())
        assert [status for _, status in results(events)] == ["invalid", "invalid", "invalid", "ok", "duplicate"]
        texts = [event.result for event in events if isinstance(event, ToolCompleted)]
        assert "peek" in texts[0] and "name" in texts[1] and "JSON" in texts[2]
        started = [event for event in events if event.type == "tool.started"]
        assert len(started) == 1

    play(sequence(reply, say("done")), scenario, SteeredTool("peek", act))


@pytest.mark.parametrize("arguments", ['{"name": "cut', ""])
def test_s23_a_call_cut_by_the_output_limit_is_not_executed(play: Play, arguments: str) -> None:
    async def act(_name: str, _context: ToolContext) -> ToolResult:
        raise AssertionError("it ran")

    async def scenario(stage: Stage) -> None:
        events = await stage.turn(await stage.session(), mode="allow-all")
        [done] = [event for event in events if isinstance(event, ToolCompleted)]
        assert done.status == "invalid" and "truncated" in done.result
        assert "truncated" in stage.server.requests[1].messages[-1].text

    reply = Speech(calls=(ScriptedCall("poke", arguments),), finish_reason="length")
    play(sequence(reply, say("done")), scenario, SteeredTool("poke", act, risk="write"))


def test_s21_calls_are_taken_from_the_deltas_and_not_from_the_finish_reason(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        assert results(await stage.turn(await stage.session())) == [("list_dir", "ok")]

    reply = Speech(calls=(ScriptedCall("list_dir", "{}"),), finish_reason="stop")
    play(sequence(reply, say("done")), scenario)


def test_s22_calls_that_were_announced_and_never_came_are_asked_for_once_more(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        events = await stage.turn(await stage.session())
        assert isinstance(events[-1], TurnCompleted)
        assert any(isinstance(event, Notice) and "empty reply" in event.text for event in events)

    empty = Speech(finish_reason="tool_calls")
    play(sequence(empty, empty), scenario)


def test_text_cut_by_the_output_limit_completes_the_turn_and_says_so(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        events = await stage.turn(await stage.session())
        [completed] = [event for event in events if isinstance(event, MessageCompleted)]
        assert completed.incomplete and completed.finish_reason == "length"
        assert any(isinstance(event, Notice) and "output limit" in event.text for event in events)
        assert isinstance(events[-1], TurnCompleted) and events[-1].text == "so far"

    play(sequence(say("so far", finish_reason="length")), scenario)


@pytest.mark.parametrize("ending", ["cut", "reset"])
def test_a_stream_that_breaks_keeps_the_text_and_fails_the_turn(play: Play, ending: str) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        events = await stage.turn(session)
        assert failure(events).code == "stream_interrupted"
        stored = (await stage.store.messages(session.id))[-1]
        assert stored.role == "assistant" and stored.incomplete and "partial" in stored.content
        assert (await stage.store.session(session.id)).state == "failed"
        assert isinstance((await stage.turn(session, "again"))[-1], TurnCompleted)

    play(sequence(Speech("partial answer here", ending=ending), say("ok")), scenario)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (fail(401, "no key"), "provider_error"),
        (fail(400, "maximum context length is 10 tokens, however you requested 20"), "context_overflow"),
        (raw(b": ping\n\n"), "empty_stream"),
        (raw(b"<html>", content_type="text/html"), "provider_error"),
    ],
)
def test_a_provider_that_fails_ends_the_turn_with_its_code(play: Play, reply: Reply, code: str) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        assert failure(await stage.turn(session)).code == code
        assert (await stage.store.session(session.id)).state == "failed"

    play(lambda _request: reply, scenario)


def test_a_denial_with_a_word_to_the_model(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        events = await stage.turn(session, answer=Answer("deny", "use the other folder"))
        [asked] = [event for event in events if isinstance(event, PermissionRequested)]
        assert asked.choices == ("allow_once", "allow_session", "deny")
        assert "+hello" in asked.detail.text and asked.detail.kind == "diff"
        [resolved] = [event for event in events if isinstance(event, PermissionResolved)]
        assert (resolved.answer, resolved.by) == ("deny", "user")
        assert results(events) == [("write_file", "denied")]
        assert "use the other folder" in stage.server.requests[1].messages[-1].text
        assert not (stage.workspace / "a.txt").exists()
        assert isinstance(events[-1], TurnCompleted)

    play(sequence(call("write_file", path="a.txt", content="hello\n"), say("fine")), scenario)


def test_allow_for_this_session_is_asked_once_and_holds_in_later_turns(play: Play) -> None:
    def script(request: ChatRequest) -> Reply:
        if request.messages[-1].role == "user":
            return call("run_command", command="echo hi >> log")
        return say("done")

    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        first = await stage.turn(session, answer=Answer("allow_session"))
        second = await stage.turn(session)
        assert "permission.requested" in kinds(first) and "permission.requested" not in kinds(second)
        assert (stage.workspace / "log").read_text() == "hi\nhi\n"
        other = await stage.turn(await stage.session(), can_answer=False)
        assert results(other) == [("run_command", "denied")]

    play(script, scenario)


def test_where_nobody_can_answer_an_ask_is_a_denial_at_once(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        events = await stage.turn(await stage.session(), can_answer=False)
        [resolved] = [event for event in events if isinstance(event, PermissionResolved)]
        assert (resolved.answer, resolved.by) == ("deny", "nobody")
        assert "Nobody can be asked here" in stage.server.requests[1].messages[-1].text

    play(sequence(call("run_command", command="ls"), say("fine")), scenario)


def test_an_approval_that_nobody_answers_in_time_counts_as_denied(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.configure(approval_timeout_s=0.2)
        events = await stage.turn(await stage.session())
        [resolved] = [event for event in events if isinstance(event, PermissionResolved)]
        assert (resolved.answer, resolved.by) == ("deny", "timeout")
        assert results(events) == [("run_command", "denied")]

    play(sequence(call("run_command", command="ls"), say("fine")), scenario)


def test_an_answer_from_another_process_arrives(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        elsewhere = stage.another_store()
        session = await stage.session()
        events: list[Event] = []
        async with asyncio.timeout(20), stage.submit(session) as stream:
            async for event in stream:
                events.append(event)
                if isinstance(event, PermissionRequested):
                    [waiting] = await elsewhere.pending_approvals(session.id)
                    assert waiting.id == event.request_id and waiting.detail == "echo hi > made"
                    await elsewhere.answer_approval(waiting.id, Answer("allow_once"), "cli")
        [resolved] = [event for event in events if isinstance(event, PermissionResolved)]
        assert (resolved.answer, resolved.by) == ("allow_once", "cli")
        assert (stage.workspace / "made").exists()
        assert not await elsewhere.pending_approvals()

    play(sequence(call("run_command", command="echo hi > made"), say("fine")), scenario)


def test_a_denied_call_may_be_asked_again_in_the_same_turn(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        answers = iter([Answer("deny"), Answer("allow_once")])
        events = []
        async with asyncio.timeout(20), stage.submit(await stage.session()) as stream:
            async for event in stream:
                events.append(event)
                if isinstance(event, PermissionRequested):
                    await stage.core.answer(event.request_id, next(answers), "user")
        assert results(events) == [("run_command", "denied"), ("run_command", "ok")]

    again = call("run_command", command="true")
    play(sequence(again, again, say("fine")), scenario)


def test_live_output_is_shown_while_a_command_runs(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        events = await stage.turn(await stage.session(), mode="allow-all")
        shown = "".join(event.delta for event in events if isinstance(event, ToolOutput))
        assert "one" in shown and "two" in shown
        assert kinds(events).index("tool.output") < kinds(events).index("tool.completed")

    play(sequence(call("run_command", command="echo one; sleep 0.4; echo two"), say("fine")), scenario)


def test_a_session_runs_one_turn_at_a_time_in_this_process_and_across_processes(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        async with stage.submit(session) as stream:
            await anext(stream)
            with pytest.raises(SessionBusy, match=session.id):
                await stage.submit(session).start()
            with pytest.raises(LeaseHeld, match="pid"):
                await stage.another_store().acquire(session.id, "t-other", on_signal=lambda _signal: None)
        assert isinstance((await stage.turn(session, "free again"))[-1], TurnCompleted)

    play(sequence(say("a b c d", pause_s=5), say("ok")), scenario)


@pytest.mark.parametrize("text", ["", "  ", "\n\t"])
def test_s58_an_empty_prompt_is_refused_here(play: Play, text: str) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        with pytest.raises(UsageError, match="empty"):
            await stage.turn(session, text)
        assert not stage.server.requests and not await stage.store.messages(session.id)

    play(sequence(), scenario)


def test_refusals_are_errors_and_leave_the_session_as_it_was(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        with pytest.raises(NotFound):
            await stage.core.submit_turn("s-nope", __import__("mxclaw_nb.protocol").protocol.UserInput("x")).start()
        with pytest.raises(UsageError, match="price"):
            await stage.turn(session, max_cost=1.0)
        with pytest.raises(UsageError, match="at least one round"):
            await stage.turn(session, max_iterations=0)
        assert (await stage.store.session(session.id)).state == "idle"
        assert not stage.core.running

    play(sequence(), scenario)


def test_usage_is_told_once_a_round_and_added_to_the_session(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        events = await stage.turn(session)
        told = [event for event in events if isinstance(event, UsageEvent)]
        assert len(told) == 2 and all(event.cost is None for event in told)
        after = await stage.store.session(session.id)
        assert after.input_tokens == sum(event.input_tokens for event in told)
        assert after.output_tokens == sum(event.output_tokens for event in told)

    play(sequence(call("list_dir"), say("done")), scenario)


def test_a_watcher_in_another_process_reads_the_same_story_from_the_store(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        session = await stage.session()
        events = await stage.turn(session, answer=Answer("allow_once"))
        stored = await stage.another_store().events(session.id)
        lasting = [event for event in events if not event.type.endswith(".delta") and event.type != "tool.output"]
        told = [event for event in stored if not event.type.endswith(".delta") and event.type != "tool.output"]
        assert told == lasting

    play(sequence(call("run_command", command="echo hi").saying("Now."), say("done")), scenario)


def test_a_turn_that_was_started_says_so_first_with_its_model_and_mode(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        events = await stage.turn(await stage.session(), "你好", mode="plan")
        assert isinstance(events[0], TurnStarted)
        assert (events[0].input, events[0].model, events[0].mode) == ("你好", "script/quickstart", "plan")

    play(sequence(say("ok")), scenario)
