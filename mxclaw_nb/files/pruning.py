"""Keeping a folder of disposable files within its bounds of size and age."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path


def prune(folder: Path, *, max_bytes: int, max_age_s: float, spare_s: float = 86_400.0) -> int:
    """Remove the oldest files below ``folder`` until it fits ``max_bytes`` and none is older than ``max_age_s``.

    Files younger than ``spare_s`` are never removed, so that what a running turn has just written stays. Empty
    folders go too. Follows no symlink; what cannot be removed is passed over. Returns how many files went.
    """
    now = time.time()
    found = sorted(_files(folder))
    total = sum(size for _, size, _ in found)
    removed = 0
    for changed, size, path in found:
        age = now - changed
        if age <= spare_s or (age <= max_age_s and total <= max_bytes):
            continue
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size
            removed += 1
    if removed:
        _remove_empty_folders(folder)
    return removed


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with contextlib.suppress(OSError):  # gone meanwhile
                found = path.lstat()
                if stat.S_ISREG(found.st_mode):
                    yield found.st_mtime, found.st_size, path


def _remove_empty_folders(folder: Path) -> None:
    for parent, _, _ in os.walk(folder, topdown=False):
        if Path(parent) != folder:
            with contextlib.suppress(OSError):  # not empty
                Path(parent).rmdir()
