"""An open folder. Names in it are reached through its descriptor, so that nobody can swap the path in between.

Where the system has no such calls (Windows) the same operations go by path.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from .errors import FileError

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.rename in os.supports_dir_fd
_DIRECTORY = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FILE = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_NO_ATTRIBUTES = {errno.ENOTSUP, errno.EPERM, errno.ENODATA if hasattr(errno, "ENODATA") else errno.EPERM}


class Folder:
    """An open folder; a context manager that closes it. ``path`` is only for messages, ``key`` is (device, inode)."""

    def __init__(self, path: Path, descriptor: int | None, *, may_be_listed: bool = True) -> None:
        self.path = path
        self.descriptor = descriptor
        self._may_be_listed = may_be_listed
        found = os.fstat(descriptor) if descriptor is not None else os.stat(path)
        self.key = (found.st_dev, found.st_ino)

    @classmethod
    def open(cls, path: Path, *, follow_symlink: bool = True) -> Folder:
        """Open the folder at ``path``. Raises OSError (also if it is no folder, or a symbolic link not to follow)."""
        if not _BY_DESCRIPTOR:
            if not path.is_dir() or (path.is_symlink() and not follow_symlink):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
            return cls(path, None)
        return cls._opened(path, path, None, 0 if follow_symlink else _NOFOLLOW)

    @classmethod
    def _opened(cls, path: Path, name: Path | str, above: int | None, flags: int) -> Folder:
        listable = True
        try:
            descriptor = os.open(name, os.O_RDONLY | _DIRECTORY | flags, dir_fd=above)
        except PermissionError:
            if not hasattr(os, "O_PATH"):
                raise
            listable = False
            descriptor = os.open(name, os.O_PATH | _DIRECTORY | flags, dir_fd=above)
        try:
            return cls(path, descriptor, may_be_listed=listable)
        except BaseException:
            os.close(descriptor)
            raise

    def child(self, name: str, *, create: bool = False) -> Folder:
        """The folder ``name`` in this one, made first if asked. Never follows a symbolic link. Raises OSError."""
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._at(name), dir_fd=self.descriptor)
        if self.descriptor is None:
            return Folder.open(self.path / name, follow_symlink=False)
        return self._opened(self.path / name, name, self.descriptor, _NOFOLLOW)

    def stat(self, name: str) -> os.stat_result | None:
        """What ``name`` is, a symbolic link not followed; None if there is nothing. Raises OSError."""
        try:
            return os.stat(self._at(name), dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def scan(self) -> Iterator[os.DirEntry[str]]:
        """The entries, in the order of the disk. Raises OSError."""
        if not self._may_be_listed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self.path))
        with os.scandir(self.path if self.descriptor is None else self.descriptor) as entries:
            yield from entries

    def read_link(self, name: str) -> str:
        """Where the symbolic link ``name`` points. Raises OSError."""
        return os.readlink(self._at(name), dir_fd=self.descriptor)

    def open_file(self, name: str) -> int:
        """A descriptor for reading the regular file ``name``; never follows a symbolic link, never blocks.

        What is no regular file is refused before it is opened, since opening a device can do things, and again after.
        Raises FileError for anything but a regular file, else OSError.
        """
        found = os.stat(self._at(name), dir_fd=self.descriptor, follow_symlinks=False)
        require_regular(found, self.path / name)
        flags = os.O_RDONLY | _FILE | _NONBLOCK | _NOFOLLOW
        descriptor = os.open(self._at(name), flags, dir_fd=self.descriptor)
        try:
            require_regular(os.fstat(descriptor), self.path / name)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def replace(self, name: str, data: bytes, *, mode: int | None, keep_mode: bool = False) -> None:
        """Make ``data`` the content of ``name`` at one stroke: whoever reads sees the old content or the new.

        A temporary file in this folder is written, synced and renamed over ``name``; it is removed if anything fails.
        ``mode`` None means a new file as the umask wants it. ``keep_mode`` keeps mode, owner and access list of a
        regular file that is there. A symbolic link at ``name`` is replaced, not followed. Raises OSError.
        """
        old = self.stat(name) if keep_mode else None
        if old is not None and not stat.S_ISREG(old.st_mode):
            old = None
        temporary = f".mxclaw-{secrets.token_hex(8)}.tmp"
        creation = 0o666 if mode is None and old is None else 0o600
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE | _NOFOLLOW
        descriptor = os.open(self._at(temporary), flags, creation, dir_fd=self.descriptor)
        try:
            try:
                _write_all(descriptor, data)
                if old is not None:
                    self._take_over(descriptor, name, old)
                elif mode is not None and hasattr(os, "fchmod"):
                    os.fchmod(descriptor, mode)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(self._at(temporary), self._at(name), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(self._at(temporary), dir_fd=self.descriptor)
            raise
        self.sync()

    def sync(self) -> None:
        """Make the names in this folder survive a power cut, where the file system can."""
        if self.descriptor is None:
            return
        with contextlib.suppress(OSError):  # a folder that may not be listed, a file system without it
            os.fsync(self.descriptor)

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _at(self, name: str) -> str:
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise FileError(f"{name!r} is not the name of a file in a folder.")
        return name if self.descriptor is not None else str(self.path / name)

    def _take_over(self, descriptor: int, name: str, old: os.stat_result) -> None:
        """Give the new file the owner, access list and mode of the old one, as far as we may."""
        if not hasattr(os, "fchmod"):
            return
        made = os.fstat(descriptor)
        mode = stat.S_IMODE(old.st_mode)
        if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
            try:
                os.fchown(descriptor, old.st_uid, old.st_gid)
            except PermissionError:
                mode &= ~(stat.S_ISUID | stat.S_ISGID)  # not the same owner: those bits would mean something else
        self._copy_attributes(descriptor, name)
        os.fchmod(descriptor, mode)

    def _copy_attributes(self, descriptor: int, name: str) -> None:
        if not hasattr(os, "listxattr"):
            return
        try:
            source = self.open_file(name)
        except OSError:
            return  # may be written but not read: nothing can be copied
        try:
            for attribute in os.listxattr(source):
                if attribute.startswith("user.") or attribute == "system.posix_acl_access":
                    os.setxattr(descriptor, attribute, os.getxattr(source, attribute))
        except OSError as error:
            if error.errno not in _NO_ATTRIBUTES:
                raise
        finally:
            os.close(source)


def require_regular(found: os.stat_result, path: Path) -> None:
    """Raise FileError unless ``found`` is a regular file (IsADirectoryError for a folder)."""
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise FileError(f"{path} is {kind_of(found.st_mode)}, not a regular file.")


def kind_of(mode: int) -> str:
    """What kind of thing a mode stands for, in words, with its article."""
    for is_kind, words in (
        (stat.S_ISREG, "a regular file"), (stat.S_ISDIR, "a folder"), (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a character device"),
        (stat.S_ISBLK, "a block device"),
    ):  # fmt: skip
        if is_kind(mode):
            return words
    return "something unknown"


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
