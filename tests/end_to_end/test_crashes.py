"""A turn whose process is killed at any moment leaves a store that opens and a session that goes on."""

from __future__ import annotations

import signal
import sqlite3
import sys
from pathlib import Path

import pytest

from mxclaw_nb.providers.rehearsal import ChatRequest, Reply, call, calls, say
from tests.end_to_end.program import (
    Mxclaw,
    assert_events_sound,
    assert_prefix_stable,
    assert_wire_valid,
    mxclaw_with,
)

KILLED = (sys.executable, str(Path(__file__).with_name("killed.py")))
MOST_COMMITS = 60
SHOWN_WHEN_STORED = ("turn.started", "message.completed", "tool.completed", "turn.completed")
INTERRUPTED = "interrupted before a result was recorded"


def script(request: ChatRequest) -> Reply:
    """Reads and runs something in its first turn; goes on in the second."""
    last = request.messages[-1]
    if last.role == "tool":
        return say("All done.")
    if last.text == "go on":
        return say("I went on.")
    return calls(
        call("read_file", path="notes.txt"), call("run_command", command="echo once >> ran.txt; echo it ran")
    ).saying("Looking.")


def integrity(home: Path) -> str:
    connection = sqlite3.connect(home / "mx-claw.db")
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()


def go_on(mxclaw: Mxclaw) -> None:
    """The next turn takes the session over at once, and what the model is sent is valid and true."""
    before = mxclaw.session()
    answered = {message.tool_call_id: message for message in before.results}
    sent = len(mxclaw.requests)
    done = mxclaw.run("run", "--json", "--mode", "allow-all", "--session", before.id, "go on")
    assert done.status == 0, done.errors
    assert done.last["text"] == "I went on."
    [request] = mxclaw.requests[sent:]
    assert_wire_valid(request)
    for message in request.messages:
        if message.role == "tool":
            stored = answered.get(message.tool_call_id)
            assert (message.text == stored.content) if stored else (INTERRUPTED in message.text)
    after = mxclaw.session()
    assert after.messages[: len(before.messages)] == before.messages, "the rows are as they were"
    assert [message.role for message in after.messages[-2:]] == ["user", "assistant"]
    assert after.session.state == "idle"
    numbers = [event["sequence"] for event in after.events]
    assert numbers == sorted(set(numbers))
    assert_events_sound([event for event in after.events if event["turnId"] == done.last["turnId"]])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_at_any_commit_of_a_turn_loses_nothing_that_was_written(moment: str, tmp_path: Path) -> None:
    kills = 0
    for number in range(1, MOST_COMMITS):
        folder = tmp_path / str(number)
        folder.mkdir()
        with mxclaw_with(script, folder) as mxclaw:
            (mxclaw.workspace / "notes.txt").write_text("a note\n")
            words = ("run", "--json", "first")
            done = mxclaw.run(*words, program=(*KILLED, str(number), moment))
            if done.status == 0:
                assert_events_sound(done.events)
                break
            kills += 1
            assert done.status == -signal.SIGKILL, done.errors
            assert integrity(mxclaw.home) == "ok"
            for request in mxclaw.requests:
                assert_wire_valid(request)
            ran = mxclaw.workspace / "ran.txt"
            assert not ran.exists() or ran.read_text() == "once\n"
            stored = mxclaw.stored()
            if stored is None:
                continue
            assert stored.session.state != "running", "nobody runs it"
            assert ran.exists() <= any(event["type"] == "permission.resolved" for event in stored.events)
            on_disk = {event["sequence"]: event for event in stored.events}
            shown = [event for event in done.events if event["type"] in SHOWN_WHEN_STORED]
            assert all(on_disk[event["sequence"]] == event for event in shown)
            go_on(mxclaw)
            assert_prefix_stable(mxclaw.requests)
    else:
        raise AssertionError("the turn never got through")
    assert kills >= 8, "at least: session, lease, question, reply, request, its answer, two results, end"
