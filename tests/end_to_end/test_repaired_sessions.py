"""Histories that crashes and sloppy servers leave behind, as the next turn sends them to the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mxclaw_nb.protocol import Event, Message, ToolCall, ToolCompleted, now_iso
from mxclaw_nb.providers.rehearsal import ChatMessage, ChatRequest, Reply, say
from mxclaw_nb.storage import SqliteStore
from tests.end_to_end.program import Mxclaw, assert_prefix_stable, assert_wire_valid, mxclaw_with

INTERRUPTED = "interrupted before a result was recorded"
UNKNOWN = "outcome is unknown"
TURN = "t-old"


def user(text: str = "please") -> Message:
    return Message("user", text, turn_id=TURN)


def reply(text: str = "", *calls: tuple[str, str] | tuple[str, str, str], **more: object) -> Message:
    made = tuple(ToolCall(call[0], call[1], call[2] if len(call) > 2 else "{}") for call in calls)
    return Message("assistant", text, turn_id=TURN, tool_calls=made, **more)  # type: ignore[arg-type]


def result(call_id: str, text: str, name: str = "list_dir") -> Message:
    return Message("tool", text, turn_id=TURN, tool_call_id=call_id, name=name, status="ok")


def said(messages: Sequence[ChatMessage]) -> list[str]:
    """The transcript that was sent, without its system message, in words."""
    words = []
    for message in messages[1:]:
        if message.role == "tool":
            words.append(f"{message.tool_call_id}={message.text}")
        elif message.tool_calls:
            words.append("calls " + " ".join(call.id for call in message.tool_calls))
        else:
            words.append(f"{message.role}: {message.text}")
    return words


STANDIN = "..."
ROWS: dict[str, tuple[list[Message], list[str]]] = {
    "T01": ([user(), reply("", ("a", "list_dir"))], ["user: please", "calls a", "a=..."]),
    "T02": (
        [user(), reply("", ("a", "list_dir")), user("and"), reply("yes")],
        ["user: please", "calls a", "a=...", "user: and", "assistant: yes"],
    ),
    "T04": ([user(), result("x", "lost")], ["user: please"]),
    "T05": (
        [user(), reply("", ("a", "list_dir")), result("a", "1"), result("a", "2")],
        ["user: please", "calls a", "a=1"],
    ),
    "T07": (
        [user(), reply("", ("c0", "list_dir")), result("c0", "1"), reply("", ("c0", "list_dir"))],
        ["user: please", "calls c0", "c0=1", "calls c0-2", "c0-2=..."],
    ),
    "T08": (
        [
            user(), reply("", ("call_0", "list_dir")), result("call_0", "1"), reply("one"),
            user(), reply("", ("call_0", "list_dir")), result("call_0", "2"), reply("two"),
            user(), reply("", ("call_0", "list_dir")), result("call_0", "3"), reply("three"),
        ],
        [
            "user: please", "calls call_0", "call_0=1", "assistant: one",
            "user: please", "calls call_0-2", "call_0-2=2", "assistant: two",
            "user: please", "calls call_0-3", "call_0-3=3", "assistant: three",
        ],
    ),
    "T09": (
        [user(), reply("", ("a", "list_dir")), user("hm"), result("a", "1")],
        ["user: please", "calls a", "a=1", "user: hm"],
    ),
    "T10": (
        [user(), reply("", ("a", "list_dir"), ("b", "list_dir")), result("b", "2"), result("a", "1")],
        ["user: please", "calls a b", "a=1", "b=2"],
    ),
    "T16": (
        [user(), reply("", ("a", "list_dir", '{"file_path":5}'), ("b", "list_dir", '{"x'), ("c", "list_dir", "[1]"))],
        ["user: please", "calls a b c", "a=...", "b=...", "c=..."],
    ),
    "T17": (
        [user(), reply("", ("a", "list_dir", '{"x'), incomplete=True), user(), reply("half", incomplete=True)],
        ["user: please", "user: please", "assistant: half"],
    ),
    "T18": (
        [user(), reply("", ("a", "list_dir"), ("a", "list_dir")), result("a", "1")],
        ["user: please", "calls a a-2", "a=1", "a-2=..."],
    ),
    "no name, no id, odd names": (
        [user(), reply("", ("", "", "{}"), ("ä b", "naïve tool\n", "{}")), result("ä b", "1", "naïve tool\n")],
        ["user: please", "calls call ä b", "call=...", "ä b=1"],
    ),
    "an empty reply": ([user(), reply("  "), user("and")], ["user: please", "user: and"]),
}  # fmt: skip


def write(
    mxclaw: Mxclaw, messages: Sequence[Message], events: Callable[[str, int], Sequence[Event]] | None = None
) -> str:
    """A session with these rows, as a process that died left it: its lease is still there."""

    async def store_them() -> str:
        store = SqliteStore.open(mxclaw.home)
        try:
            session = await store.create_session(workspace=str(mxclaw.workspace))
            turn = await store.acquire(session.id, TURN, on_signal=lambda _signal: None)
            rows = [Message("system", "You are mxclaw.", turn_id=TURN), *messages]
            await turn.commit(messages=rows, events=events(session.id, turn.next_sequence()) if events else ())
            await turn.release(state="failed")
            return session.id
        finally:
            await store.close()

    return asyncio.run(store_them())


def script(request: ChatRequest) -> Reply:
    return say(f"Answer {request.number}.")


@pytest.mark.parametrize("row", ROWS)
def test_a_broken_history_is_sent_whole(row: str, tmp_path: Path) -> None:
    messages, expected = ROWS[row]
    with mxclaw_with(script, tmp_path) as mxclaw:
        session = write(mxclaw, messages)
        before = mxclaw.session().messages
        for prompt in ("go on", "and on"):
            done = mxclaw.run("run", "--json", "--session", session, prompt)
            assert done.status == 0, done.errors
        first, second = mxclaw.requests
        for request in (first, second):
            assert_wire_valid(request)
        assert_prefix_stable([first, second])
        sent = said(first.messages)
        assert sent[-1] == "user: go on"
        for line, wanted in zip(sent[:-1], expected, strict=True):
            if wanted.endswith("=..."):
                assert line.startswith(wanted[:-3]) and INTERRUPTED in line
            else:
                assert line == wanted
        assert mxclaw.session().messages[: len(before)] == before, "the rows are as they were"
        notices = [event["text"] for event in done.of("notice")]
        assert bool(notices) == (row in ("T04", "T05")), "what was left out is said"


def test_t19_an_interrupted_write_is_not_said_to_have_done_nothing(tmp_path: Path) -> None:
    with mxclaw_with(script, tmp_path) as mxclaw:
        session = write(
            mxclaw, [user(), reply("", ("r", "read_file"), ("w", "write_file"), ("x", "run_command"), ("n", "nosuch"))]
        )
        assert mxclaw.run("run", "--session", session, "go on").status == 0
        texts = {
            message.tool_call_id: message.text for message in mxclaw.requests[0].messages if message.role == "tool"
        }
        assert {call_id: UNKNOWN in text for call_id, text in texts.items()} == {
            "r": False, "w": True, "x": True, "n": True,
        }  # fmt: skip
        assert not any("not executed" in text for text in texts.values())


def test_t15_a_result_whose_message_was_never_written_is_used(tmp_path: Path) -> None:
    def finished(session: str, sequence: int) -> Sequence[Event]:
        return [
            ToolCompleted(
                sequence=sequence, session_id=session, turn_id=TURN, timestamp=now_iso(), call_id="a",
                name="run_command", status="ok", result="it ran",
            )
        ]  # fmt: skip

    with mxclaw_with(script, tmp_path) as mxclaw:
        session = write(mxclaw, [user(), reply("", ("a", "run_command"))], finished)
        for prompt in ("go on", "and on"):
            assert mxclaw.run("run", "--session", session, prompt).status == 0
        for request in mxclaw.requests:
            assert_wire_valid(request)
            assert said(request.messages)[:3] == ["user: please", "calls a", "a=it ran"]
        assert_prefix_stable(mxclaw.requests)


def test_a_history_longer_than_the_window_starts_at_a_question_and_says_what_is_left_out(tmp_path: Path) -> None:
    rows: list[Message] = []
    for number in range(900):
        rows += [user(f"q{number}"), reply("", ("call_0", "list_dir")), result("call_0", "1"), reply("done")]
    with mxclaw_with(script, tmp_path) as mxclaw:
        session = write(mxclaw, rows)
        for prompt in ("go on", "and on"):
            done = mxclaw.run("run", "--json", "--session", session, prompt)
            assert done.status == 0, done.errors
        first, second = mxclaw.requests
        for request in (first, second):
            assert_wire_valid(request)
            assert [message.role for message in request.messages[:2]] == ["system", "user"]
            assert 200 < len(request.messages) < 1300
        assert_prefix_stable([first, second])
        assert any("oldest" in notice["text"] for notice in done.of("notice"))
