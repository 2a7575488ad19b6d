"""Full-text search in any language, with any text as the query."""

from __future__ import annotations

import random
import sqlite3
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxclaw_nb.protocol import Message, Role
from mxclaw_nb.storage import SqliteStore
from mxclaw_nb.storage.text import excerpt, match_expression
from mxclaw_nb.text import encodable

from .conftest import begin, with_store

SAID: list[tuple[Role, str]] = [
    ("system", "hidden words of the system"),
    ("user", "帮我设计一个数据库的模式,用 pandas 读取"),
    ("assistant", "Running pytest -x in a-b mode: 测试通过了"),
    ("tool", "日本語のテスト 한국어시험 ภาษาไทย café naïve x_y foo.bar"),
    ("assistant", 'Ｐｙｔｈｏｎ full width, NEAR( misses "quotes" and 100% of * stars'),
]


@pytest.mark.parametrize(
    ("query", "positions"),
    [
        ("设计", [2]), ("计设", []), ("数据库", [2]), ("设计 模式", [2]), ("设计 通过", []), ("测", [3]),
        ("pandas", [2]), ("PANDAS", [2]), ("用pandas", [2]), ("panda", []), ("pytest", [3]), ("a-b", [3]),
        ("テスト", [4]), ("日本", [4]), ("한국", [4]), ("ไทย", [4]), ("cafe", [4]), ("naïve", [4]), ("foo.bar", [4]),
        ("x_y", [4]), ("python", [5]), ("NEAR(", [5]), ('"quotes"', [5]), ('"', []), ("*", []), ("", []), ("   ", []),
        ("hidden", []), ("AND", [5]), ("OR NOT", []), ("text:full", []), ("full*", [5]), ("^full", [5]),
        ("100%", [5]), ("-x", [3, 4]), ("\0", []), ("\ud83d", []), ("'; DROP TABLE messages; --", []), ("{a b}: c", []),
        ("full " * 500, [5]), ("设" * 3000, []), ("(" * 5000, []),
    ],
)  # fmt: skip
def test_a_query_finds_the_messages_that_hold_its_words(home: Path, query: str, positions: list[int]) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w", title="title")
        turn = await begin(store, made.id)
        await turn.writer.release(messages=[Message(role, text) for role, text in SAID], state="idle")
        found = {hit.message_id for hit in await store.search(query)}
        wanted = {message.id for message in await store.messages(made.id) if message.position in positions}
        assert found == wanted

    with_store(home, work)


@given(st.text())
def test_any_text_is_a_valid_query(text: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5 (text, tokenize='unicode61 remove_diacritics 2')")
    expression = match_expression(text)
    if expression is not None:
        connection.execute("SELECT rowid FROM t WHERE t MATCH ?", (expression,)).fetchall()
    connection.close()


def test_the_newest_hits_come_first_and_no_more_than_asked_for(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        messages = [Message("user", f"word number {i}") for i in range(30)]
        await turn.writer.release(messages=messages, state="idle")
        hits = await store.search("word", limit=5)
        assert [hit.message_id for hit in hits] == [message.id for message in messages[:-6:-1]]
        assert await store.search("word", limit=0) == []

    with_store(home, work)


def columns(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def test_an_excerpt_shows_the_match_in_its_surroundings() -> None:
    text = "很长的开头。" * 100 + "我们的设计很好。" + "然后是很长的结尾。" * 100
    shown = excerpt(text, "设计")
    assert "设计" in shown and shown.startswith("…") and shown.endswith("…")
    assert columns(shown) <= 160


def test_an_excerpt_of_words_is_cut_between_them() -> None:
    text = "alpha beta gamma delta " * 50 + "needle " + "epsilon zeta eta theta " * 50
    shown = excerpt(text, "needle")
    assert "needle" in shown
    assert set(shown.strip("…").split()) <= {
        "alpha",
        "beta",
        "gamma",
        "delta",
        "needle",
        "epsilon",
        "zeta",
        "eta",
        "theta",
    }


@given(st.text(), st.text(max_size=8))
def test_an_excerpt_is_one_line_of_bounded_width_taken_from_the_text(text: str, query: str) -> None:
    shown = excerpt(encodable(text), query)
    assert columns(shown) <= 160
    assert not any(c in shown for c in "\n\r\0")


@pytest.mark.parametrize(
    "cluster", ["e\u0301\u0302", "\U0001f469\u200d\U0001f52c", "\U0001f44d\U0001f3fd", "\U0001f1e8\U0001f1f3"]
)
def test_an_excerpt_does_not_cut_a_character_from_its_marks(cluster: str) -> None:
    shown = excerpt(cluster * 400, "nothing")
    assert shown.endswith("…")
    assert shown[:-1] == cluster * (len(shown[:-1]) // len(cluster))


ENGLISH = "the agent reads a file and then runs the tests again because one of them failed".split()  # noqa: SIM905
CHINESE = "会话存储在数据库中每一条消息都有自己的位置模型读取窗口而不是全部历史记录"


@pytest.mark.parametrize("kind", ["english", "chinese", "numbers"])
def test_the_index_stays_under_half_of_the_database(home: Path, kind: str) -> None:
    dice = random.Random(1)

    def text(_: int) -> str:
        if kind == "chinese":
            return "".join(dice.choice(CHINESE) for _ in range(150)) + "。"
        if kind == "english":
            return " ".join(dice.choice(ENGLISH) + dice.choice(["", "s", "ing"]) for _ in range(80))
        return " ".join(f"{dice.random():.4f}" for _ in range(60))

    async def work(store: SqliteStore) -> None:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        for _ in range(200):  # in small commits, as they come
            await turn.writer.commit(messages=[Message("user", text(0)), Message("assistant", text(1))])
        await turn.writer.commit(messages=[Message("user", text(i)) for i in range(3000)])
        await turn.writer.release(state="idle")

    with_store(home, work)
    with sqlite3.connect(home / "mx-claw.db") as connection:
        query = "SELECT sum(pgsize) FROM dbstat"
        try:
            total = connection.execute(query).fetchone()[0]
        except sqlite3.OperationalError:
            pytest.skip("this SQLite was built without dbstat")
        index = connection.execute(query + " WHERE name LIKE 'message_index%'").fetchone()[0]
    connection.close()
    assert index < total / 2, f"{index / total:.2f}"
    print(kind, index / total)
