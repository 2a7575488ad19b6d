"""A folder of disposable files is kept within its bounds."""

from __future__ import annotations

import os
import time
from pathlib import Path

from mxclaw_nb.files import prune

DAY = 86_400.0


def old(path: Path, days: float, size: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (time.time() - days * DAY,) * 2)
    return path


def test_what_is_too_old_goes_with_its_empty_folder(tmp_path: Path) -> None:
    gone, kept = old(tmp_path / "s-1/a", 100), old(tmp_path / "s-2/b", 10)
    assert prune(tmp_path, max_bytes=10**9, max_age_s=90 * DAY) == 1
    assert not gone.parent.exists() and kept.exists()


def test_the_oldest_go_first_until_the_size_fits(tmp_path: Path) -> None:
    files = [old(tmp_path / f"s/{days}", days, 100) for days in (2, 3, 4, 5)]
    assert prune(tmp_path, max_bytes=250, max_age_s=90 * DAY) == 2
    assert [path.exists() for path in files] == [True, True, False, False]


def test_what_was_just_written_is_never_removed(tmp_path: Path) -> None:
    fresh = old(tmp_path / "s/now", 0, 1000)
    assert prune(tmp_path, max_bytes=1, max_age_s=1) == 0
    assert fresh.exists()


def test_a_symlink_is_not_followed_and_a_missing_folder_is_no_error(tmp_path: Path) -> None:
    outside = old(tmp_path / "outside/precious", 400)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/link").symlink_to(outside.parent)
    (tmp_path / "in/file").symlink_to(outside)
    prune(tmp_path / "in", max_bytes=0, max_age_s=1)
    assert outside.exists()
    assert prune(tmp_path / "nope", max_bytes=0, max_age_s=1) == 0
