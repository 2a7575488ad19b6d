"""Approvals: opened once, answered once, gone with their turn."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from mxclaw_nb.protocol import AlreadyAnswered, Answer, NotFound, UsageError
from mxclaw_nb.storage import SqliteStore

from .conftest import Child, begin, with_store


def test_a_pending_approval_is_seen_whole_by_whoever_comes_later(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        await turn.writer.commit(request=turn.request("p-abc", ("allow_once", "deny")))
        (approval,) = await store.pending_approvals(made.id)
        assert approval == await store.approval("p-abc") == await store.approval("p-a") == await store.approval("abc")
        assert (approval.session_id, approval.turn_id, approval.call_id) == (made.id, "t-1", "c-1")
        assert (approval.detail_kind, approval.detail) == ("command", "make")
        assert (approval.choices, approval.answer, approval.by) == (("allow_once", "deny"), None, None)
        other = await store.create_session(workspace="/w")
        assert await store.pending_approvals(other.id) == ()
        assert [event.type for event in await store.events(made.id)] == ["permission.requested"]
        await turn.writer.release(state="idle")

    with_store(home, work)


def test_the_first_answer_counts_and_the_second_is_told_whose_it_was(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        await turn.writer.commit(request=turn.request("p-1"))
        answered = await store.answer_approval("p-1", Answer("deny", "use uv \ud83d"), "cli")
        assert (answered.answer, answered.by) == (Answer("deny", "use uv \ufffd"), "cli")
        with pytest.raises(AlreadyAnswered, match="deny, by cli"):
            await store.answer_approval("p-1", Answer("allow_once"), "user")
        row = await turn.writer.resolve("p-1", Answer("deny"), "timeout")
        assert row.by == "cli"
        assert await store.pending_approvals() == ()
        await turn.writer.release(state="idle")

    with_store(home, work)
    with sqlite3.connect(home / "mx-claw.db") as connection:
        audit = connection.execute("SELECT answered_by, accepted FROM approval_audit ORDER BY no").fetchall()
    connection.close()
    assert audit == [("cli", 1), ("user", 0), ("timeout", 0)]


def test_of_many_answers_at_once_from_two_processes_one_counts(home: Path, child: Callable[..., Child]) -> None:
    others = [child(home), child(home)]
    for other in others:
        other.says()
        other.asked("open")

    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        for number in range(10):
            await turn.writer.commit(request=turn.request(f"p-{number}"))
            for other in others:
                other.told(f"answer p-{number} {other.process.pid}")
            answers = [await asyncio.to_thread(other.says) for other in others]
            assert sorted(answer.split()[0] for answer in answers) == ["already_answered", "ok"]
        await turn.writer.release(state="idle")

    with_store(home, work)


def test_the_turn_answers_its_own_approval_when_nobody_did(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        await turn.writer.commit(request=turn.request("p-1"))
        row = await turn.writer.resolve("p-1", Answer("deny"), "timeout")
        assert (row.answer, row.by) == (Answer("deny"), "timeout")
        with pytest.raises(AlreadyAnswered, match="timeout"):
            await store.answer_approval("p-1", Answer("allow_once"), "user")
        await turn.writer.release(state="idle")

    with_store(home, work)


def test_what_waits_when_the_turn_ends_is_cancelled(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        await turn.writer.commit(request=turn.request("p-1"))
        await turn.writer.release(state="idle")
        approval = await store.approval("p-1")
        assert (approval.answer, approval.by) == (Answer("deny"), "cancelled")
        with pytest.raises(AlreadyAnswered, match="cancelled"):
            await store.answer_approval("p-1", Answer("allow_once"), "user")
        assert turn.signals == []

    with_store(home, work)


def test_an_answer_that_is_not_offered_is_refused_and_changes_nothing(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        await turn.writer.commit(request=turn.request("p-1", ("allow_once", "deny")))
        with pytest.raises(UsageError, match="allow_once, deny"):
            await store.answer_approval("p-1", Answer("allow_session"), "user")
        assert len(await store.pending_approvals()) == 1
        await turn.writer.release(state="idle")

    with_store(home, work)


def test_an_unknown_or_ambiguous_approval_is_said_to_be_so(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        for name in ("p-aa", "p-ab"):
            await turn.writer.commit(request=turn.request(name))
        for text in ("p-x", "", "\ud83d", "\0"):
            with pytest.raises(NotFound):
                await store.approval(text)
            with pytest.raises(NotFound):
                await store.answer_approval(text, Answer("deny"), "me")
        with pytest.raises(UsageError, match="p-aa, p-ab"):
            await store.approval("p-a")
        await turn.writer.release(state="idle")

    with_store(home, work)


def test_a_grant_holds_for_its_session_only(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        await turn.writer.commit(grant="run_command:make")
        await turn.writer.commit(grant="run_command:make")
        await turn.writer.release(state="idle")
        assert await store.grants(made.id) == frozenset({"run_command:make"})
        assert await store.grants((await store.fork_session(made.id)).id) == frozenset()

    with_store(home, work)
