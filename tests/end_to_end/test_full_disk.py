"""A disk that takes no more in the middle of a turn fails the turn, and only the turn."""

from __future__ import annotations

import resource
import shlex
import sqlite3
from pathlib import Path

import pytest

from mxclaw_nb.providers.rehearsal import ChatRequest, Reply, call, say
from tests.end_to_end.program import PROGRAM, Mxclaw, assert_wire_valid, mxclaw_with


def script(request: ChatRequest) -> Reply:
    prompt = next(message.text for message in reversed(request.messages) if message.role == "user")
    if request.messages[-1].role == "tool":
        return say("The command ran.")
    if prompt == "long reply":
        return say("word " * 100_000)
    if prompt == "long result":
        return call("run_command", command="seq 1 3000")
    return say("Fine again.")


def run_limited(mxclaw: Mxclaw, kilobytes: int, *words: str) -> object:
    """Run it where no file may grow beyond so many kilobytes."""
    line = f"ulimit -f {kilobytes}; exec {shlex.join([*PROGRAM, *words])}"
    return mxclaw.run("-c", line, program=("bash",))


@pytest.mark.parametrize("prompt", ["long reply", "long result"])
@pytest.mark.parametrize("room", [0, 8, 40])
def test_a_full_disk_fails_the_turn_with_a_sentence_and_the_next_one_works(
    prompt: str, room: int, tmp_path: Path
) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    with mxclaw_with(script, tmp_path) as mxclaw:
        assert mxclaw.run("run", "--json", "first").status == 0
        session = mxclaw.session().id
        connection = sqlite3.connect(mxclaw.home / "mx-claw.db")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        size = (mxclaw.home / "mx-claw.db").stat().st_size // 1024
        before = mxclaw.session().messages
        done = run_limited(mxclaw, size + room, "run", "--json", "--mode", "allow-all", "--session", session, prompt)
        assert done.status in (0, 1), done.errors
        assert "Traceback" not in done.errors
        if done.status == 1:
            assert done.errors.startswith(("error: ", "store_error: ")), done.errors
            assert "full" in done.errors or "disk" in done.errors
            if done.out:
                assert done.last["type"] == "turn.failed" and done.last["code"] == "error"
        after = mxclaw.session()
        assert after.messages[: len(before)] == before
        assert after.session.state != "running"
        again = mxclaw.run("run", "--json", "--session", session, "again")
        assert again.status == 0, again.errors
        assert again.last["text"] == "Fine again."
        assert_wire_valid(mxclaw.requests[-1])
        connection = sqlite3.connect(mxclaw.home / "mx-claw.db")
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
