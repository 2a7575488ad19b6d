"""The workspace: which paths a tool may touch, and opening exactly what was judged."""

from __future__ import annotations

import difflib
import errno
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mxclaw_nb.files import FileError, Folder
from mxclaw_nb.protocol import ToolFailure

from .names import plain_name, quoted, shown
from .protected import is_protected
from .walking import Walked, walk

_Key = tuple[int, int]
_LONGEST_NAME, _LONGEST_PATH = 255, 4_096  # bytes; the limits of nearly all systems
_MOST_NAMES = 2_000  # looked through for a better suggestion, or for another name of one of our own files


@dataclass(frozen=True, slots=True)
class Place:
    """A path that was judged and found allowed.

    ``path`` is real and absolute; ``shown`` is how to name it (relative to the workspace where it lies inside);
    ``parts`` are its names below ``base``. ``output``: it lies among the session's own outputs, not in the workspace.
    """

    path: Path
    shown: str
    base: Path
    parts: tuple[str, ...]
    exists: bool
    protected: bool = False
    output: bool = False


class Workspace:
    """The folder that tools may work in. ``home`` is our own, refused always; ``readable`` may be read besides.

    Everything judged by name is checked again when it is opened: names are followed from the root's descriptor, and
    no symbolic link is followed on the way, so that one swapped in meanwhile leads nowhere.
    Raises ToolFailure if ``root`` is no folder.
    """

    def __init__(self, root: Path, *, home: Path, readable: tuple[Path, ...] = ()) -> None:
        self.root = Path(os.path.realpath(root))
        self._root_key = _key(self.root)
        if self._root_key is None or not self.root.is_dir():
            raise ToolFailure(f"The workspace {shown(str(root))} does not exist or is not a folder.")
        self.home = Path(os.path.realpath(home))
        self._home_key = _key(self.home)
        self._home_plain = _plain(self.home)
        self._kernels = _devices("/proc", "/sys") - {self._root_key[0]}
        self.readable = tuple(Path(os.path.realpath(folder)) for folder in readable)

    def resolve_for_reading(self, text: str) -> Place:
        """The existing file or folder that ``text`` names, in the workspace or under a readable folder.

        Raises ToolFailure: ``denied`` outside, ``error`` if there is none.
        """
        walked = self._walk(text)
        for folder in self.readable:
            if walked.path.is_relative_to(folder):
                parts = walked.path.relative_to(folder).parts
                place = Place(walked.path, shown(str(walked.path)), folder, parts, walked.exists, output=True)
                break
        else:
            place = self._judge(text, walked)
        if walked.problem:
            raise ToolFailure(f"{quoted(text)} {walked.problem}.")
        if walked.dangling:
            raise ToolFailure(f"{quoted(text)} is a symbolic link whose target {place.shown} does not exist.")
        if not walked.exists:
            raise ToolFailure(f"{quoted(text)} does not exist.{_suggestion(place)}")
        return place

    def resolve_for_writing(self, text: str) -> Place:
        """The file that ``text`` names or would name; it and folders above it may be missing.

        Raises ToolFailure: ``denied`` outside the workspace, behind a link that leads out, and for a dangling link.
        """
        walked = self._walk(text)
        if any(walked.path.is_relative_to(folder) for folder in self.readable):
            raise ToolFailure(f"{quoted(text)} is a stored output: it can be read, not changed.", status="denied")
        place = self._judge(text, walked)
        if walked.problem:
            raise ToolFailure(f"{quoted(text)} {walked.problem}.")
        if walked.dangling:
            raise ToolFailure(
                f"{quoted(text)} is a symbolic link whose target {place.shown} does not exist; writing through it is "
                "refused. Name the target itself.",
                status="denied",
            )
        if not place.parts:
            raise ToolFailure(f"{quoted(text)} is the workspace itself, not a file in it.")
        return place

    def open_file(self, place: Place) -> int:
        """A descriptor for reading the regular file; the caller closes it.

        Raises ToolFailure if it is no regular file, or no longer what was judged.
        """
        with self.open_parent(place) as folder, _explained(place):
            descriptor = folder.open_file(place.path.name)
        try:
            self._refuse_own_file(descriptor, place)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def open_folder(self, place: Place) -> Folder:
        """The folder itself, opened; the caller closes it. Raises ToolFailure."""
        return self._descend(place, place.parts)

    def open_parent(self, place: Place, *, create: bool = False) -> Folder:
        """The folder that holds the file, opened, and made first if asked; the caller closes it. Raises ToolFailure."""
        if not place.parts:
            raise ToolFailure(f"{place.shown} is a folder, not a file.")
        return self._descend(place, place.parts[:-1], create=create)

    def is_refused(self, key: tuple[int, int]) -> bool:
        """Whether the folder with this device and inode is never entered: our own home, or the kernel's /proc or /sys.

        What is in the latter looks like files, but holds other programs' secrets, and writing it changes the machine.
        """
        return key == self._home_key or key[0] in self._kernels

    def is_own_file(self, found: os.stat_result) -> bool:
        """Whether a file is one of our home directory's under a second name (a hard link)."""
        if found.st_nlink < 2 or self._home_key is None:
            return False
        return (found.st_dev, found.st_ino) in itertools.islice(self._own_files(), _MOST_NAMES)

    def may_hold_home(self, folder: Path) -> bool:
        """Whether our own home directory lies below a real path (or is it), by name."""
        above = _plain(folder)
        return self._home_plain[: len(above)] == above

    def names_home(self, path: Path) -> bool:
        """Whether a real path lies in our own home directory (or is it), by name."""
        return _plain(path)[: len(self._home_plain)] == self._home_plain

    def _walk(self, text: str) -> Walked:
        if not text:
            raise ToolFailure("The path is empty. Name a file or folder, relative to the workspace.")
        if "\0" in text:
            raise ToolFailure("The path holds a NUL character, which no file name can.")
        try:
            names = os.fsencode(text).split(b"/")
        except UnicodeEncodeError:
            raise ToolFailure("The path holds half a character (a lone surrogate), which no file name can.") from None
        if len(text) > _LONGEST_PATH or any(len(name) > _LONGEST_NAME for name in names):
            raise ToolFailure(f"{quoted(text)} is longer than a path may be (255 bytes a name, 4,096 in all).")
        return walk(self.root, os.path.expanduser(text))

    def _judge(self, text: str, walked: Walked) -> Place:
        if self._in_home(walked.path):
            raise ToolFailure(
                f"{quoted(text)} belongs to mxclaw's own folder {shown(str(self.home))}, which tools never touch.",
                status="denied",
            )
        parts = self._below_root(walked.path)
        if parts is None:
            leads = "" if shown(str(walked.path)) == shown(text) else f" (it leads to {shown(str(walked.path))})"
            raise ToolFailure(
                f"{quoted(text)}{leads} lies outside the workspace {shown(str(self.root))}. Only files inside it can "
                "be touched.",
                status="denied",
            )
        path = self.root.joinpath(*parts)
        return Place(path, shown("/".join(parts)) or ".", self.root, parts, walked.exists, is_protected(parts))

    def _below_root(self, path: Path) -> tuple[str, ...] | None:
        if path.is_relative_to(self.root):
            return path.relative_to(self.root).parts
        for ancestor in (path, *path.parents):  # another spelling of the root, where case makes no difference
            if _key(ancestor) == self._root_key:
                return path.parts[len(ancestor.parts) :]
        return None

    def _in_home(self, path: Path) -> bool:
        if self.names_home(path):
            return True
        return self._home_key is not None and any(_key(above) == self._home_key for above in (path, *path.parents))

    def _descend(self, place: Place, parts: tuple[str, ...], *, create: bool = False) -> Folder:
        with _explained(place):
            folder = Folder.open(place.base)
        try:
            if not place.output:
                if folder.key != self._root_key:
                    raise _changed(place)
                self._refuse_entering(folder, place)
            for part in parts:
                with folder, _explained(place):
                    below = folder.child(part, create=create)
                folder = below
                if not place.output:
                    self._refuse_entering(folder, place)
        except BaseException:
            folder.close()
            raise
        return folder

    def _refuse_entering(self, folder: Folder, place: Place) -> None:
        if folder.key[0] in self._kernels:
            raise ToolFailure(
                f"{place.shown} is in a file system of the kernel's own, which tools never touch.", status="denied"
            )
        if folder.key == self._home_key:
            raise ToolFailure(
                f"{place.shown} leads into mxclaw's own folder, which tools never touch.", status="denied"
            )

    def _refuse_own_file(self, descriptor: int, place: Place) -> None:
        if not place.output and self.is_own_file(os.fstat(descriptor)):
            raise ToolFailure(f"{place.shown} is a file of mxclaw's own, which tools never touch.", status="denied")

    def _own_files(self) -> Iterator[_Key]:
        for folder in (self.home, self.home / "memory"):
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    with suppress(OSError):
                        found = entry.stat(follow_symlinks=False)
                        yield found.st_dev, found.st_ino


@contextmanager
def _explained(place: Place) -> Iterator[None]:
    """Turns what the system says about a place into a ToolFailure."""
    try:
        yield
    except IsADirectoryError:
        raise ToolFailure(f"{place.shown} is a folder. Only regular files can be read.") from None
    except FileError as error:
        what = error.message.rpartition(" is ")[2]
        raise ToolFailure(f"{place.shown} is {what} Only regular files can be read.") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
            raise _changed(place) from None
        raise ToolFailure(f"{place.shown} cannot be opened: {error.strerror or error}.") from None


def _changed(place: Place) -> ToolFailure:
    return ToolFailure(
        f"{place.shown} was replaced by something else while it was being opened; nothing was done. Look again.",
        status="denied",
    )


def _key(path: Path) -> _Key | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _devices(*paths: str) -> set[int]:
    return {key[0] for key in map(_key, map(Path, paths)) if key is not None}


def _plain(path: Path) -> tuple[str, ...]:
    return tuple(plain_name(part) for part in path.parts)


def _suggestion(place: Place) -> str:
    """`` Did you mean "src/app.py"?`` if a name in the same folder is close."""
    names: list[str] = []
    with suppress(OSError), os.scandir(place.path.parent) as entries:
        names = [entry.name for entry in itertools.islice(entries, _MOST_NAMES)]
    wanted = plain_name(place.path.name)
    same = [name for name in names if plain_name(name) == wanted]
    close = same or difflib.get_close_matches(place.path.name, names, n=1, cutoff=0.7)
    if not close:
        return ""
    return f' Did you mean "{shown("/".join((*place.parts[:-1], close[0])))}"?'
