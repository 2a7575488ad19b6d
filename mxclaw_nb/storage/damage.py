"""A damaged database: recognised, and set aside under a new name. Nothing of it is ever overwritten."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from mxclaw_nb.files import locked

SMALL = 4 * 1024 * 1024  # bytes; up to here a full check at each start costs a few milliseconds
LOCK_S = 30.0  # how long a check of the whole file by another process may take
SHORTEST = 512  # bytes: one page of the smallest size
COMPANIONS = ("", "-wal", "-shm", "-journal")


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite says that the file itself is wrong. Busy, full, unreadable or unwritable is no damage."""
    while error is not None:
        if isinstance(error, sqlite3.Error):
            return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        error = error.__cause__
    return False


def refuse_scrap(path: Path) -> None:
    """Raise sqlite3.DatabaseError for a file that is too short to be a database: SQLite would take it for an empty one
    and write over it. A file of no bytes is simply new."""
    if 0 < path.stat().st_size < SHORTEST:
        raise _malformed("too short")


def probe(connection: sqlite3.Connection, *, thorough: bool) -> None:
    """Raise sqlite3.DatabaseError (malformed, or not a database) if damage shows.

    A small file, or any with ``thorough``, is checked page by page; of a large one every table and index is entered.
    """
    size = connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]
    if thorough or size <= SMALL:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise _malformed(verdict)
        return
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE rootpage > 0").fetchall()
    for kind, name, table, sql in rows:
        condition = (sql or "").partition(" WHERE ")[2] if kind == "index" else ""
        hint = f' INDEXED BY "{name}"' if kind == "index" else ""
        where = f" WHERE {condition}" if condition else ""
        try:
            connection.execute(f'SELECT 1 FROM "{table}"{hint}{where} LIMIT 1').fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise  # SQLITE_ERROR: this index cannot be entered this way


def _malformed(verdict: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(f"database disk image is malformed ({verdict})")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def set_aside(path: Path, still_damaged: Callable[[], bool]) -> Path | None:
    """Rename the database with its companion files and return its new path.

    None if, once no other process was at it, ``still_damaged`` said no: somebody else set it aside first. The lock
    is a file of its own: closing the database's would drop SQLite's locks on it. Raises OSError.
    """
    with locked(path.with_name(path.name + ".lock"), LOCK_S):
        if not path.exists() or not still_damaged():
            return None
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        target = path.with_name(f"{path.name}.damaged-{stamp}-{secrets.token_hex(2)}")
        for suffix in COMPANIONS:
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{path}{suffix}", f"{target}{suffix}")
        return target
