"""The database file: created private, opened with the journal that its disk can bear, and its errors in words."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mxclaw_nb.files import make_private_dir
from mxclaw_nb.protocol import StoreError

from .damage import COMPANIONS, is_damage, probe, refuse_scrap, set_aside
from .filesystems import current_file_system, supports_wal
from .schema import migrate

BUSY_S = 5.0
FILE_NAME = "mx-claw.db"
LOG_BYTES = 16 * 1024 * 1024  # what the write-ahead log is cut back to after a large transaction
_LOG = logging.getLogger(__name__)
_FileId = tuple[int, int]


class Connection:
    """One SQLite connection, for one thread at a time, with the identity of the file that it was opened on."""

    def __init__(self, raw: sqlite3.Connection, path: Path, file: _FileId, describe: Callable[[Exception], StoreError]):
        self.raw, self._path, self._file, self._describe = raw, os.fspath(path), file, describe
        self._durable: bool | None = None
        self._has_log: bool | None = None

    def is_current(self) -> bool:
        """False once the file was renamed or removed: what would be written now, nobody would ever see."""
        return file_id(self._path) == self._file

    @contextlib.contextmanager
    def transaction(self, *, durable: bool) -> Iterator[sqlite3.Connection]:
        """A write transaction, begun IMMEDIATE: all of it or nothing. A durable one survives a power cut.

        Without a write-ahead log every one is durable, since a power cut in one that is not could damage the file.
        Raises StoreError for every error of SQLite.
        """
        raw = self.raw
        try:
            if self._has_log is None:
                self._has_log = raw.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
            durable = durable or not self._has_log
            if self._durable is not durable:
                raw.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            raw.execute("BEGIN IMMEDIATE")
            yield raw
            raw.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._describe(error) from error
        finally:
            if raw.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    raw.execute("ROLLBACK")

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A read transaction: everything read in it is of one moment. Raises StoreError for errors of SQLite."""
        raw = self.raw
        try:
            raw.execute("BEGIN")
            yield raw
        except sqlite3.Error as error:
            raise self._describe(error) from error
        finally:
            if raw.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    raw.execute("ROLLBACK")

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.raw.close()


def file_id(path: Path | str) -> _FileId | None:
    """Which file lies at ``path``; None if there is none, or none that we may see."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Database:
    """Where the database lies and how connections to it are made."""

    def __init__(self, home: Path, on_warning: Callable[[str], None] | None = None) -> None:
        self.home = home
        self.path = home / FILE_NAME
        self._on_warning = on_warning
        self._warned: set[str] = set()

    def warn(self, text: str) -> None:
        """Tell the person, once for each text. Never raises."""
        if text in self._warned:
            return
        self._warned.add(text)
        if self._on_warning is None:
            _LOG.warning("%s", text)
            return
        try:
            self._on_warning(text)
        except Exception:  # noqa: BLE001 - whatever a listener does, the store goes on
            _LOG.exception("A warning could not be shown: %s", text)

    def writer(self) -> Connection:
        """A connection that may write. The file is made, migrated, or set aside if it is damaged.

        Raises StoreError if that is impossible.
        """
        for _ in range(4):
            try:
                self._make_private()
                before = file_id(self.path)
                raw = self._connect()
            except (OSError, sqlite3.Error) as error:
                raise self.describe(error) from error
            try:
                self._prepare(raw)
            except (sqlite3.Error, StoreError) as error:
                raw.close()
                if not is_damage(error):
                    raise (error if isinstance(error, StoreError) else self.describe(error)) from error
                self._set_aside()
                continue
            except BaseException:
                raw.close()
                raise
            after = file_id(self.path)
            if after is not None and before == after:
                return Connection(raw, self.path, after, self.describe)
            raw.close()  # set aside or copied up by others in between
        raise StoreError(
            f"{self.path} keeps changing or is damaged again and again; set MX_CLAW_HOME to another folder."
        )

    def reader(self) -> Connection:
        """A connection that only reads. Raises StoreError."""
        try:
            raw = self._connect()
        except sqlite3.Error as error:
            raise self.describe(error) from error
        try:
            raw.execute("PRAGMA query_only = 1")
            raw.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            raw.close()
            raise self.describe(error) from error
        return Connection(raw, self.path, file_id(self.path) or (0, 0), self.describe)

    def reopened(self, connection: Connection) -> Connection:
        """A new connection in place of one whose file is gone."""
        fresh = self.writer()
        self.warn(f"{self.path} was replaced by another process; this program goes on with the new file.")
        connection.close()
        return fresh

    def describe(self, error: Exception) -> StoreError:
        """The error in words: what happened, and what to do. Notes damage, so that the next start looks closely."""
        if is_damage(error):
            with contextlib.suppress(OSError):
                self._suspect.touch(0o600)
        return StoreError(f"The session store: {_sentence(error, self.home)}")

    @property
    def _suspect(self) -> Path:
        return self.path.with_name(self.path.name + ".check")

    def _make_private(self) -> None:
        """The folder 0700 and the files 0600, whatever the umask.

        An existing database is never opened for this: closing it again would drop SQLite's locks on it.
        """
        make_private_dir(self.home)
        try:
            descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except FileExistsError:
            if not os.access(self.path, os.W_OK):  # SQLite would quietly open it for reading only
                raise PermissionError(errno.EACCES, f"{FILE_NAME} may not be written") from None
        else:
            os.close(descriptor)
            os.chmod(self.path, 0o600)  # the umask may have taken our own rights away
        self._tighten()

    def _tighten(self) -> None:
        """Take away what others may do with the files; by their names only."""
        for suffix in COMPANIONS:
            name = f"{self.path}{suffix}"
            with contextlib.suppress(FileNotFoundError, PermissionError):  # somebody else's stays as it is
                mode = stat.S_IMODE(os.stat(name).st_mode)
                if mode & 0o177:
                    os.chmod(name, mode & 0o600)

    def _connect(self) -> sqlite3.Connection:
        # mode=rw: a connection never makes the file, which would be open to others for a moment.
        name = self.path.absolute().as_uri() + "?mode=rw"
        raw = sqlite3.connect(name, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        raw.execute("PRAGMA temp_store = MEMORY")
        raw.execute("PRAGMA fullfsync = 1")  # macOS: fsync alone leaves data in the drive's cache
        raw.execute("PRAGMA cell_size_check = 1")
        raw.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        raw.execute("PRAGMA trusted_schema = 0")
        return raw

    def _prepare(self, raw: sqlite3.Connection) -> None:
        refuse_scrap(self.path)
        raw.execute("SELECT count(*) FROM sqlite_master").fetchone()
        self._choose_journal(raw)
        migrate(raw, lambda: Connection(raw, self.path, (0, 0), self.describe).transaction(durable=True))
        suspect = self._suspect.exists()
        probe(raw, thorough=suspect)
        if suspect:
            self._suspect.unlink(missing_ok=True)
        self._tighten()

    def _choose_journal(self, raw: sqlite3.Connection) -> None:
        """WAL where the file system bears it; never away from a WAL that others may be using."""
        current = raw.execute("PRAGMA journal_mode").fetchone()[0]
        system = current_file_system(self.home)
        if not supports_wal(system):
            if current == "wal":
                self.warn(
                    f"{self.path} uses a write-ahead log on a {system} file system, where only one machine at a time"
                    " may open it; set MX_CLAW_HOME to a local folder."
                )
            return
        if current == "wal":
            return
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                mode = raw.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                reason = f"it stays in mode {mode}"
            except sqlite3.OperationalError as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and time.monotonic() < deadline:
                    time.sleep(0.01)  # another process is making the same change; SQLite does not wait for it here
                    continue
                if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_FULL):
                    raise
                mode, reason = current, str(error)
            break
        if mode != "wal":
            self.warn(
                f"{self.path} cannot use a write-ahead log here ({reason}); it works, but"
                " readers and writers wait for each other. Set MX_CLAW_HOME to a local folder for full speed."
            )

    def _set_aside(self) -> None:
        try:
            target = set_aside(self.path, self._is_damaged)
        except OSError as error:
            raise StoreError(
                f"{self.path} is damaged and cannot be set aside ({error.strerror}); move it away and start again."
            ) from error
        self._suspect.unlink(missing_ok=True)
        if target is not None:
            self.warn(
                f"{self.path} is damaged. It was kept as {target.name}, and a new, empty store was begun beside it."
            )

    def _is_damaged(self) -> bool:
        try:
            with contextlib.closing(self._connect()) as raw:
                refuse_scrap(self.path)
                raw.execute("SELECT count(*) FROM sqlite_master").fetchone()
                probe(raw, thorough=True)
        except sqlite3.Error as error:
            return is_damage(error)
        return False


def _sentence(error: Exception, home: Path) -> str:
    if isinstance(error, OSError):
        return f"{home} cannot be used ({error.strerror or error}); set MX_CLAW_HOME to a folder that you can write to."
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return f"the disk is full, nothing of this was written; free some space under {home} and try again."
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"another process has kept it locked for more than {BUSY_S:.0f} s; try again."
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return f"{home} cannot be written to ({error}); make it writable, or set MX_CLAW_HOME to a folder that is."
    if code == sqlite3.SQLITE_IOERR:
        return (
            f"the disk failed ({error}), nothing of this was written; look for a full disk, a quota or a file size"
            f" limit at {home} and try again."
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return f"{home / FILE_NAME} is damaged ({error}); restart, and it is set aside under a new name."
    return f"{error}; nothing of this was written."
