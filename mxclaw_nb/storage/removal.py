"""Freeing what a deleted session leaves behind, in pieces small enough that no other writer waits long."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
from pathlib import Path

from . import event_log, transcript
from .database import Connection

_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def leftovers(connection: sqlite3.Connection) -> list[tuple[int, str, int]]:
    """Deleted sessions: number, id, and up to which position forks still show their messages (0: none does)."""
    return connection.execute(
        "SELECT d.no, d.id, coalesce((SELECT max(last) FROM spans WHERE owner = d.no), 0) FROM departed d"
    ).fetchall()


def unfinished(connection: sqlite3.Connection) -> bool:
    """Whether a removal was interrupted."""
    return any(
        not kept
        or connection.execute("SELECT 1 FROM messages WHERE owner = ? AND position > ?", (no, kept)).fetchone()
        or connection.execute("SELECT 1 FROM events WHERE session = ?", (no,)).fetchone()
        for no, _, kept in leftovers(connection)
    )


def free_piece(database: Connection, outputs: Path) -> bool:
    """Free some rows of deleted sessions that no session shows; True if there may be more.

    When the last message of one is gone, so are its long outputs (a folder of its id below ``outputs``).
    """
    with database.transaction(durable=False) as connection:
        for no, session_id, kept in leftovers(connection):
            if transcript.remove(connection, no, kept) or event_log.remove(connection, no):
                return True
            if not kept:
                remove_folder(outputs, session_id)
                connection.execute("DELETE FROM departed WHERE no = ?", (no,))
    return False


def remove_folder(outputs: Path, session_id: str) -> None:
    """Delete the session's folder of long outputs, if it has one. A symbolic link is removed, never followed."""
    if not _SAFE_ID.fullmatch(session_id):
        return
    folder = outputs / session_id
    if folder.is_symlink():
        with contextlib.suppress(OSError):
            os.unlink(folder)
        return
    shutil.rmtree(folder, ignore_errors=True)
