"""Threads that are there only while there is work, and event loops that never wait for the disk."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

import mxclaw_nb.storage
from mxclaw_nb.protocol import LeaseHeld, Message, StoreError
from mxclaw_nb.storage import SqliteStore

from .conftest import QUICK, begin, until, with_store


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("mxclaw")]


def test_the_face_of_the_room() -> None:
    assert sorted(mxclaw_nb.storage.__all__) == ["LeaseTiming", "SqliteStore"]


def test_opening_starts_no_thread_and_idle_ones_end_by_themselves(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        assert ours() == []
        made = await store.create_session(workspace="/w")
        await asyncio.gather(*(store.session(made.id) for _ in range(50)))
        assert all(thread.daemon for thread in threading.enumerate() if thread.name in ours())
        assert len(ours()) <= 4
        await until(lambda: not ours(), 3)
        assert (await store.session(made.id)).id == made.id
        turn = await begin(store, made.id)
        await turn.writer.release(state="idle")
        assert "mxclaw-lease" not in ours()
        await until(lambda: not ours(), 3)

    with_store(home, work)


def test_work_that_arrives_just_as_a_thread_ends_is_done(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mxclaw_nb.storage.store.IDLE_S", 0.001)

    async def work(store: SqliteStore) -> None:
        for number in range(300):
            made = await asyncio.wait_for(store.create_session(workspace="/w"), 5)
            await asyncio.wait_for(store.session(made.id), 5)
            await asyncio.sleep((number % 5) * 0.0005)

    with_store(home, work)


def test_close_flushes_ends_every_thread_and_may_be_called_again(home: Path) -> None:
    async def work() -> None:
        store = SqliteStore.open(home)
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        from mxclaw_nb.protocol import MessageDelta

        turn.writer.append(turn.event(MessageDelta, message_id="m", delta="last words"))
        await store.close()
        assert ours() == []
        await store.close()
        with pytest.raises(StoreError, match="closed"):
            await store.session(made.id)
        with pytest.raises(StoreError, match="closed"):
            await turn.writer.commit()
        turn.writer.append(turn.event(MessageDelta, message_id="m", delta="too late"))
        again = SqliteStore.open(home)
        assert [getattr(event, "delta", "") for event in await again.events(made.id)] == ["last words"]
        await again.close()

    asyncio.run(work())


def test_several_loops_in_several_threads_share_one_store(home: Path) -> None:
    store = SqliteStore.open(home)
    failures: list[BaseException] = []

    async def use(name: int) -> None:
        made = await store.create_session(workspace="/w", title=str(name))
        for number in range(10):
            turn = await begin(store, made.id, f"t-{number}")
            await turn.writer.release(messages=[Message("user", str(number))], state="idle")
            assert len(await store.messages(made.id)) == number + 1

    def run(name: int) -> None:
        try:
            asyncio.run(use(name))
        except BaseException as error:  # noqa: BLE001 - asserted below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    asyncio.run(store.close())


def test_a_loop_that_ends_while_it_waits_hurts_nobody(home: Path) -> None:
    store = SqliteStore.open(home)

    async def leave() -> None:
        tasks = [asyncio.ensure_future(store.sessions()) for _ in range(20)]
        await asyncio.sleep(0)
        assert not all(task.done() for task in tasks)

    for _ in range(5):
        asyncio.run(leave())
    asyncio.run(store.create_session(workspace="/w"))  # type: ignore[arg-type]
    assert len(asyncio.run(store.sessions())) == 1  # type: ignore[arg-type]
    asyncio.run(store.close())


def test_reads_do_not_wait_for_a_long_write_of_another_process_and_writes_say_so(home: Path) -> None:
    import sqlite3

    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        other = sqlite3.connect(home / "mx-claw.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        assert (await store.session(made.id)).id == made.id
        assert time.monotonic() - began < 1
        writing = asyncio.ensure_future(store.create_session(workspace="/w"))
        gaps = []
        for _ in range(20):
            tick = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - tick)
        assert max(gaps) < 0.2, "the loop was blocked"
        other.execute("COMMIT")
        await writing
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            await store.create_session(workspace="/w")
        other.execute("COMMIT")
        other.close()
        await store.create_session(workspace="/w")

    with_store(home, work)


def test_a_forked_child_is_refused_and_harms_nothing(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        await turn.writer.commit(messages=[Message("user", "before")])
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                refused = 0
                for ask in (
                    lambda: store.sessions(),
                    lambda: turn.writer.commit(),
                    lambda: store.create_session(workspace=""),
                ):
                    try:
                        ask().send(None)
                    except (StoreError, RuntimeError):
                        refused += 1
                status = 0 if refused == 3 else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0  # noqa: ASYNC222
        await turn.writer.commit(messages=[Message("user", "after")])
        with pytest.raises(LeaseHeld):
            await begin(store, made.id, "t-2")
        await turn.writer.release(state="idle")
        assert len(await store.messages(made.id)) == 2

    with_store(home, work, timing=QUICK)
