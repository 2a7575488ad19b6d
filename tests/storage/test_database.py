"""The file: private, migrated once, with the journal that its disk can bear, and set aside when damaged."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mxclaw_nb.protocol import Message, StoreError
from mxclaw_nb.storage import SqliteStore, database, schema
from mxclaw_nb.storage.filesystems import file_system_in_mount_output, file_system_of, supports_wal

from .conftest import Child, begin, with_store

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
25 22 0:23 / /dev/shm rw - tmpfs tmpfs rw
40 22 0:40 / /home rw,relatime shared:2 - nfs4 server:/export/home rw,vers=4.2
41 40 0:41 / /home/ann/local rw - ext4 /dev/vdb rw
42 22 0:42 / /mnt/with\\040space\\011tab rw - 9p host rw
43 22 0:43 / /mnt/设计 rw - virtiofs share rw
44 22 0:44 / /mnt/s rw - fuse.sshfs user@host:/ rw
45 22 0:45 / /over rw - ext4 /dev/vdc rw
46 45 0:46 / /over rw - cifs //host/share rw
47 22 0:47 / /no/optional rw - xfs /dev/vdd rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"), ("/root/.mx-claw", "ext4"), ("/dev/shm/x", "tmpfs"), ("/home/bob", "nfs4"), ("/home", "nfs4"),
        ("/homework", "ext4"), ("/home/ann", "nfs4"), ("/home/ann/local/.mx-claw", "ext4"),
        ("/mnt/with space\ttab/h", "9p"), ("/mnt/with", "ext4"), ("/mnt/设计/h", "virtiofs"),
        ("/mnt/s/h", "fuse.sshfs"),
        ("/over/x", "cifs"), ("/no/optional/x", "xfs"),
    ],
)  # fmt: skip
def test_the_file_system_of_a_path_is_that_of_the_longest_mount_point(path: str, kind: str) -> None:
    assert file_system_of(path, MOUNTS) == kind


def test_a_text_without_mounts_tells_nothing() -> None:
    assert file_system_of("/x", "") is None
    assert file_system_of("/x", "garbage - \n - - -\n\\999 - x") is None


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/Users/ann", "apfs"), ("/Volumes/a (b) on c/x", "smbfs"), ("/Volumes/n", "nfs"), ("/Volumes", "apfs")],
)
def test_the_output_of_mount_on_macos_is_understood(path: str, kind: str) -> None:
    output = (
        "/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)\n"
        "//ann@host/share on /Volumes/a (b) on c (smbfs, nodev, nosuid, mounted by ann)\n"
        "host:/export on /Volumes/n (nfs, nodev)\n"
    )
    assert file_system_in_mount_output(path, output) == kind


@pytest.mark.parametrize(
    ("kind", "bears"),
    [
        ("ext4", True), ("xfs", True), ("btrfs", True), ("tmpfs", True), ("overlay", True), ("apfs", True),
        (None, True),
        ("nfs", False), ("nfs4", False), ("9p", False), ("cifs", False), ("smb3", False), ("virtiofs", False),
        ("fuse", False), ("fuse.sshfs", False), ("fuseblk", False), ("NFS", False), ("smbfs", False),
    ],
)  # fmt: skip
def test_network_file_systems_bear_no_write_ahead_log(kind: str | None, bears: bool) -> None:
    assert supports_wal(kind) is bears


async def use(store: SqliteStore) -> str:
    made = await store.create_session(workspace="/w", title="usable")
    turn = await begin(store, made.id)
    await turn.writer.release(messages=[Message("user", "hello")], state="idle")
    return made.id


def journal_of(home: Path) -> str:
    with contextlib.closing(sqlite3.connect(home / "mx-claw.db")) as connection:
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def test_on_a_network_file_system_the_log_is_refused_before_it_is_tried(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    trace_connections(monkeypatch, tried.append)
    monkeypatch.setattr(database, "current_file_system", lambda path: "9p")
    warnings: list[str] = []
    with_store(home, use, on_warning=warnings.append)
    assert not any("journal_mode = WAL" in statement for statement in tried)
    assert journal_of(home) == "delete" and warnings == []
    assert not list(home.glob("*-wal"))


def trace_connections(monkeypatch: pytest.MonkeyPatch, on_statement: Callable[[str], str | None]) -> None:
    """Show every statement to ``on_statement``, which may raise, or return another one to be executed instead."""

    class Traced(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            return super().execute(on_statement(sql) or sql, *parameters)

    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: real(*a, **{**k, "factory": Traced}))


@pytest.mark.parametrize("refusal", ["locking protocol", "it stays in mode delete"])
def test_a_disk_that_refuses_the_log_gets_one_warning_and_a_working_store(
    home: Path, monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    def refuse(sql: str) -> str:
        if "journal_mode = WAL" not in sql:
            return sql
        if refusal == "locking protocol":
            raise sqlite3.OperationalError(refusal)
        return "PRAGMA journal_mode"

    trace_connections(monkeypatch, refuse)
    warnings: list[str] = []
    made = with_store(home, use, on_warning=warnings.append)
    assert len(warnings) == 1 and refusal in warnings[0]
    assert journal_of(home) == "delete"

    async def read(store: SqliteStore) -> None:
        assert len(await store.messages(made)) == 1

    with_store(home, read)


def test_a_log_in_use_is_never_taken_away(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(first: SqliteStore) -> None:
        made = await use(first)
        monkeypatch.setattr(database, "current_file_system", lambda path: "nfs4")
        warnings: list[str] = []
        second = SqliteStore.open(home, on_warning=warnings.append)
        assert (await second.session(made)).title == "usable"
        await use(second)
        assert len(warnings) == 1 and "nfs4" in warnings[0]
        await second.close()
        assert journal_of(home) == "wal"
        await use(first)

    with_store(home, work)


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o277])
def test_folders_are_0700_and_files_0600_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    home = tmp_path / "a" / "home"
    if mask == 0o277:
        home = tmp_path / "home"  # what lies above ours is made by nobody else under such a mask

    async def work(store: SqliteStore) -> None:
        await use(store)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
        assert set(modes) == {"mx-claw.db", "mx-claw.db-wal", "mx-claw.db-shm"}
        assert set(modes.values()) == {0o600}
        assert stat.S_IMODE(home.stat().st_mode) == 0o700

    with umask(mask):
        with_store(home, work)


def test_what_others_could_read_is_tightened(home: Path) -> None:
    with_store(home, use)
    home.chmod(0o755)
    (home / "mx-claw.db").chmod(0o644)
    with_store(home, use)
    assert stat.S_IMODE((home / "mx-claw.db").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def zero_page_2(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\0" * 4096)


def zero_later_page(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(4096 * 7)
        file.write(b"\xff" * 4096)


def cut_to_100(path: Path) -> None:
    os.truncate(path, 100)


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def make_text(path: Path) -> None:
    path.write_text("this is my shopping list\n" * 50)


def make_short_text(path: Path) -> None:
    path.write_text("x")


def scribble_header(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(16)
        file.write(os.urandom(64))


DAMAGES = [zero_page_2, zero_later_page, cut_to_100, cut_in_half, make_text, make_short_text, scribble_header]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_set_aside_whole_and_reported(home: Path, damage: Callable[[Path], None]) -> None:
    with_store(home, use)
    path = home / "mx-claw.db"
    damage(path)
    broken = path.read_bytes()
    warnings: list[str] = []
    made = with_store(home, use, on_warning=warnings.append)
    assert len(warnings) == 1
    (aside,) = [p for p in home.glob("mx-claw.db.damaged-*") if p.suffix not in ("-wal", "-shm")]
    assert aside.name in warnings[0]
    assert aside.read_bytes() == broken
    assert stat.S_IMODE(aside.stat().st_mode) == 0o600
    later: list[str] = []

    async def read(store: SqliteStore) -> None:
        assert (await store.session(made)).title == "usable"

    with_store(home, read, on_warning=later.append)
    assert later == []


def test_an_empty_file_is_simply_new(home: Path) -> None:
    home.mkdir()
    (home / "mx-claw.db").touch()
    warnings: list[str] = []
    with_store(home, use, on_warning=warnings.append)
    assert warnings == [] and not list(home.glob("*.damaged-*"))


def test_a_stale_log_beside_an_empty_file_does_no_harm(home: Path) -> None:
    with_store(home, use)

    async def leave_log(store: SqliteStore) -> None:
        await use(store)
        for suffix in ("-wal", "-shm"):
            shutil.copy(home / f"mx-claw.db{suffix}", home / f"old{suffix}")

    with_store(home, leave_log)
    (home / "mx-claw.db").write_bytes(b"")
    for suffix in ("-wal", "-shm"):
        os.rename(home / f"old{suffix}", home / f"mx-claw.db{suffix}")

    async def read(store: SqliteStore) -> None:
        assert await store.sessions() == ()
        await use(store)

    with_store(home, read)


def test_damage_deep_in_a_large_file_is_an_error_now_and_set_aside_at_the_next_start(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mxclaw_nb.storage.damage.SMALL", 0)

    async def fill(store: SqliteStore) -> str:
        made = await store.create_session(workspace="/w")
        turn = await begin(store, made.id)
        await turn.writer.release(messages=[Message("user", f"text {i} " * 40) for i in range(2000)], state="idle")
        return made.id

    made = with_store(home, fill)
    with contextlib.closing(sqlite3.connect(home / "mx-claw.db")) as connection:
        pages = [
            row[0]
            for row in connection.execute(
                "SELECT pageno FROM dbstat WHERE name = 'messages' AND pagetype = 'leaf' ORDER BY pageno"
            )
        ]
    with open(home / "mx-claw.db", "r+b") as file:
        file.seek((pages[len(pages) // 2] - 1) * 4096)
        file.write(b"\0" * 4096)

    async def read(store: SqliteStore) -> None:
        with pytest.raises(StoreError, match="damaged"):
            await store.messages(made)
        assert len(await store.messages(made, limit=10)) == 10

    with_store(home, read)
    warnings: list[str] = []
    with_store(home, use, on_warning=warnings.append)
    assert len(warnings) == 1 and "damaged" in warnings[0]


def test_two_processes_that_meet_a_damaged_file_set_it_aside_once(home: Path, child: Callable[..., Child]) -> None:
    with_store(home, use)
    make_text(home / "mx-claw.db")
    children = [child(home) for _ in range(4)]
    for one in children:
        one.says()
    for one in children:
        one.told("open")
    assert [one.says() for one in children] == ["ok"] * 4
    assert len(list(home.glob("*.damaged-*"))) == 1
    session = children[0].asked("create x")
    assert session.startswith("s-")
    assert [one.asked("sessions") for one in children] == ["1"] * 4


def test_a_process_that_had_the_file_open_goes_on_with_the_new_one(home: Path) -> None:
    async def work(store: SqliteStore) -> None:
        old = await use(store)
        turn = await begin(store, old)
        warnings: list[str] = []
        os.rename(home / "mx-claw.db", home / "mx-claw.db.damaged-x")
        for suffix in ("-wal", "-shm"):
            os.rename(home / f"mx-claw.db{suffix}", home / f"mx-claw.db.damaged-x{suffix}")
        other = SqliteStore.open(home, on_warning=warnings.append)
        new = await use(other)
        assert [s.id for s in await store.sessions()] == [new]
        made = await store.create_session(workspace="/w")
        assert (await other.session(made.id)).id == made.id
        await turn.writer.release(messages=[Message("user", "lost")], state="idle")
        await other.close()

    with_store(home, work)


def test_a_busy_file_is_not_taken_for_a_damaged_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.2)
    home.mkdir()
    other = sqlite3.connect(home / "mx-claw.db", isolation_level=None)
    other.execute("CREATE TABLE x (y)")
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    with pytest.raises(StoreError, match="locked"):
        SqliteStore.open(home)
    assert time.monotonic() - began < 5
    other.execute("ROLLBACK")
    other.close()
    assert not list(home.glob("*.damaged-*"))


def test_another_programs_database_is_refused_and_left_alone(home: Path) -> None:
    home.mkdir()
    with contextlib.closing(sqlite3.connect(home / "mx-claw.db")) as connection:
        connection.execute("CREATE TABLE sessions (x)")
        connection.commit()
    with pytest.raises(StoreError, match="another program"):
        SqliteStore.open(home)
    with contextlib.closing(sqlite3.connect(home / "mx-claw.db")) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("sessions",)]


def test_a_newer_format_is_refused_and_left_alone(home: Path) -> None:
    with_store(home, use)
    with contextlib.closing(sqlite3.connect(home / "mx-claw.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.commit()
    with pytest.raises(StoreError, match="newer version"):
        SqliteStore.open(home)


READ_ONLY = """
import asyncio, os, sys, time
from pathlib import Path
from mxclaw_nb.protocol import StoreError
from mxclaw_nb.storage import SqliteStore
folder = Path(sys.argv[1])
asyncio.run(SqliteStore.open(folder / "first").close())  # everything is imported while it can be read
if os.getuid() == 0:  # root may write everywhere
    os.setgroups([]); os.setgid(65534); os.setuid(65534)

def refused(home):
    began = time.monotonic()
    try:
        SqliteStore.open(home)
    except StoreError as error:
        print(time.monotonic() - began < 2, "MX_CLAW_HOME" in str(error), oct(home.stat().st_mode)[-3:])

closed = folder / "closed"
closed.mkdir(); closed.chmod(0o500)
refused(closed)
full = folder / "full"
store = SqliteStore.open(full)
asyncio.run(store.close())
full.chmod(0o500)
refused(full)
full.chmod(0o700); (full / "mx-claw.db").chmod(0o400)
refused(full)
(full / "mx-claw.db").chmod(0o600)
store = SqliteStore.open(full)
asyncio.run(store.close())
print("usable again", sorted(path.name for path in full.iterdir()))
"""


def test_what_cannot_be_written_is_refused_with_words_and_left_alone() -> None:
    with tempfile.TemporaryDirectory(prefix="mxclaw-open-") as folder:
        os.chmod(folder, 0o777)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, folder], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.stdout.splitlines() == [
        "True True 500",
        "True True 500",
        "True True 700",
        "usable again ['mx-claw.db']",
    ], done


def test_a_file_in_the_place_of_the_folder_is_refused_with_words(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(StoreError, match="MX_CLAW_HOME"):
        SqliteStore.open(tmp_path / "home")
    (tmp_path / "other" / "mx-claw.db").mkdir(parents=True)
    with pytest.raises(StoreError, match="MX_CLAW_HOME"):
        SqliteStore.open(tmp_path / "other")


def test_a_file_size_limit_is_an_error_and_the_store_works_again_after_it(home: Path) -> None:
    script = """
import asyncio, resource, sys
from pathlib import Path
from mxclaw_nb.protocol import Message, StoreError
from mxclaw_nb.storage import SqliteStore

async def main():
    store = SqliteStore.open(Path(sys.argv[1]))
    made = await store.create_session(workspace="/w")
    turn = await store.acquire(made.id, "t", on_signal=lambda signal: None)
    await turn.commit(messages=[Message("user", "before")])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    failed = 0
    for _ in range(3):
        try:
            await turn.commit(messages=[Message("user", "x" * 500_000)])
        except StoreError as error:
            failed += 1
    small = len(await store.messages(made.id))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await turn.commit(messages=[Message("user", "after")])
    await turn.release(state="idle")
    print(failed, small, [m.content for m in await store.messages(made.id)])
    await store.close()

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(home)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "3 1 ['before', 'after']", done
    with contextlib.closing(sqlite3.connect(home / "mx-claw.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_many_processes_that_open_a_new_home_at_once_migrate_it_once(
    tmp_path: Path, child: Callable[..., Child]
) -> None:
    children = [child(tmp_path / "home") for _ in range(5)]
    for one in children:
        one.says()
    for one in children:
        one.told("open")
    assert [one.says() for one in children] == ["ok"] * 5
    assert len({one.asked("create x") for one in children}) == 5
    assert children[0].asked("sessions") == "5"


def test_a_migration_that_fails_changes_nothing_and_the_next_start_completes_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = with_store(home, use)
    before = len(schema.MIGRATIONS)

    def half(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE extra (x)")
        connection.execute("ALTER TABLE sessions ADD COLUMN extra TEXT")
        raise sqlite3.OperationalError("power cut")

    schema.MIGRATIONS.append(half)
    try:
        with pytest.raises(StoreError):
            SqliteStore.open(home)
        with contextlib.closing(sqlite3.connect(home / "mx-claw.db")) as connection:
            assert connection.execute("PRAGMA user_version").fetchone()[0] == before
            assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'extra'").fetchall()
        schema.MIGRATIONS[-1] = lambda connection: None

        async def read(store: SqliteStore) -> None:
            assert (await store.session(made)).title == "usable"

        with_store(home, read)
    finally:
        del schema.MIGRATIONS[before:]


def test_opening_is_quick(home: Path) -> None:
    with_store(home, use)

    def seconds() -> float:
        began = time.perf_counter()
        store = SqliteStore.open(home)
        took = time.perf_counter() - began
        asyncio.run(store.close())
        return took

    assert min(seconds() for _ in range(5)) < 0.1


def test_every_query_has_an_index(home: Path) -> None:
    """What is read while a turn runs or a session opens must not walk through a whole table."""
    statements: set[str] = set()

    async def work(store: SqliteStore) -> None:
        made = await use(store)
        readers = [store._readers._database.reader() for _ in range(4)]
        for reader in readers:
            reader.raw.set_trace_callback(statements.add)
        store._readers._free.extend(readers)
        store._writer._connection.raw.set_trace_callback(statements.add)
        turn = await begin(store, made)
        await turn.writer.commit(messages=[Message("user", str(i)) for i in range(30)], request=turn.request("p-1"))
        await store.window(made, limit=10)
        await store.messages(made, after=5)
        await store.events(made, after=5, turn_id="t-1")
        await store.pending_approvals(made)
        await store.session_for_notebook("x")
        await store.finished_calls(made)
        await store.last_turn_id(made)
        await store.grants(made)
        await turn.writer.release(state="idle")
        await store.search("hello")

    with_store(home, work)
    with contextlib.closing(sqlite3.connect(home / "mx-claw.db")) as connection:
        for statement in statements:
            if not statement.startswith(("SELECT", "UPDATE", "DELETE")) or "message_index" in statement:
                continue
            for row in connection.execute("EXPLAIN QUERY PLAN " + statement):
                walks = row[3].startswith("SCAN") and not any(
                    small in row[3] for small in ("departed", "CONSTANT", "sqlite_master", "INDEX sessions_by_activity")
                )
                assert not walks, (row[3], statement)
