"""Files that are never half written, and folders that nobody else can look into."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .errors import FileError
from .folder import Folder, kind_of


def write_atomic(
    path: Path, data: bytes, *, mode: int | None = 0o600, keep_mode: bool = False, follow_symlink: bool = False
) -> None:
    """Make ``data`` the content of ``path`` at one stroke, safe against a crash and a power cut.

    ``mode`` is exact whatever the umask; None means a new file as the umask wants it. ``keep_mode`` keeps mode and
    owner of a file that is there. A symbolic link at ``path`` is replaced; with ``follow_symlink`` the file that it
    leads to is written instead. The folder must exist.
    Raises OSError; then the old content stands and no temporary file is left.
    """
    path = Path(os.path.realpath(path)) if follow_symlink else Path(os.path.abspath(path))
    with Folder.open(path.parent) as folder:
        found = folder.stat(path.name)
        if found is not None and not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            raise FileError(f"{path} is {kind_of(found.st_mode)}, not a file that could be written.")
        folder.replace(path.name, data, mode=mode, keep_mode=keep_mode)


def make_private_dir(path: Path) -> None:
    """Make the folder, and missing ones above it, with mode 0700; tighten it if it is open to others. Idempotent.

    Raises OSError, FileError among them, if it is no folder or cannot be made private.
    """
    path = Path(os.path.abspath(path))
    missing: list[Path] = []
    while not os.path.lexists(path):
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        try:
            os.mkdir(folder, 0o700)
            os.chmod(folder, 0o700)  # the umask may have taken our own rights away
        except FileExistsError:
            continue  # another process was quicker
    path = missing[0] if missing else path
    if not path.is_dir():
        raise FileError(f"{path} should be a folder, but it is something else. Move it away.")
    if not hasattr(os, "fchmod"):
        return
    with Folder.open(path) as opened:
        assert opened.descriptor is not None
        if stat.S_IMODE(os.fstat(opened.descriptor).st_mode) & 0o077:
            os.chmod(path, 0o700)
