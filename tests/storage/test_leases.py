"""The lease: one holder, taken over only from the dead, and a fence before every write."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mxclaw_nb.protocol import (
    Answer,
    ApprovalAnswered,
    LeaseGone,
    LeaseHeld,
    LeaseLost,
    Message,
    StopRequested,
    StoreError,
)
from mxclaw_nb.storage import LeaseTiming, SqliteStore
from mxclaw_nb.storage.identity import ProcessIdentity, process_start, start_from_stat, state_of_process, this_process
from mxclaw_nb.storage.leases import Lease, Observer, Sighting, judge

from .conftest import QUICK, Child, begin, until, with_store

ME = ProcessIdentity("here", "boot-1", 100, "pid:[1]", "5000", "kernel")
LEASE = Lease(1, "token", "t-1", "kernel", "here", "boot-1", 200, "pid:[1]", "6000", 7, 1000.0, 30.0)
SEEN = Sighting("token", 7, 1000.0)


@pytest.mark.parametrize(
    ("lease", "now", "process", "sighting", "live"),
    [
        ({}, 1010, "running", None, True),
        ({}, 1030, "running", None, True),
        ({}, 1030.1, "running", None, False),
        ({}, 1001, "gone", None, False),
        ({}, 1001, "unknown", None, True),
        ({}, 1031, "unknown", None, False),
        ({"pid_namespace": "pid:[2]"}, 1001, "gone", None, True),
        ({"pid_namespace": "pid:[2]"}, 1031, "running", None, False),
        ({"host": "container"}, 1031, "running", None, False),
        ({"renewed_at": 5000.0}, 1001, "running", None, True),
        ({"renewed_at": 5000.0}, 1031, "running", SEEN, False),
        ({"boot_id": "boot-2"}, 1e9, "gone", None, True),
        ({"boot_id": "boot-2"}, 1029, "gone", SEEN, True),
        ({"boot_id": "boot-2"}, 1030, "gone", SEEN, False),
        ({"boot_id": "boot-2", "counter": 8}, 1e9, "gone", SEEN, True),
        ({"boot_id": "boot-2", "token": "other"}, 1e9, "gone", SEEN, True),
        ({"boot_id": "boot-2"}, 10, "gone", SEEN, True),
        ({"boot_id": ""}, 1e9, "gone", None, True),
    ],
)  # fmt: skip
def test_whether_a_lease_stands(
    lease: dict[str, object], now: float, process: str, sighting: Sighting | None, live: bool
) -> None:
    observer = Observer(ME, lambda: now, lambda pid, started: process)  # type: ignore[arg-type,return-value]
    assert judge(replace(LEASE, **lease), observer, sighting).live is live  # type: ignore[arg-type]


def test_two_machines_that_tell_no_boot_id_are_not_taken_for_one() -> None:
    observer = Observer(replace(ME, boot_id=""), lambda: 1e9, lambda pid, started: "gone")
    assert judge(replace(LEASE, boot_id=""), observer, None).live


def test_the_start_of_a_process_is_read_whatever_its_name_is() -> None:
    fields = " ".join(["S", *(str(n) for n in range(4, 22)), "777", "23"])
    assert start_from_stat(f"12 (we (i) rd) {fields}") == "777"
    assert start_from_stat(f"12 (x) Z {fields[2:]}") == "zombie"
    assert start_from_stat("") is None


def test_a_dead_a_reused_and_a_zombie_pid_are_gone() -> None:
    me = this_process()
    assert state_of_process(os.getpid(), me.started) == "running"
    assert state_of_process(os.getpid(), me.started + "0") == "gone"
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    started = "1"
    deadline = time.monotonic() + 5
    while process_start(pid) != "zombie":
        assert time.monotonic() < deadline
    assert state_of_process(pid, started) == "gone"
    os.waitpid(pid, 0)
    assert state_of_process(pid, started) == "gone"


def test_a_second_turn_is_refused_by_name(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id, "t-1")
        with pytest.raises(LeaseHeld) as refused:
            await begin(store, made.id, "t-2")
        me = this_process()
        for word in (made.id, "t-1", me.program, me.host, str(me.pid), "0 s"):
            assert word in refused.value.message
        assert (await store.session(made.id)).state == "running"
        await turn.writer.release(state="idle")
        assert (await store.session(made.id)).state == "idle"
        await (await begin(store, made.id, "t-2")).writer.release(state="failed")
        assert (await store.session(made.id)).state == "failed"

    with_store(home, work)


def test_of_two_processes_at_a_barrier_exactly_one_wins(home: Path, child: Callable[..., Child]) -> None:
    children = [child(home), child(home)]
    for one in children:
        assert one.says() == "ready"
    for one in children:
        assert one.asked("open") == "ok"
    session = children[0].asked("create race")
    for number in range(15):
        for one in children:
            one.told(f"acquire {session} t-{number}")
        answers = sorted(one.says().split()[0] for one in children)
        assert answers == ["lease_held", "ok"]
        for one in children:
            one.told("release")
        for one in children:
            one.says()


def test_a_killed_process_is_taken_over_at_once_and_never_left_running(home: Path, child: Callable[..., Child]) -> None:
    one = child(home)
    one.says()
    one.asked("open")
    session = one.asked("create x")
    assert one.asked(f"acquire {session} t-1") == "ok"
    assert one.asked("request p-1") == "ok"

    async def work(store: SqliteStore) -> None:
        assert (await store.session(session)).state == "running"
        assert [approval.id for approval in await store.pending_approvals()] == ["p-1"]
        one.process.send_signal(signal.SIGKILL)
        one.process.wait(10)
        shown = await store.session(session)
        assert shown.state == "failed"
        assert [s.state for s in await store.sessions()] == ["failed"]
        assert await store.pending_approvals() == ()
        approval = await store.approval("p-1")
        assert (approval.answer, approval.by) == (Answer("deny"), "cancelled")
        assert not await store.request_stop(session, "me")
        turn = await begin(store, session, "t-2")
        await turn.writer.release(state="idle")
        assert (await store.session(session)).state == "idle"

    with_store(home, work)


def test_a_process_that_slept_past_its_lease_cannot_write(home: Path, child: Callable[..., Child]) -> None:
    one = child(home, QUICK.ttl_s)
    one.says()
    one.asked("open")
    session = one.asked("create x")
    assert one.asked(f"acquire {session} t-1") == "ok"
    assert one.asked("commit before") == "ok"
    one.process.send_signal(signal.SIGSTOP)
    try:

        async def work(store: SqliteStore) -> None:
            deadline = time.monotonic() + 10
            while True:
                try:
                    turn = await begin(store, session, "t-2")
                    break
                except LeaseHeld:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.05)
            one.process.send_signal(signal.SIGCONT)
            assert (await asyncio.to_thread(one.asked, "commit stale")).startswith("lease_lost")
            assert (await asyncio.to_thread(one.asked, "signals")) == "LeaseGone"
            assert (await asyncio.to_thread(one.asked, "release")) == "ok"
            await turn.writer.commit(messages=[Message("user", "mine")])
            assert [m.content for m in await store.messages(session)] == ["before", "mine"]
            assert (await store.session(session)).state == "running"
            await turn.writer.release(state="idle")

        with_store(home, work, timing=QUICK)
    finally:
        one.process.send_signal(signal.SIGCONT)


def test_a_lease_outlives_its_ttl_while_the_event_loop_is_blocked(home: Path, child: Callable[..., Child]) -> None:
    other = child(home, QUICK.ttl_s)
    other.says()
    other.asked("open")

    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        deadline = time.monotonic() + 3 * QUICK.ttl_s
        while time.monotonic() < deadline:  # a tool that never gives the loop a turn
            assert other.asked(f"acquire {made.id} t-2").startswith("lease_held")
        await turn.writer.commit(messages=[Message("user", "still mine")])
        await turn.writer.release(state="idle")

    with_store(home, work, timing=QUICK)


class Machine:
    """Another machine that shares our home: its boot, and a clock that the test moves."""

    def __init__(self, name: str, start: float) -> None:
        self.identity = replace(this_process(), host=name, boot_id=f"boot of {name}", pid=1, started="1")
        self.now = start

    def open(self, home: Path) -> SqliteStore:
        return SqliteStore.open(home, clock=lambda: self.now, identity=self.identity, timing=LeaseTiming(30, 1e9, 0.02))


def test_another_machine_takes_over_after_it_has_seen_the_counter_stand_still_for_the_whole_ttl(home: Path) -> None:
    async def work() -> None:
        a, b = Machine("a", 1_000_000.0), Machine("b", 5.0)
        owner, contender = a.open(home), b.open(home)
        made = await owner.create_session(workspace="/w")
        turn = await begin(owner, made.id)
        writer = turn.writer

        async def refused() -> None:
            with pytest.raises(LeaseHeld, match="host a"):
                await begin(contender, made.id, "t-2")

        await refused()
        b.now += 29
        await refused()
        await asyncio.wrap_future(writer.renew(lambda: a.now))  # type: ignore[attr-defined]
        b.now += 29
        await refused()
        b.now += 29
        await refused()
        assert (await contender.session(made.id)).state == "running"
        b.now += 1
        later = b.open(home)  # another process of the same machine goes on with what was seen
        assert (await later.session(made.id)).state == "failed"
        await (await begin(later, made.id, "t-2")).writer.commit(messages=[Message("user", "taken")])
        with pytest.raises(LeaseLost, match="on b"):
            await writer.commit(messages=[Message("user", "stale")])
        await until(lambda: any(isinstance(s, LeaseGone) for s in turn.signals))
        await writer.release(messages=[Message("user", "stale")], state="idle")
        assert [m.content for m in await later.messages(made.id)] == ["taken"]
        for store in (owner, contender, later):
            await store.close()

    asyncio.run(work())


def test_a_reused_pid_and_a_foreign_pid_namespace(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        me = this_process()
        row = [
            1, "x", "t-0", "kernel", me.host, me.boot_id, os.getpid(), me.pid_namespace, "another start", 0,
            time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)), 30.0,
        ]  # fmt: skip

        def plant(**change: object) -> None:
            with sqlite3.connect(home / "mx-claw.db") as connection:
                values = list(row)
                for index, value in change.items():
                    values[int(index[1:])] = value
                connection.execute(f"INSERT OR REPLACE INTO leases VALUES ({', '.join('?' * 12)})", values)
            connection.close()

        plant()
        await (await begin(store, made.id)).writer.release(state="idle")
        plant(_7="pid:[other]")
        with pytest.raises(LeaseHeld):
            await begin(store, made.id)
        plant(_7="pid:[other]", _10=float(row[10]) - 31)  # type: ignore[arg-type]
        await (await begin(store, made.id)).writer.release(state="idle")

    with_store(home, work)


def test_a_lease_that_cannot_be_written_is_not_won(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        raw = store._writer._connection.raw
        raw.execute("CREATE TRIGGER stop BEFORE INSERT ON leases BEGIN SELECT raise(ABORT, 'read-only'); END")
        with pytest.raises(StoreError):
            await begin(store, made.id)
        assert (await store.session(made.id)).state == "idle"
        raw.execute("DROP TRIGGER stop")
        await (await begin(store, made.id)).writer.release(state="idle")

    with_store(home, work)


def test_a_renewal_that_fails_is_tried_again_before_the_lease_ends(home: Path) -> None:
    timing = LeaseTiming(ttl_s=6, renew_s=0.2, poll_s=0.02)

    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        raw = store._writer._connection.raw

        def counter() -> int:
            with sqlite3.connect(home / "mx-claw.db") as connection:
                found = connection.execute("SELECT counter FROM leases").fetchone()[0]
            connection.close()
            return int(found)

        raw.execute("CREATE TRIGGER stop BEFORE UPDATE ON leases BEGIN SELECT raise(ABORT, 'no'); END")
        before = counter()
        await asyncio.sleep(0.5)
        assert counter() == before
        raw.execute("DROP TRIGGER stop")
        await until(lambda: counter() > before + 2, 3)
        await turn.writer.release(state="idle")

    with_store(home, work, timing=timing)


def test_signals_from_here_and_from_another_process_arrive_within_a_fifth_of_a_second(
    home: Path, child: Callable[..., Child]
) -> None:
    other = child(home)
    other.says()
    other.asked("open")

    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        await turn.writer.commit(request=turn.request("p-1"))
        await turn.writer.commit(request=turn.request("p-2"))
        assert await asyncio.to_thread(other.asked, "answer p-1 cli") == "ok"
        assert await until(lambda: len(turn.signals) == 1) < 0.2
        assert turn.signals == [ApprovalAnswered("p-1", Answer("allow_once"), "cli")]
        await store.answer_approval("p-2", Answer("deny", "no 不"), "user")
        assert await until(lambda: len(turn.signals) == 2) < 0.2
        assert turn.signals[1] == ApprovalAnswered("p-2", Answer("deny", "no 不"), "user")
        assert await asyncio.to_thread(other.asked, f"stop {made.id}") == "True"
        assert await until(lambda: len(turn.signals) == 3) < 0.2
        assert turn.signals[2] == StopRequested("child")
        await store.request_stop(made.id, "again")
        await turn.writer.commit(messages=[Message("user", "x")])
        await turn.writer.release(state="idle")
        assert len(turn.signals) == 3, "each is told once"

    with_store(home, work)


def test_a_stop_request_does_not_reach_the_next_turn(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        assert not await store.request_stop(made.id, "nobody runs")
        turn = await begin(store, made.id, "t-1")
        assert await store.request_stop(made.id, "me")
        await turn.writer.release(state="idle")
        following = await begin(store, made.id, "t-2")
        await asyncio.sleep(0.3)
        assert following.signals == []
        assert not await store.request_stop((await store.create_session(workspace="/w")).id, "me")
        await following.writer.release(state="idle")

    with_store(home, work)


def test_a_listener_that_fails_does_not_cost_the_lease(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")

        def fail(signal: object) -> None:
            raise RuntimeError("listener")

        writer = await store.acquire(made.id, "t-1", on_signal=fail)
        await store.request_stop(made.id, "me")
        await asyncio.sleep(3 * QUICK.ttl_s)
        with pytest.raises(LeaseHeld):
            await begin(store, made.id, "t-2")
        await writer.release(state="idle")

    with_store(home, work, timing=QUICK)


def test_a_listener_that_blocks_does_not_block_the_end_of_the_turn_for_long(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        entered, free = threading.Event(), threading.Event()

        def block(signal: object) -> None:
            entered.set()
            free.wait(10)

        writer = await store.acquire(made.id, "t-1", on_signal=block)
        await store.request_stop(made.id, "me")
        await until(entered.is_set)
        began = time.monotonic()
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.ensure_future(tick())
        await writer.release(state="idle")
        assert time.monotonic() - began < 5 and ticks > 20
        free.set()
        ticking.cancel()

    with_store(home, work)
