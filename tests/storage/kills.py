"""Kills a child at every statement that the store executes, and then looks at what is left. Run as a script.

The child is forked from this small process, so that a kill costs milliseconds. Prints one line for each finding.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path

from mxclaw_nb.protocol import (
    Answer,
    Detail,
    Message,
    MessageCompleted,
    MessageDelta,
    PermissionRequested,
    ToolCall,
    ToolCompleted,
    TurnCompleted,
    TurnStarted,
    UsageEvent,
    now_iso,
)
from mxclaw_nb.storage import SqliteStore, database


def count_statements(kill_at: int, counter: list[int]) -> None:
    """From now on every statement of every connection counts, and the process dies before number ``kill_at``."""
    connect = database.Database._connect

    def counting(self: database.Database) -> sqlite3.Connection:
        raw = connect(self)

        def step(statement: str) -> None:
            counter[0] += 1
            if counter[0] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        raw.set_trace_callback(step)
        return raw

    database.Database._connect = counting  # type: ignore[method-assign]


async def live(home: Path) -> None:
    """Everything that writes: a session, a turn with a tool and an approval, a fork, a removal."""
    store = SqliteStore.open(home)
    made = await store.create_session(workspace="/w", title="killed")
    turn = await store.acquire(made.id, "t-1", on_signal=lambda given: None)

    def event(kind, **fields):  # type: ignore[no-untyped-def]
        return kind(sequence=turn.next_sequence(), session_id=made.id, turn_id="t-1", timestamp=now_iso(), **fields)

    await turn.commit(
        messages=[Message("system", "s", turn_id="t-1"), Message("user", "问题", turn_id="t-1")],
        events=[event(TurnStarted, input="问题", model="p/m", mode="ask")],
    )
    for _ in range(20):
        turn.append(event(MessageDelta, message_id="m-1", delta="word "))
    await asyncio.sleep(0.06)
    reply = Message("assistant", "answer", id="m-1", turn_id="t-1", tool_calls=(ToolCall("c-1", "x", "{}"),))
    await turn.commit(
        messages=[reply],
        events=[
            event(MessageCompleted, message_id="m-1", text="answer"),
            event(UsageEvent, input_tokens=1, output_tokens=2),
        ],
    )
    request = event(
        PermissionRequested, request_id=f"p-{made.id}", call_id="c-1", name="x", summary="s",
        detail=Detail(kind="text", text=""), reason="", choices=("allow_once", "deny"),
    )  # fmt: skip
    await turn.commit(request=request)
    await store.answer_approval(f"p-{made.id}", Answer("allow_once"), "me")
    result = event(ToolCompleted, call_id="c-1", name="x", status="ok", result="result")
    await turn.commit(events=[result])
    await turn.commit(messages=[Message("tool", "result", turn_id="t-1", tool_call_id="c-1")])
    await turn.release(
        messages=[Message("assistant", "done", turn_id="t-1")], events=[event(TurnCompleted, text="done")], state="idle"
    )
    fork = await store.fork_session(made.id)
    gone = await store.create_session(workspace="/w", title="gone")
    await store.delete_session(gone.id)
    await store.delete_session(fork.id)
    await store.close()


WHOLE = ["system", "user", "assistant", "tool", "assistant"]


async def examine(home: Path) -> None:
    """The store opens, is sound, and every session in it makes sense and takes another turn."""
    warnings: list[str] = []
    store = SqliteStore.open(home, on_warning=warnings.append)
    assert not warnings, warnings
    for session in await store.sessions():
        assert session.state in ("idle", "failed"), session.state
        messages = await store.messages(session.id)
        roles = [message.role for message in messages]
        assert len(messages) == session.message_count
        assert [message.position for message in messages] == list(range(1, len(messages) + 1))
        assert roles == WHOLE[: len(roles)], roles
        assert len(roles) != 1, "the system message and the user's came in one transaction"
        events = await store.events(session.id, limit=10_000)
        numbers = [event.sequence for event in events]
        assert numbers == sorted(set(numbers)), "numbers rise"
        kinds = {event.type for event in events}
        if len(roles) >= 3 and session.title == "killed":
            assert "message.completed" in kinds and session.input_tokens == 1
        finished = await store.finished_calls(session.id)
        if session.title == "killed":
            assert bool(finished) == ("tool.completed" in kinds and "tool" not in roles)
        assert await store.pending_approvals(session.id) == ()
        if roles:
            (hit,) = [hit for hit in await store.search("问题") if hit.session_id == session.id][:1] or [None]
            shared = [hit for hit in await store.search("问题") if hit.session_id != session.id]
            assert hit or shared
        turn = await store.acquire(session.id, "t-2", on_signal=lambda given: None)
        assert not numbers or turn.next_sequence() > numbers[-1]
        await turn.release(messages=[], state="idle")
    await store.close()
    connection = sqlite3.connect(home / "mx-claw.db")
    verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
    assert verdict == "ok", verdict
    owners = connection.execute("SELECT DISTINCT owner FROM messages").fetchall()
    spans = connection.execute("SELECT DISTINCT owner FROM spans").fetchall()
    assert set(owners) <= set(spans), "rows of nobody"
    connection.close()


def child(work, *arguments) -> int:  # type: ignore[no-untyped-def]
    """Run in a forked child; its wait status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work(*arguments)
            status = 0
        except BaseException as error:  # noqa: BLE001 - printed, and the parent sees the status
            print("child failed", repr(error), flush=True)
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


def killed_at(home: Path, number: int) -> None:
    count_statements(number, [0])
    asyncio.run(live(home))


def examined(home: Path) -> None:
    asyncio.run(examine(home))


def killed_after(home: Path, seconds: float) -> None:
    killer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    killer.daemon = True
    killer.start()
    while True:
        asyncio.run(live(home))


def main(folder: Path, mode: str, seconds: float, seed: int) -> None:
    dice = random.Random(seed)
    deadline = time.monotonic() + seconds
    kills = number = 0
    finished = False
    while time.monotonic() < deadline and not finished:
        number += 1
        home = folder / (f"home-{number}" if mode == "statements" else "home")
        if mode == "statements":
            status = child(killed_at, home, number)
            finished = os.WIFEXITED(status)
        else:
            status = child(killed_after, home, dice.uniform(0.005, 0.25))
        kills += os.WIFSIGNALED(status)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            print(f"{mode} {number}: the work itself failed")
        if child(examined, home):
            print(f"{mode} {number}: what is left makes no sense")
    print(f"done kills={kills} complete={finished}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
