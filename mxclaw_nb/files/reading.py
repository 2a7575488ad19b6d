"""Reading whole files without surprises: regular files only, never blocking, never more than expected."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import FileError
from .folder import Folder

_CHUNK = 1 << 20


def open_regular(path: Path, *, follow_symlink: bool = True) -> int:
    """A descriptor for reading the regular file at ``path``; the caller closes it.

    A pipe or a device is refused before it is opened, and never waited for. Raises FileError for anything but a
    regular file (IsADirectoryError for a folder), FileNotFoundError, PermissionError or another OSError.
    """
    path = Path(os.path.realpath(path, strict=True)) if follow_symlink else Path(os.path.abspath(path))
    with Folder.open(path.parent) as folder:
        return folder.open_file(path.name)


def read_bounded(path: Path, limit: int, *, follow_symlink: bool = True) -> bytes:
    """The content of a regular file of at most ``limit`` bytes.

    Raises FileError if it is larger or no regular file, FileNotFoundError, PermissionError or another OSError.
    """
    descriptor = open_regular(path, follow_symlink=follow_symlink)
    try:
        return read_descriptor(descriptor, limit, path)
    finally:
        os.close(descriptor)


def read_descriptor(descriptor: int, limit: int, path: Path) -> bytes:
    """What is left to read from an open regular file, at most ``limit`` bytes; ``path`` is for messages."""
    parts: list[bytes] = []
    size = 0
    while True:
        try:
            part = os.read(descriptor, min(_CHUNK, limit + 1 - size))
        except BlockingIOError:
            raise FileError(f"{path} has nothing to read at once; it is not an ordinary file.") from None
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > limit:
            raise FileError(f"{path} is larger than the {limit:,} bytes that are read at most.")
