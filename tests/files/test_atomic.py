"""Files that are never half written."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mxclaw_nb.files import FileError, make_private_dir, write_atomic


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o277])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_new_file_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    write_atomic(tmp_path / "a", b"x")
    assert mode_of(tmp_path / "a") == 0o600 and (tmp_path / "a").read_bytes() == b"x"


def test_without_a_mode_the_umask_decides(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", b"x", mode=None)
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "a") == 0o640


def test_an_open_file_is_tightened_and_a_kept_mode_is_kept(tmp_path: Path) -> None:
    for name in ("tight", "kept"):
        (tmp_path / name).write_bytes(b"old")
        (tmp_path / name).chmod(0o755)
    write_atomic(tmp_path / "tight", b"new")
    write_atomic(tmp_path / "kept", b"new", keep_mode=True)
    assert mode_of(tmp_path / "tight") == 0o600 and mode_of(tmp_path / "kept") == 0o755


def test_a_symbolic_link_is_replaced_unless_it_is_to_be_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to("target")
    write_atomic(link, b"followed", follow_symlink=True)
    assert link.is_symlink() and target.read_bytes() == b"followed"
    write_atomic(link, b"replaced")
    assert not link.is_symlink() and target.read_bytes() == b"followed"


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_only_a_file_can_be_overwritten(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(FileError, match=r"x is a (folder|named pipe)"):
        write_atomic(path, b"data")
    assert os.listdir(tmp_path) == ["x"]


def test_a_full_disk_leaves_the_old_content_and_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    code = "import sys; from pathlib import Path; from mxclaw_nb.files import write_atomic\n"
    code += "write_atomic(Path(sys.argv[1]), b'n' * 100_000)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a")],
        capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
    )  # fmt: skip
    assert done.returncode == 1 and "File too large" in done.stderr
    assert (tmp_path / "a").read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_killed_at_any_moment_the_file_is_old_or_new_never_torn(tmp_path: Path) -> None:
    """A child rewrites the file without pause and is killed; each content is one repeated byte."""
    path, size = tmp_path / "a", 300_000
    path.write_bytes(b"0" * size)
    code = (
        "import sys, itertools; from pathlib import Path; from mxclaw_nb.files import write_atomic\n"
        "print('ready', flush=True)\n"
        f"for i in itertools.count(): write_atomic(Path(sys.argv[1]), bytes([48 + i % 10]) * {size})"
    )
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        before = path.stat().st_ino
        for _ in range(2000):
            if path.stat().st_ino != before:
                break
            data = path.read_bytes()
            assert len(data) == size and len(set(data)) == 1
        child.send_signal(signal.SIGKILL)
        child.wait(10)
        child.stdout.close()
        data = path.read_bytes()
        assert len(data) == size and len(set(data)) == 1


def test_a_private_folder_is_made_and_tightened(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "a" / "b"
    make_private_dir(folder)
    assert mode_of(folder) == mode_of(folder.parent) == 0o700
    folder.chmod(0o755)
    make_private_dir(folder)
    assert mode_of(folder) == 0o700


def test_a_file_where_the_private_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(FileError, match="should be a folder"):
        make_private_dir(tmp_path / "a")
    with pytest.raises(OSError):  # noqa: PT011 - which of the two errors depends on the system
        make_private_dir(tmp_path / "a" / "b")
