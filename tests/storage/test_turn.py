"""The turn's writer: numbers, batches, commits, and what a watcher in another connection sees."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from mxclaw_nb.protocol import (
    Event,
    LeaseLost,
    Message,
    MessageCompleted,
    MessageDelta,
    StoreError,
    ToolCompleted,
    ToolOutput,
    TurnCompleted,
    TurnStarted,
    UsageEvent,
    event_to_json,
)
from mxclaw_nb.storage import SqliteStore
from mxclaw_nb.storage import turn as turn_module

from .conftest import Turn, begin, until, with_store


def delta(turn: Turn, text: str = "x", message: str = "m-1") -> Event:
    return turn.event(MessageDelta, message_id=message, delta=text)


async def stored(store: SqliteStore, turn: Turn, after: int = 0) -> list[Event]:
    return list(await store.events(turn.writer.session_id, after=after, limit=100_000))


async def started(store: SqliteStore) -> Turn:
    made = await store.create_session(workspace="/w")
    return await begin(store, made.id)


def test_appended_events_are_visible_within_a_batch_and_in_order(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        events = [delta(turn, str(i)) for i in range(1000)]
        for event in events:
            turn.writer.append(event)
        began = time.monotonic()
        while len(await stored(store, turn)) < 1000:
            assert time.monotonic() - began < 5
        assert await stored(store, turn) == events
        assert await store.events(turn.writer.session_id, after=events[499].sequence, limit=3) == tuple(events[500:503])

    with_store(home, work)


def test_a_commit_takes_along_what_was_appended_before(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        events = [delta(turn) for _ in range(10)]
        for event in reversed(events):
            turn.writer.append(event)
        last = turn.event(MessageCompleted, message_id="m-1", text="x" * 10)
        await turn.writer.commit(events=[last])
        assert await stored(store, turn) == [*events, last]

    with_store(home, work)


def test_an_event_that_comes_after_a_higher_number_is_not_missed_by_a_watcher(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        early, late = delta(turn, "early"), delta(turn, "late")
        await turn.writer.commit(events=[late])
        seen = await stored(store, turn)
        turn.writer.append(early)
        await turn.writer.commit()
        more = await stored(store, turn, after=seen[-1].sequence)
        assert [getattr(event, "delta", "") for event in [*seen, *more]] == ["late", "early"]
        assert more[0].sequence > seen[-1].sequence
        following = delta(turn)
        await turn.writer.commit(events=[following])
        assert (await stored(store, turn, after=more[0].sequence)) == [following]

    with_store(home, work)


def test_an_event_given_twice_is_stored_once(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        event = turn.event(ToolCompleted, call_id="c", name="x", status="ok", result="")
        request = turn.request("p-1")
        turn.writer.append(event)
        turn.writer.append(request)
        await turn.writer.commit(events=[event])
        await turn.writer.commit(events=[event], request=request)
        assert await stored(store, turn) == [event, request]
        another = turn.request("p-2")
        await turn.writer.commit(request=another)
        assert await stored(store, turn) == [event, request, another]

    with_store(home, work)


def test_two_watchers_and_one_that_comes_late_all_see_every_event_once(home: Path) -> None:
    total = 1500

    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        other = SqliteStore.open(home)

        async def watch() -> list[int]:
            seen: list[int] = []
            while len(seen) < total:
                events = await other.events(turn.writer.session_id, after=seen[-1] if seen else 0, limit=97)
                seen.extend(event.sequence for event in events)
                await asyncio.sleep(0.001)
            return seen

        async def produce() -> list[int]:
            numbers = []
            for i in range(total):
                event = delta(turn) if i % 50 else turn.event(UsageEvent, input_tokens=1, output_tokens=1)
                numbers.append(event.sequence)
                if i % 50:
                    turn.writer.append(event)
                else:
                    await turn.writer.commit(events=[event])
                if i % 7 == 0:
                    await asyncio.sleep(0)
            return numbers

        numbers, first, second = await asyncio.wait_for(asyncio.gather(produce(), watch(), watch()), 60)
        assert first == second == numbers
        assert await asyncio.wait_for(watch(), 20) == numbers
        await other.close()

    with_store(home, work)


def test_numbers_rise_over_blocks_turns_and_threads_and_are_never_given_twice(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        taken: list[list[int]] = [[], [], []]

        def take(mine: list[int]) -> None:
            mine.extend(turn.writer.next_sequence() for _ in range(1500))

        threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
        for thread in threads:
            thread.start()
        await until(lambda: not any(thread.is_alive() for thread in threads), 30)
        numbers = sorted(number for mine in taken for number in mine)
        assert all(mine == sorted(mine) for mine in taken)
        assert len(set(numbers)) == 4500
        await turn.writer.release(state="idle")
        again = await begin(store, turn.writer.session_id, "t-2")
        assert again.writer.next_sequence() > numbers[-1]

    with_store(home, work)


def test_numbers_are_durable_before_they_are_given(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        for _ in range(2500):
            number = turn.writer.next_sequence()
        with sqlite3.connect(home / "mx-claw.db") as connection:
            assert connection.execute("SELECT max(reserved_sequence) FROM sessions").fetchone()[0] >= number
        connection.close()

    with_store(home, work)


def test_a_burst_waits_for_few_blocks_of_numbers(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    reserve = turn_module.reserve_block

    def counted(connection: sqlite3.Connection, session: int, size: int) -> int:
        sizes.append(size)
        return reserve(connection, session, size)

    monkeypatch.setattr(turn_module, "reserve_block", counted)

    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        numbers = [turn.writer.next_sequence() for _ in range(60_000)]
        assert all(earlier < later for earlier, later in pairwise(numbers))
        assert sizes[:4] == [2_000, 4_000, 8_000, 16_000]
        assert len(sizes) <= 7
        assert max(sizes) == turn_module.LARGEST_BLOCK

    with_store(home, work)


def test_deltas_go_when_the_turn_ends_but_those_of_an_unfinished_message_stay(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        begun = turn.event(TurnStarted, input="", model="p/m", mode="ask")
        done = [delta(turn, "a"), turn.event(ToolOutput, call_id="c-1", delta="out")]
        broken = [delta(turn, "half", "m-2"), turn.event(ToolOutput, call_id="c-2", delta="half")]
        for event in (begun, *done, *broken):
            turn.writer.append(event)
        completed = turn.event(MessageCompleted, message_id="m-1", text="a")
        result = turn.event(ToolCompleted, call_id="c-1", name="x", status="ok", result="out")
        await turn.writer.commit(events=[completed, result])
        assert len(await stored(store, turn)) == 7, "nothing is dropped under the eyes of who watches the running turn"
        end = turn.event(TurnCompleted, text="a")
        await turn.writer.release(events=[end], state="idle")
        assert await stored(store, turn) == [begun, *broken, completed, result, end]

    with_store(home, work)


def test_a_turns_events_are_its_own(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        ends = []
        for name in ("t-1", "t-2", "t-3"):
            turn = await begin(store, made.id, name)
            ends.append(turn.event(TurnCompleted, text=name))
            await turn.writer.release(events=ends[-1:], state="idle")
        await (await begin(store, made.id, "t-4")).writer.release(state="idle")
        assert await store.events(made.id, turn_id="t-2") == (ends[1],)
        assert await store.events(made.id, turn_id="t-2", after=ends[1].sequence) == ()
        assert await store.events(made.id, turn_id="t-9") == ()
        assert await store.last_turn_id(made.id) == "t-3"

    with_store(home, work)


def test_a_finished_call_is_known_until_its_message_is_stored(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        first = turn.event(ToolCompleted, call_id="c-1", name="x", status="ok", result="one", exit_code=0)
        second = turn.event(ToolCompleted, call_id="c-2", name="x", status="error", result="two")
        await turn.writer.commit(events=[first, second])
        known = await store.finished_calls(turn.writer.session_id)
        assert known == {("t-1", "c-1"): first, ("t-1", "c-2"): second}
        await turn.writer.commit(messages=[Message("tool", "one", turn_id="t-1", tool_call_id="c-1")])
        assert set(await store.finished_calls(turn.writer.session_id)) == {("t-1", "c-2")}
        third = turn.event(ToolCompleted, call_id="c-3", name="x", status="ok", result="three")
        await turn.writer.release(
            messages=[Message("tool", "three", turn_id="t-1", tool_call_id="c-3")], events=[third], state="idle"
        )
        assert set(await store.finished_calls(turn.writer.session_id)) == {("t-1", "c-2")}

    with_store(home, work)


def test_half_of_a_surrogate_pair_in_an_event_is_replaced_and_nul_survives(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        turn.writer.append(delta(turn, "a\ud83d\0b"))
        bad = turn.event(ToolCompleted, call_id="c\udc00", name="x", status="ok", result="r\ud83d")
        await turn.writer.commit(events=[bad], grant="g\ud83d")
        first, second = await stored(store, turn)
        assert isinstance(first, MessageDelta) and first.delta == "a\ufffd\0b"
        assert isinstance(second, ToolCompleted) and second.result == "r\ufffd"
        assert event_to_json(second)
        assert ("t-1", "c\ufffd") in await store.finished_calls(turn.writer.session_id)
        assert await store.grants(turn.writer.session_id) == frozenset({"g\ufffd"})
        turn.writer.append(delta(turn, "goes on"))
        await turn.writer.commit()
        assert len(await stored(store, turn)) == 3

    with_store(home, work)


def test_after_its_release_a_turn_writes_nothing(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        event = delta(turn)
        await turn.writer.release(state="idle")
        turn.writer.append(event)
        with pytest.raises(LeaseLost):
            await turn.writer.commit(messages=[Message("user", "late")])
        await turn.writer.release(messages=[Message("user", "late")], state="failed")
        session = await store.session(turn.writer.session_id)
        assert (session.state, session.message_count) == ("idle", 0)
        assert await stored(store, turn) == []

    with_store(home, work)


def test_a_commit_that_is_cancelled_has_happened_when_the_cancel_arrives(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        for number in range(20):
            task = asyncio.ensure_future(turn.writer.commit(messages=[Message("user", str(number))]))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(await store.messages(turn.writer.session_id)) == number + 1

    with_store(home, work)


def test_a_cancelled_acquire_leaves_no_lease(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        for _ in range(10):
            task = asyncio.ensure_future(store.acquire(made.id, "t-1", on_signal=lambda signal: None))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await store.session(made.id)).state == "idle"

    with_store(home, work)


def test_appending_is_cheap(home: Path) -> None:
    """The whole cost of an event: the caller's, and the writer thread's for encoding and storing it."""

    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        costs = []
        for _ in range(5):
            events = [delta(turn, "token ") for _ in range(4000)]
            before, mine = time.process_time(), time.thread_time()
            for event in events:
                turn.writer.append(event)
            append = (time.thread_time() - mine) / len(events)
            await turn.writer.commit()
            costs.append((append, (time.process_time() - before) / len(events)))
        assert min(cost[0] for cost in costs) < 5e-6
        assert min(cost[1] for cost in costs) < 2e-5

    with_store(home, work)


def test_a_full_disk_fails_the_commit_whole_and_the_next_one_succeeds(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        raw = store._writer._connection.raw
        pages = raw.execute("PRAGMA page_count").fetchone()[0]
        raw.execute(f"PRAGMA max_page_count = {pages + 3}")
        appended = delta(turn, "appended before")
        turn.writer.append(appended)
        with pytest.raises(StoreError, match="full"):
            await turn.writer.commit(messages=[Message("user", "first"), Message("user", "x" * 100_000)])
        assert await store.messages(turn.writer.session_id) == ()
        assert await store.search("first") == []
        raw.execute("PRAGMA max_page_count = 1000000")
        await turn.writer.commit(messages=[Message("user", "second")])
        assert [m.content for m in await store.messages(turn.writer.session_id)] == ["second"]
        assert await stored(store, turn) == [appended], "what was appended survives the failed commit"
        await turn.writer.release(state="idle")

    with_store(home, work)


def test_a_turn_that_ends_on_a_full_disk_can_be_followed_by_another(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        raw = store._writer._connection.raw
        pages = raw.execute("PRAGMA page_count").fetchone()[0]
        raw.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="full"):
            await turn.writer.release(messages=[Message("user", "x" * 100_000)], state="idle")
        raw.execute("PRAGMA max_page_count = 1000000")
        assert (await store.session(turn.writer.session_id)).state == "failed"
        again = await begin(store, turn.writer.session_id, "t-2")
        await again.writer.release(messages=[Message("user", "works")], state="idle")

    with_store(home, work)


def test_events_wait_in_memory_while_the_disk_refuses_them(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        turn = await started(store)
        raw = store._writer._connection.raw
        raw.execute("CREATE TRIGGER stop BEFORE INSERT ON events BEGIN SELECT raise(ABORT, 'no'); END")
        events = [delta(turn, str(i)) for i in range(10)]
        for event in events:
            turn.writer.append(event)
            await asyncio.sleep(0.01)
        with pytest.raises(StoreError):
            await turn.writer.commit()
        raw.execute("DROP TRIGGER stop")
        began = time.monotonic()
        while len(await stored(store, turn)) < 10:
            assert time.monotonic() - began < 5, "the batch was not tried again"
            await asyncio.sleep(0.02)
        assert await stored(store, turn) == events

    with_store(home, work)
