"""Locks with a bound, and reads that nothing can hang."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mxclaw_nb.files import FileError, locked, open_regular, read_bounded, read_json, write_json


def test_two_threads_never_hold_the_lock_together(tmp_path: Path) -> None:
    inside, most, rounds = [0], [0], [0]

    def work() -> None:
        for _ in range(50):
            with locked(tmp_path / "lock", 30):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                rounds[0] += 1
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert rounds[0] == 200 and most[0] == 1


def test_another_process_holds_it_until_it_dies(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from mxclaw_nb.files import locked\n"
        "with locked(Path(sys.argv[1]), 5):\n    print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"held\n"
        start = time.monotonic()
        with pytest.raises(FileError, match=r"gave up after 0\.2 s"), locked(tmp_path / "lock", 0.2):
            pass
        assert 0.15 < time.monotonic() - start < 2
        child.kill()
        with locked(tmp_path / "lock", 5):
            pass


def test_a_lock_that_is_given_back_by_an_error_can_be_had_again(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "lock", 1):
        raise ZeroDivisionError
    with locked(tmp_path / "lock", 1):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_a_pipe_or_device_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path, kind in ((tmp_path / "pipe", "a named pipe"), (tmp_path / "link", "a character device")):
        with pytest.raises(FileError, match=f"is {kind}, not a regular file"):
            read_bounded(path, 10)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(FileError), locked(tmp_path / "pipe", 0.1):
        pass


def test_reading_stops_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bounded(tmp_path / "a", 5) == b"12345"
    with pytest.raises(FileError, match="larger than the 4 bytes"):
        read_bounded(tmp_path / "a", 4)


def test_a_link_is_followed_only_if_wanted(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "link").symlink_to("a")
    assert read_bounded(tmp_path / "link", 5) == b"1"
    with pytest.raises(OSError, match="symbolic link"):
        read_bounded(tmp_path / "link", 5, follow_symlink=False)


def test_json_round_trips_and_damage_is_said_without_showing_it(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"名": [1, None, "é"]})
    assert read_json(tmp_path / "a.json") == {"名": [1, None, "é"]}
    (tmp_path / "a.json").write_bytes(b'{"apiKey": "sk-very-secret')
    with pytest.raises(FileError, match="not valid JSON") as caught:
        read_json(tmp_path / "a.json")
    assert "secret" not in repr(caught.value) and caught.value.__cause__ is None
    (tmp_path / "a.json").write_bytes(b"[" * 100_000)
    with pytest.raises(FileError, match="not valid JSON"):
        read_json(tmp_path / "a.json")
