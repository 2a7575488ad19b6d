"""The messages of a session, over the spans of rows that it shares with others."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence

from mxclaw_nb.protocol import Attachment, Message, Role, ToolCall, ToolStatus, Window
from mxclaw_nb.text import encodable

from .text import searchable

INDEXED_ROLES = ("user", "assistant", "tool")
PIECE_MESSAGES, PIECE_CHARACTERS = 2_000, 1_000_000
_COLUMNS = (
    "role, content, id, turn_id, tool_calls, tool_call_id, name, reasoning, status, finish_reason, incomplete,"
    " attachments, created_at, position"
)
_Row = tuple[
    Role,
    str,
    str,
    str,
    str | None,
    str | None,
    str | None,
    str,
    ToolStatus | None,
    str | None,
    int,
    str | None,
    str,
    int,
]
_Values = tuple[str | int | None, ...]
# The first half lets SQLite use the index of messages to start at.
_USER = "role IN ('system', 'user') AND role = 'user'"
_SYSTEM = "role IN ('system', 'user') AND role = 'system'"
_NO_RESULT = "role IN ('user', 'assistant')"


def encode(message: Message) -> _Values:
    """The message as the columns of a row (without owner and position): everything encodable."""
    calls = [(encodable(call.id), encodable(call.name), encodable(call.arguments)) for call in message.tool_calls]
    attachments = [(encodable(attachment.name), encodable(attachment.text)) for attachment in message.attachments]
    return (
        message.role, encodable(message.content), encodable(message.id), encodable(message.turn_id),
        json.dumps(calls, ensure_ascii=False) if calls else None, _clean(message.tool_call_id), _clean(message.name),
        encodable(message.reasoning), message.status, _clean(message.finish_reason), int(message.incomplete),
        json.dumps(attachments, ensure_ascii=False) if attachments else None, encodable(message.created_at),
    )  # fmt: skip


def _decode(row: _Row) -> Message:
    return Message(
        role=row[0],
        content=row[1],
        id=row[2],
        turn_id=row[3],
        tool_calls=tuple(ToolCall(*call) for call in json.loads(row[4])) if row[4] else (),
        tool_call_id=row[5],
        name=row[6],
        reasoning=row[7],
        status=row[8],
        finish_reason=row[9],
        incomplete=bool(row[10]),
        attachments=tuple(Attachment(*attachment) for attachment in json.loads(row[11])) if row[11] else (),
        created_at=row[12],
        position=row[13],
    )


def _clean(text: str | None) -> str | None:
    return None if text is None else encodable(text)


def count(connection: sqlite3.Connection, no: int) -> int:
    """How many messages the session shows."""
    return int(connection.execute("SELECT message_count FROM sessions WHERE no = ?", (no,)).fetchone()[0])


def add(connection: sqlite3.Connection, no: int, messages: Sequence[_Values]) -> None:
    """Append encoded messages to the session, and index their text."""
    position = count(connection, no)
    for values in messages:
        position += 1
        cursor = connection.execute(
            f"INSERT INTO messages ({_COLUMNS}, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, position, no),
        )
        role, content, turn_id, call_id = values[0], values[1], values[3], values[5]
        if content and role in INDEXED_ROLES:
            connection.execute(
                "INSERT INTO message_index (rowid, text) VALUES (?, ?)", (cursor.lastrowid, searchable(str(content)))
            )
        if role == "tool":
            connection.execute(
                "DELETE FROM finished_calls WHERE session = ? AND turn_id = ? AND call_id = ?", (no, turn_id, call_id)
            )
    connection.execute("UPDATE sessions SET message_count = ? WHERE no = ?", (position, no))


def remove(connection: sqlite3.Connection, owner: int, after: int) -> int:
    """Delete rows of ``owner`` behind position ``after``, with their index entries: a piece of them; how many.

    In rising order, since the index writes itself out whenever row numbers fall.
    """
    rows = connection.execute(
        "SELECT no, role, content FROM messages WHERE owner = ? AND position > ? ORDER BY position LIMIT ?",
        (owner, after, PIECE_MESSAGES),
    )
    removed: list[tuple[int]] = []
    size = 0
    for no, role, content in rows:
        if content and role in INDEXED_ROLES:
            connection.execute(
                "INSERT INTO message_index (message_index, rowid, text) VALUES ('delete', ?, ?)",
                (no, searchable(content)),
            )
        removed.append((no,))
        size += len(content)
        if size > PIECE_CHARACTERS:
            break
    rows.close()
    connection.executemany("DELETE FROM messages WHERE no = ?", removed)
    return len(removed)


def _spans(connection: sqlite3.Connection, no: int, *, descending: bool = False) -> list[tuple[int, int, int]]:
    order = "DESC" if descending else "ASC"
    return connection.execute(
        f"SELECT first, last, owner FROM spans WHERE session = ? ORDER BY first {order}", (no,)
    ).fetchall()


def messages(connection: sqlite3.Connection, no: int, after: int, limit: int | None = None) -> tuple[Message, ...]:
    """The messages with a position greater than ``after``, in order, at most ``limit``."""
    found: list[Message] = []
    for first, last, owner in _spans(connection, no):
        left = -1 if limit is None else limit - len(found)
        if last <= after or left == 0:
            continue
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM messages WHERE owner = ? AND position BETWEEN ? AND ? ORDER BY position LIMIT ?",
            (owner, max(first, after + 1), last, left),
        )
        found.extend(map(_decode, rows))
    return tuple(found)


def window(connection: sqlite3.Connection, no: int, limit: int) -> Window:
    """The first system message, if any, and the newest messages, about ``limit`` of them.

    Where they start is a function of the count that moves in steps of half the limit. From there it goes to the
    next user message, if one is near, else to the last one before, so that a long turn is not torn from its question
    (then there may be up to twice as many); a turn longer than that is cut before one of its replies.
    """
    total = count(connection, no)
    limit = max(1, limit)
    if total <= limit:
        return Window(messages(connection, no, 0))
    step = max(1, limit // 2)
    grid = -(-(total - limit) // step) * step + 1
    start = (
        _edge(connection, no, _USER, grid, grid + max(1, step // 2) - 1, "ASC")
        or _edge(connection, no, _USER, max(1, grid - limit), grid - 1, "DESC")
        or _edge(connection, no, _NO_RESULT, grid, total, "ASC")
        or _edge(connection, no, _NO_RESULT, max(1, grid - limit), grid - 1, "DESC")
        or grid
    )
    system = _edge(connection, no, _SYSTEM, 1, start - 1, "ASC")
    head = messages(connection, no, system - 1, 1) if system else ()
    return Window((*head, *messages(connection, no, start - 1)), start - 1 - len(head))


def _edge(connection: sqlite3.Connection, no: int, condition: str, low: int, high: int, order: str) -> int | None:
    """The first (or last) position from ``low`` to ``high`` of a message that meets the condition."""
    for first, last, owner in _spans(connection, no, descending=order == "DESC"):
        if first > high or last < low:
            continue
        row = connection.execute(
            f"SELECT position FROM messages WHERE owner = ? AND {condition} AND position BETWEEN ? AND ?"
            f" ORDER BY position {order} LIMIT 1",
            (owner, max(first, low), min(last, high)),
        ).fetchone()
        if row is not None:
            return int(row[0])
    return None


def holders(connection: sqlite3.Connection, owner: int, position: int) -> Iterator[tuple[str, str]]:
    """Id and title of the sessions that show this row: the one that wrote it first, then the one used last."""
    return connection.execute(
        "SELECT s.id, s.title FROM spans p JOIN sessions s ON s.no = p.session"
        " WHERE p.owner = ? AND ? BETWEEN p.first AND p.last ORDER BY s.no = p.owner DESC, s.activity DESC",
        (owner, position),
    )
