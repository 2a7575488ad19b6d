"""The tables, as a list of migrations. Each is one transaction: it happens as a whole or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from mxclaw_nb.protocol import StoreError

APPLICATION_ID = 0x6D78636C  # "mxcl"
Migration = Callable[[sqlite3.Connection], None]
MIGRATIONS: list[Migration] = []


def migration(step: Migration) -> Migration:
    """Add a step to the end of the list. Steps that were released are never changed, only followed by others."""
    MIGRATIONS.append(step)
    return step


def migrate(
    connection: sqlite3.Connection,
    transaction: Callable[[], AbstractContextManager[object]],
    steps: Sequence[Migration] = MIGRATIONS,
) -> None:
    """Bring the database up to date; ``transaction`` begins an immediate one that survives a power cut.

    Of several processes that do this at once one does each step, the others find it done. Raises StoreError for a
    database of a newer version or of another program.
    """
    while (version := _version(connection)) < len(steps):
        with transaction():
            if _version(connection) != version:
                continue
            _require_ours(connection, version)
            steps[version](connection)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {version + 1}")
    _require_ours(connection, version)
    if version > len(steps):
        raise StoreError(
            f"The session store was written by a newer version of this program (format {version}, this one knows"
            f" {len(steps)}); upgrade this program, or set MX_CLAW_HOME to another folder."
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _require_ours(connection: sqlite3.Connection, version: int) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    empty = version == 0 and not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION_ID and not empty:
        raise StoreError(
            "mx-claw.db in our home folder is the database of another program; move it away, or set MX_CLAW_HOME to"
            " another folder."
        )


@migration
def sessions_and_messages(connection: sqlite3.Connection) -> None:
    """Sessions, and messages that several sessions may share.

    A message row belongs to the session that wrote it (``owner``, a session's ``no``). What a session shows is its
    spans: positions ``first`` to ``last`` are rows of ``owner`` at the same positions. A session's own span is open
    (``last`` is the largest integer). ``departed`` holds deleted sessions whose rows are not all freed yet.
    """
    for statement in (
        """CREATE TABLE sessions (
            no INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            title TEXT NOT NULL,
            model TEXT,
            mode TEXT NOT NULL,
            workspace TEXT NOT NULL,
            notebook TEXT,
            state TEXT NOT NULL,
            created_at TEXT NOT NULL,
            updated_at TEXT NOT NULL,
            activity INTEGER NOT NULL,
            message_count INTEGER NOT NULL DEFAULT 0,
            input_tokens INTEGER NOT NULL DEFAULT 0,
            output_tokens INTEGER NOT NULL DEFAULT 0,
            cached_tokens INTEGER NOT NULL DEFAULT 0,
            cost REAL DEFAULT 0.0,
            reserved_sequence INTEGER NOT NULL DEFAULT 0
        )""",
        "CREATE INDEX sessions_by_activity ON sessions (activity)",
        "CREATE INDEX sessions_by_notebook ON sessions (notebook, activity)",
        "CREATE TABLE departed (no INTEGER PRIMARY KEY, id TEXT NOT NULL)",
        """CREATE TABLE spans (
            session INTEGER NOT NULL,
            first INTEGER NOT NULL,
            last INTEGER NOT NULL,
            owner INTEGER NOT NULL,
            PRIMARY KEY (session, first)
        ) WITHOUT ROWID""",
        "CREATE INDEX spans_by_owner ON spans (owner)",
        """CREATE TABLE messages (
            no INTEGER PRIMARY KEY AUTOINCREMENT,
            owner INTEGER NOT NULL,
            position INTEGER NOT NULL,
            id TEXT NOT NULL,
            role TEXT NOT NULL,
            turn_id TEXT NOT NULL,
            content TEXT NOT NULL,
            reasoning TEXT NOT NULL,
            tool_calls TEXT,
            tool_call_id TEXT,
            name TEXT,
            status TEXT,
            finish_reason TEXT,
            incomplete INTEGER NOT NULL,
            attachments TEXT,
            created_at TEXT NOT NULL
        )""",
        "CREATE UNIQUE INDEX messages_in_order ON messages (owner, position)",
        "CREATE INDEX messages_to_start_at ON messages (owner, role, position) WHERE role IN ('system', 'user')",
        """CREATE VIRTUAL TABLE message_index USING fts5 (
            text, content='', columnsize=0, tokenize='unicode61 remove_diacritics 2'
        )""",
    ):
        connection.execute(statement)


@migration
def turns_and_events(connection: sqlite3.Connection) -> None:
    """Turns, their events and what they used.

    A row of ``events`` is a run of events, one wire object a line, numbered from ``first`` to ``last`` (with holes);
    ``deltas`` marks runs that hold nothing else. ``finished_calls`` holds tool.completed events that have no tool
    message yet.
    """
    for statement in (
        """CREATE TABLE turns (
            session INTEGER NOT NULL,
            first_sequence INTEGER NOT NULL,
            turn_id TEXT NOT NULL,
            PRIMARY KEY (session, first_sequence)
        ) WITHOUT ROWID""",
        """CREATE TABLE events (
            no INTEGER PRIMARY KEY,
            session INTEGER NOT NULL,
            first INTEGER NOT NULL,
            last INTEGER NOT NULL,
            deltas INTEGER NOT NULL,
            body TEXT NOT NULL
        )""",
        "CREATE UNIQUE INDEX events_in_order ON events (session, last)",
        """CREATE TABLE finished_calls (
            session INTEGER NOT NULL,
            turn_id TEXT NOT NULL,
            call_id TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (session, turn_id, call_id)
        ) WITHOUT ROWID""",
        """CREATE TABLE usage (
            session INTEGER NOT NULL,
            sequence INTEGER NOT NULL,
            turn_id TEXT NOT NULL,
            model TEXT,
            input_tokens INTEGER NOT NULL,
            output_tokens INTEGER NOT NULL,
            cached_tokens INTEGER NOT NULL,
            cost REAL,
            estimated INTEGER NOT NULL,
            created_at TEXT NOT NULL,
            PRIMARY KEY (session, sequence)
        ) WITHOUT ROWID""",
    ):
        connection.execute(statement)


@migration
def leases_and_approvals(connection: sqlite3.Connection) -> None:
    """Who runs a session's turn, and what others tell that turn.

    ``renewed_at`` is on the clock that all processes of ``boot_id`` share. ``lease_sightings`` remembers, for each
    other machine, since when (on its own clock) it has seen the counter unmoved. ``approval_audit`` has a row for
    every answer that was tried.
    """
    for statement in (
        """CREATE TABLE leases (
            session INTEGER PRIMARY KEY,
            token TEXT NOT NULL UNIQUE,
            turn_id TEXT NOT NULL,
            program TEXT NOT NULL,
            host TEXT NOT NULL,
            boot_id TEXT NOT NULL,
            pid INTEGER NOT NULL,
            pid_namespace TEXT NOT NULL,
            process_started TEXT NOT NULL,
            counter INTEGER NOT NULL,
            renewed_at REAL NOT NULL,
            ttl REAL NOT NULL
        )""",
        """CREATE TABLE lease_sightings (
            session INTEGER NOT NULL,
            observer TEXT NOT NULL,
            token TEXT NOT NULL,
            counter INTEGER NOT NULL,
            seen_at REAL NOT NULL,
            PRIMARY KEY (session, observer)
        ) WITHOUT ROWID""",
        """CREATE TABLE stop_requests (
            session INTEGER NOT NULL,
            token TEXT NOT NULL,
            requested_by TEXT NOT NULL,
            requested_at TEXT NOT NULL,
            PRIMARY KEY (session, token)
        ) WITHOUT ROWID""",
        """CREATE TABLE approvals (
            id TEXT PRIMARY KEY,
            session INTEGER NOT NULL,
            token TEXT NOT NULL,
            turn_id TEXT NOT NULL,
            call_id TEXT NOT NULL,
            name TEXT NOT NULL,
            summary TEXT NOT NULL,
            detail_kind TEXT NOT NULL,
            detail TEXT NOT NULL,
            reason TEXT NOT NULL,
            choices TEXT NOT NULL,
            created_at TEXT NOT NULL,
            answer TEXT,
            note TEXT NOT NULL DEFAULT '',
            answered_by TEXT,
            answered_at TEXT
        )""",
        "CREATE INDEX approvals_by_turn ON approvals (session, token)",
        """CREATE TABLE approval_audit (
            no INTEGER PRIMARY KEY,
            session INTEGER NOT NULL,
            request_id TEXT NOT NULL,
            answer TEXT NOT NULL,
            note TEXT NOT NULL,
            answered_by TEXT NOT NULL,
            answered_at TEXT NOT NULL,
            accepted INTEGER NOT NULL
        )""",
        "CREATE INDEX approval_audit_by_session ON approval_audit (session)",
        """CREATE TABLE grants (
            session INTEGER NOT NULL,
            allowed TEXT NOT NULL,
            granted_at TEXT NOT NULL,
            PRIMARY KEY (session, allowed)
        ) WITHOUT ROWID""",
    ):
        connection.execute(statement)
