"""Messages over spans: dense positions, faithful rows, and a window that is cheap and stable."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxclaw_nb.protocol import Attachment, Message, Role, ToolCall, Window
from mxclaw_nb.storage import SqliteStore

from .conftest import begin, with_store


def test_a_message_comes_back_as_it_was_written(home: Path) -> None:
    written = Message(
        "assistant", "设计\0 \u2028 <b>", turn_id="t-1", tool_calls=(ToolCall("c-1", "x", '{"a": "\\u0000'),),
        reasoning="why", finish_reason="stop", incomplete=True, attachments=(Attachment("a.txt", "文\0"),),
    )  # fmt: skip
    result = Message("tool", "ok", turn_id="t-1", tool_call_id="c-1", name="x", status="interrupted")

    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        await turn.writer.release(messages=[written, result], state="idle")
        first, second = await store.messages(made.id)
        assert (first.position, second.position) == (1, 2)
        for before, after in ((written, first), (result, second)):
            for name in Message.__slots__:
                if name not in ("position", "__weakref__"):
                    assert getattr(after, name) == getattr(before, name), name

    with_store(home, work)


def test_what_utf8_cannot_carry_is_replaced_everywhere(home: Path) -> None:
    bad = "a\ud83d"

    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace=bad, title=bad, notebook=bad, model=bad)
        turn = await begin(store, made.id, bad)
        message = Message(
            "assistant", bad, id=bad, turn_id=bad, tool_calls=(ToolCall(bad, bad, bad),), tool_call_id=bad, name=bad,
            reasoning=bad, finish_reason=bad, attachments=(Attachment(bad, bad),), created_at=bad,
        )  # fmt: skip
        await turn.writer.release(messages=[message], state="idle")
        (stored,) = await store.messages(made.id)
        good = "a\ufffd"
        assert (stored.content, stored.id, stored.reasoning, stored.name) == (good,) * 4
        assert stored.tool_calls == (ToolCall(good, good, good),)
        assert stored.attachments == (Attachment(good, good),)
        assert (await store.search(bad))[0].message_id == good

    with_store(home, work)


def test_two_halves_of_one_character_become_that_character(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        await turn.writer.release(messages=[Message("user", "\ud83c\udf78")], state="idle")
        assert (await store.messages(made.id))[0].content == "\U0001f378"

    with_store(home, work)


async def window_of(store: SqliteStore, roles: list[Role], limit: int) -> Window:
    made = await store.create_session(workspace="/w")
    turn = await begin(store, made.id)
    await turn.writer.release(messages=[Message(role, str(i)) for i, role in enumerate(roles, 1)], state="idle")
    return await store.window(made.id, limit=limit)


def check_window(window: Window, roles: list[Role], limit: int) -> None:
    positions = [message.position for message in window.messages]
    head = [p for p in positions if roles[p - 1] == "system"][:1] if "system" in roles else []
    assert not head or head[0] == roles.index("system") + 1
    tail = positions[len(head) :]
    assert tail == list(range(len(roles) - len(tail) + 1, len(roles) + 1))
    assert window.omitted + len(positions) == len(roles)
    assert len(tail) <= 2 * limit + 1
    if window.omitted and roles[tail[0] - 1] == "tool":
        assert set(roles[tail[0] - 1 :]) == {"tool"}, (
            "a result is torn from its call only if all that is new are results"
        )


TURNS = st.lists(st.lists(st.sampled_from(["assistant", "tool"]), max_size=12), max_size=12)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=TURNS, limit=st.integers(1, 30))
def test_a_window_is_the_system_message_and_the_newest_messages(
    tmp_path_factory: pytest.TempPathFactory, turns: list[list[Role]], limit: int
) -> None:
    roles: list[Role] = ["system"]
    for turn in turns:
        roles += ["user", *turn]

    async def work(store: SqliteStore) -> None:
        window = await window_of(store, roles, limit)
        check_window(window, roles, limit)
        if max(map(len, turns), default=0) < limit // 4:
            assert len(window.messages) <= limit + 1
            assert not window.omitted or window.messages[1].role == "user"

    with_store(tmp_path_factory.mktemp("window") / "home", work)


def test_the_start_of_a_window_moves_rarely_and_stays_at_a_user_message(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        starts = []
        for number in range(120):
            turn = await begin(store, made.id, f"t-{number}")
            messages = [Message("user", "u"), Message("assistant", ""), Message("tool", "r"), Message("assistant", "a")]
            if not number:
                messages.insert(0, Message("system", "s"))
            await turn.writer.release(messages=messages, state="idle")
            window = await store.window(made.id, limit=40)
            assert window.messages[0].role == "system"
            assert len(window.messages) <= 41
            assert window.messages[1].role == "user"
            starts.append(window.messages[1].position)
        assert starts == sorted(starts)
        assert len(set(starts)) <= 120 * 4 // 20 + 1, "the prefix of the prompt moved too often"

    with_store(home, work)


def test_a_long_turn_is_not_torn_from_its_question(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        roles: list[Role] = ["system", "user", "assistant", "user"] + ["assistant", "tool"] * 25 + ["user"]
        window = await window_of(store, roles, 40)
        assert [m.position for m in window.messages[:2]] == [1, 4]
        endless: list[Role] = ["user"] + ["assistant", "tool"] * 200
        window = await window_of(store, endless, 40)
        assert len(window.messages) <= 41 and window.messages[0].role == "assistant"

    with_store(home, work)


def test_a_window_of_a_fork_reaches_over_the_shared_rows(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        said = [Message("system", "s"), *(Message("user", str(i)) for i in range(50))]
        await turn.writer.release(messages=said, state="idle")
        fork = await store.fork_session(made.id)
        turn = await begin(store, fork.id)
        await turn.writer.release(messages=[Message("user", "last")], state="idle")
        await store.delete_session(made.id)
        window = await store.window(fork.id, limit=20)
        assert window.messages[0].role == "system" and window.messages[-1].content == "last"
        assert window.omitted + len(window.messages) == 52

    with_store(home, work)


def test_opening_a_long_session_reads_a_window_and_not_the_history(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        for _ in range(5):
            said = [Message(("user", "assistant")[i % 2], "a few words of text") for i in range(5_000)]
            await turn.writer.commit(messages=said)
        await turn.writer.release(state="idle")

        async def seconds(limit: int | None) -> float:
            began = time.perf_counter()
            await (store.messages(made.id) if limit is None else store.window(made.id, limit=limit))
            return time.perf_counter() - began

        everything = min([await seconds(None) for _ in range(3)])
        window = min([await seconds(200) for _ in range(10)])
        assert window < everything / 40, f"{window:.4f} s of {everything:.3f} s for 0.8 % of the messages"

    with_store(home, work)
