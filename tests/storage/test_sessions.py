"""Sessions: made, found, listed, changed, shared, removed."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from mxclaw_nb.protocol import (
    LeaseHeld,
    Message,
    NotFound,
    Session,
    SessionChanges,
    ToolCompleted,
    TurnStarted,
    UsageError,
    UsageEvent,
)
from mxclaw_nb.storage import SqliteStore

from .conftest import begin, until, with_store


async def say(store: SqliteStore, session: Session, *texts: str, turn_id: str = "t-1") -> None:
    turn = await begin(store, session.id, turn_id)
    messages = [Message(("user", "assistant")[i % 2], text, turn_id=turn_id) for i, text in enumerate(texts)]
    started = turn.event(TurnStarted, input=texts[0], model="p/m", mode="ask")
    await turn.writer.release(messages=messages, events=[started], state="idle")


async def texts_of(store: SqliteStore, session: Session) -> list[str]:
    messages = await store.messages(session.id)
    assert [message.position for message in messages] == list(range(1, len(messages) + 1))
    return [message.content for message in messages]


def rows(home: Path, table: str) -> int:
    with sqlite3.connect(home / "mx-claw.db") as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_a_new_session_is_empty_and_idle(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w", model="p/m", mode="plan", title="设计", notebook="a.ipynb")
        assert made == await store.session(made.id)
        assert (made.title, made.model, made.mode, made.workspace) == ("设计", "p/m", "plan", "/w")
        assert (made.state, made.message_count, made.cost) == ("idle", 0, 0.0)
        assert await store.messages(made.id) == ()
        assert await store.last_turn_id(made.id) is None

    with_store(home, work)


def test_a_session_is_found_by_a_unique_prefix_with_or_without_its_kind(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        for _ in range(20):
            await store.create_session(workspace="/w")
        assert (await store.session(made.id[:9])).id == made.id
        assert (await store.session(made.id[2:9])).id == made.id
        with pytest.raises(UsageError, match="fits several"):
            await store.session("s-")

    with_store(home, work)


@pytest.mark.parametrize("text", ["nonsense", "", "%", "_", "s-zz", "\ud83d", "\0", "' OR 1=1 --", "设计"])
def test_an_unknown_session_is_not_found_and_the_nearest_is_named(home: Path, text: str) -> None:
    async def work(store: SqliteStore) -> None:
        with pytest.raises(NotFound, match="none yet"):
            await store.session(text)
        made = await store.create_session(workspace="/w")
        with pytest.raises(NotFound, match=made.id):
            await store.session(text)
        for ask in (store.messages, store.events, store.grants, store.finished_calls, store.delete_session):
            with pytest.raises(NotFound):
                await ask(text)

    with_store(home, work)


def test_a_session_with_one_letter_wrong_is_named(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = [await store.create_session(workspace="/w") for _ in range(5)]
        wrong = made[2].id[:-1] + "x"
        with pytest.raises(NotFound, match=f"nearest are {made[2].id}"):
            await store.session(wrong)

    with_store(home, work)


def test_the_session_used_last_comes_first_even_within_one_millisecond(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = [await store.create_session(workspace="/w") for _ in range(5)]
        assert [s.id for s in await store.sessions()] == [s.id for s in reversed(made)]
        await say(store, made[1], "hello")
        await store.update_session(made[3].id, SessionChanges(title="new"))
        assert [s.id for s in await store.sessions(limit=2)] == [made[3].id, made[1].id]

    with_store(home, work)


def test_a_notebook_gets_the_session_that_it_used_last(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        assert await store.session_for_notebook("a") is None
        first = await store.create_session(workspace="/w", notebook="a")
        second = await store.create_session(workspace="/w", notebook="a")
        await store.create_session(workspace="/w", notebook="b")
        found = await store.session_for_notebook("a")
        assert found and found.id == second.id
        await store.update_session(first.id, SessionChanges(notebook="a"))
        found = await store.session_for_notebook("a")
        assert found and found.id == first.id

    with_store(home, work)


def test_only_what_is_given_is_changed(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w", title="old", model="p/m")
        changed = await store.update_session(made.id, SessionChanges(title="a \ud83d b", mode="allow-all"))
        assert (changed.title, changed.mode, changed.model) == ("a \ufffd b", "allow-all", "p/m")
        assert changed == await store.session(made.id)

    with_store(home, work)


def test_a_fork_shares_the_rows_and_then_goes_its_own_way(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        parent = await store.create_session(workspace="/w", title="parent", model="p/m", mode="plan", notebook="n")
        await say(store, parent, "a", "b")
        fork = await store.fork_session(parent.id)
        assert (fork.title, fork.model, fork.mode, fork.notebook) == ("parent (fork)", "p/m", "plan", None)
        assert (fork.message_count, fork.input_tokens) == (2, 0)
        assert rows(home, "messages") == 2
        await say(store, parent, "parent only")
        await say(store, fork, "fork only", "x")
        grandchild = await store.fork_session(fork.id, title="third")
        await say(store, fork, "later")
        await say(store, grandchild, "mine")
        assert await texts_of(store, parent) == ["a", "b", "parent only"]
        assert await texts_of(store, fork) == ["a", "b", "fork only", "x", "later"]
        assert await texts_of(store, grandchild) == ["a", "b", "fork only", "x", "mine"]
        assert [m.content for m in await store.messages(grandchild.id, after=1, limit=3)] == ["b", "fork only", "x"]
        assert rows(home, "messages") == 7
        assert await store.events(grandchild.id) != await store.events(fork.id)

    with_store(home, work)


def test_deleting_a_parent_keeps_what_forks_show_and_the_last_one_frees_everything(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        parent = await store.create_session(workspace="/w")
        await say(store, parent, "shared 设计", "b")
        fork = await store.fork_session(parent.id)
        grandchild = await store.fork_session(fork.id)
        await say(store, parent, "only of the parent")
        for session in (parent, fork):
            (home / "outputs" / session.id).mkdir(parents=True)
            (home / "outputs" / session.id / "o.txt").write_text("long")
        await store.delete_session(parent.id)
        with pytest.raises(NotFound):
            await store.session(parent.id)
        assert await texts_of(store, fork) == ["shared 设计", "b"]
        assert rows(home, "messages") == 2
        assert {hit.session_id for hit in await store.search("设计")} <= {fork.id, grandchild.id}
        assert len(await store.search("设计")) == 1
        assert await store.search("parent") == []
        assert (home / "outputs" / parent.id).exists(), "its outputs are still shown by the forks"
        await store.delete_session(fork.id)
        assert not (home / "outputs" / fork.id).exists()
        assert await texts_of(store, grandchild) == ["shared 设计", "b"]
        await store.delete_session(grandchild.id)
        assert not (home / "outputs" / parent.id).exists()
        assert await store.search("设计") == []
        for table in ("messages", "spans", "events", "departed", "turns", "message_index_docsize", "approvals"):
            try:
                assert rows(home, table) == 0, table
            except sqlite3.OperationalError:
                assert table == "message_index_docsize"  # an index without sizes has no such table

    with_store(home, work)


def test_outputs_that_are_a_link_are_not_followed(home: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep")

    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        (home / "outputs").mkdir()
        os.symlink(precious, home / "outputs" / made.id)
        await store.delete_session(made.id)
        assert made.id not in {path.name for path in (home / "outputs").iterdir()}

    with_store(home, work)
    assert (precious / "file").read_text() == "keep"


def test_a_running_session_is_not_deleted(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        with pytest.raises(LeaseHeld, match="pid"):
            await store.delete_session(made.id)
        await turn.writer.commit(messages=[Message("user", "still here")])
        await turn.writer.release(state="idle")
        await store.delete_session(made.id)

    with_store(home, work)


def test_a_removal_that_was_interrupted_goes_on_at_the_next_start(home: Path) -> None:
    async def prepare(store: SqliteStore) -> str:
        made = await store.create_session(workspace="/w")
        await say(store, made, "a", "b")
        await store.create_session(workspace="/w")
        return made.id

    gone = with_store(home, prepare)
    (home / "outputs" / gone).mkdir(parents=True)
    with sqlite3.connect(home / "mx-claw.db") as connection:  # as if the program had ended after the first step
        connection.execute("INSERT INTO departed SELECT no, id FROM sessions WHERE id = ?", (gone,))
        connection.execute("DELETE FROM spans WHERE session = (SELECT no FROM departed)")
        connection.execute("DELETE FROM sessions WHERE id = ?", (gone,))
    connection.close()

    async def work(store: SqliteStore) -> None:
        await until(lambda: rows(home, "departed") == 0)
        assert rows(home, "messages") == rows(home, "events") == 0

    with_store(home, work)
    assert not (home / "outputs" / gone).exists()


def test_a_fork_knows_the_finished_calls_of_its_parent(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        done = turn.event(ToolCompleted, call_id="c-1", name="x", status="ok", result="42")
        await turn.writer.commit(messages=[Message("user", "a"), Message("assistant", "")], events=[done])
        fork = await store.fork_session(made.id)
        await turn.writer.release(state="idle")
        assert (await store.finished_calls(fork.id))["t-1", "c-1"].result == "42"

    with_store(home, work)


def test_usage_is_added_once_and_an_unknown_price_stays_unknown(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        first = turn.event(UsageEvent, input_tokens=10, output_tokens=5, cached_tokens=4, cost=0.25)
        turn.writer.append(first)
        await turn.writer.commit(events=[first])
        session = await store.session(made.id)
        assert (session.input_tokens, session.output_tokens, session.cached_tokens) == (10, 5, 4)
        assert session.cost == 0.25
        await turn.writer.commit(events=[first, turn.event(UsageEvent, input_tokens=1, output_tokens=1)])
        await turn.writer.release(
            events=[turn.event(UsageEvent, input_tokens=1, output_tokens=1, cost=1.0)], state="idle"
        )
        session = await store.session(made.id)
        assert (session.input_tokens, session.cost) == (12, None)
        assert rows(home, "usage") == 3

    with_store(home, work)
