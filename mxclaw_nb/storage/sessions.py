"""Rows of sessions: finding, listing, creating, changing, sharing and removing them. All inside a transaction."""

from __future__ import annotations

import difflib
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from mxclaw_nb.protocol import Mode, NotFound, Session, SessionChanges, UsageError, new_id, now_iso
from mxclaw_nb.text import encodable

OPEN_END = 2**63 - 1
_COLUMNS = (
    "no, id, title, model, mode, workspace, notebook, state, created_at, updated_at, message_count, input_tokens,"
    " output_tokens, cached_tokens, cost"
)
RunsNow = Callable[[int], bool]
"""Whether a running session, by its number, has a live lease."""


def number_of(connection: sqlite3.Connection, session_id: str) -> int:
    """The internal number of the session with exactly this id. Raises NotFound."""
    row = connection.execute("SELECT no FROM sessions WHERE id = ?", (encodable(session_id),)).fetchone()
    if row is None:
        raise _not_found(connection, session_id)
    return int(row[0])


def find(connection: sqlite3.Connection, text: str, runs: RunsNow) -> Session:
    """By id, or by a prefix that only one has. Raises NotFound or UsageError."""
    text = encodable(text).strip()
    exact = _select(connection, "WHERE id = ?", (text,))
    if exact:
        return _session(exact[0], runs)
    found = by_prefix(connection, "sessions", text, "s-")
    if not found:
        raise _not_found(connection, text)
    if len(found) > 1:
        raise UsageError(f"{text!r} fits several sessions ({', '.join(found[:5])}); give more of the id.")
    return _session(_select(connection, "WHERE id = ?", (found[0],))[0], runs)


def by_prefix(connection: sqlite3.Connection, table: str, text: str, kind: str) -> list[str]:
    """A few ids of a table that begin with the text, or with ``kind`` and the text."""
    for prefix in (text, kind + text):
        if not text:
            break
        rows = connection.execute(
            f"SELECT id FROM {table} WHERE id >= ? AND id < ? LIMIT 6", (prefix, prefix + "\U0010ffff")
        ).fetchall()
        if rows:
            return [row[0] for row in rows]
    return []


def _not_found(connection: sqlite3.Connection, text: str) -> NotFound:
    known = [row[0] for row in connection.execute("SELECT id FROM sessions ORDER BY activity DESC LIMIT 200")]
    near = difflib.get_close_matches(text, known, n=3, cutoff=0.5) or known[:3]
    hint = f"the nearest are {', '.join(near)}" if near else "there are none yet"
    return NotFound(f"There is no session {text[:80]!r}; {hint}.")


def of_notebook(connection: sqlite3.Connection, notebook: str, runs: RunsNow) -> Session | None:
    """The session that the notebook used last."""
    rows = _select(connection, "WHERE notebook = ? ORDER BY activity DESC LIMIT 1", (encodable(notebook),))
    return _session(rows[0], runs) if rows else None


def newest(connection: sqlite3.Connection, limit: int, runs: RunsNow) -> Sequence[Session]:
    """The sessions that were used last, the latest first."""
    rows = _select(connection, "ORDER BY activity DESC LIMIT ?", (max(0, limit),))
    return tuple(_session(row, runs) for row in rows)


def read(connection: sqlite3.Connection, no: int, runs: RunsNow) -> Session:
    """The session with this number, which must exist."""
    return _session(_select(connection, "WHERE no = ?", (no,))[0], runs)


def _select(connection: sqlite3.Connection, where: str, parameters: tuple[object, ...]) -> list[tuple[Any, ...]]:
    return connection.execute(f"SELECT {_COLUMNS} FROM sessions {where}", parameters).fetchall()


def _session(row: tuple[Any, ...], runs: RunsNow) -> Session:
    no, session_id, title, model, mode, workspace, notebook, state, created_at, updated_at, messages, *totals = row
    if state == "running" and not runs(no):
        state = "failed"  # its runner died without a word
    input_tokens, output_tokens, cached_tokens, cost = totals
    return Session(
        id=session_id,
        title=title,
        model=model,
        mode=mode,
        workspace=workspace,
        notebook=notebook,
        state=state,
        created_at=created_at,
        updated_at=updated_at,
        message_count=messages,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached_tokens,
        cost=cost,
    )


def create(
    connection: sqlite3.Connection,
    *,
    workspace: str,
    model: str | None,
    mode: Mode,
    title: str,
    notebook: str | None,
) -> int:
    """A new, empty session; its number."""
    now = now_iso()
    cursor = connection.execute(
        "INSERT INTO sessions (id, title, model, mode, workspace, notebook, state, created_at, updated_at, activity)"
        " VALUES (?, ?, ?, ?, ?, ?, 'idle', ?, ?, (SELECT coalesce(max(activity), 0) + 1 FROM sessions))",
        (
            new_id("s"),
            encodable(title),
            _clean(model),
            mode,
            encodable(workspace),
            _clean(notebook),
            now,
            now,
        ),
    )
    no = cursor.lastrowid
    assert no is not None
    connection.execute("INSERT INTO spans (session, first, last, owner) VALUES (?, 1, ?, ?)", (no, OPEN_END, no))
    return no


def update(connection: sqlite3.Connection, no: int, changes: SessionChanges) -> None:
    """Change what is not None."""
    for column, value in (
        ("title", changes.title),
        ("model", changes.model),
        ("mode", changes.mode),
        ("workspace", changes.workspace),
        ("notebook", changes.notebook),
    ):
        if value is not None:
            connection.execute(f"UPDATE sessions SET {column} = ? WHERE no = ?", (encodable(value), no))
    touch(connection, no)


def touch(connection: sqlite3.Connection, no: int) -> None:
    """Make the session the one that was used last. By a count, since clocks are set back and stand still."""
    connection.execute(
        "UPDATE sessions SET updated_at = ?, activity = (SELECT max(activity) + 1 FROM sessions) WHERE no = ?",
        (now_iso(), no),
    )


def fork(connection: sqlite3.Connection, no: int, title: str) -> int:
    """A new session that shows the messages of another up to now, and then its own; its number."""
    row = _select(connection, "WHERE no = ?", (no,))[0]
    count = row[10]
    made = create(
        connection,
        workspace=row[5],
        model=row[3],
        mode=row[4],
        title=title or f"{row[2]} (fork)".strip(),
        notebook=None,
    )
    connection.execute("UPDATE spans SET first = ? WHERE session = ?", (count + 1, made))
    connection.execute(
        "INSERT INTO spans (session, first, last, owner)"
        " SELECT ?, first, min(last, ?), owner FROM spans WHERE session = ? AND first <= ?",
        (made, count, no, count),
    )
    connection.execute("UPDATE sessions SET message_count = ? WHERE no = ?", (count, made))
    connection.execute(
        "INSERT INTO finished_calls (session, turn_id, call_id, body)"
        " SELECT ?, turn_id, call_id, body FROM finished_calls WHERE session = ?",
        (made, no),
    )
    return made


def depart(connection: sqlite3.Connection, no: int) -> None:
    """Remove the session from sight; its messages and events are freed piece by piece (see ``removal``)."""
    connection.execute("INSERT INTO departed (no, id) SELECT no, id FROM sessions WHERE no = ?", (no,))
    connection.execute("DELETE FROM sessions WHERE no = ?", (no,))
    for table in (
        "spans", "turns", "finished_calls", "usage", "leases", "lease_sightings", "stop_requests", "approvals",
        "approval_audit", "grants",
    ):  # fmt: skip
        connection.execute(f"DELETE FROM {table} WHERE session = ?", (no,))


def _clean(text: str | None) -> str | None:
    return None if text is None else encodable(text)
