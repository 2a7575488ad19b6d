"""Reading the found lines again from files that cannot have been swapped.

An engine opens files by their names, one after another; a name may by then be a symbolic link that leads out. So what
is shown is never what the engine printed, but what stands at that place in a file opened step by step.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from mxclaw_nb.files import Folder

from .engine import Match
from .matcher import LONGEST_SHOWN

_SLACK = 256  # bytes by which an engine may cut a line earlier, or add a remark of its own
_BEFORE = 480  # bytes before a match that lies far inside a line
_LARGEST_WIDE = 8 << 20  # bytes of a UTF-16 file that are looked through
_WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


@dataclass(frozen=True, slots=True)
class Line:
    """A part of a line, and where the match starts in it (bytes); ``starts`` and ``ends``: the line does there."""

    data: bytes
    column: int
    starts: bool
    ends: bool


class LineReader:
    """Reads lines below an open folder, or of one open file; a context manager. Fast for matches sorted by path.

    ``refused`` says of a file's status or a folder's (device, inode) that it may not be read.
    """

    def __init__(
        self,
        where: Folder | int,
        *,
        refused_file: Callable[[os.stat_result], bool],
        refused_folder: Callable[[tuple[int, int]], bool],
    ) -> None:
        self._where = where
        self._refused_file, self._refused_folder = refused_file, refused_folder
        self._way: str | None = None
        self._folder: Folder | None = None
        self._path: str | None = None
        self._file: int | None = None
        self._mark = b""

    def line(self, match: Match) -> Line | None:
        """The line that was found, None if it is not there (any more) or may not be read."""
        return self._line(match) or self._line(match.without_column())

    def _line(self, match: Match) -> Line | None:
        try:
            file = self._open(match.path)
            if file is None:
                return None
            if self._mark in _WIDE:
                return self._wide_line(file, match)
            base = match.offset + len(self._mark)
            far = match.column > LONGEST_SHOWN - _SLACK
            start = base + match.column - _BEFORE if far else base
            data = os.pread(file, LONGEST_SHOWN, start)
        except OSError:
            return None
        line, newline, _ = data.partition(b"\n")
        ends = bool(newline) or len(data) < LONGEST_SHOWN
        line = line.removesuffix(b"\r") if ends else line
        if far:
            kept = line.lstrip(bytes(range(0x80, 0xC0)))  # not from the middle of a character
            return Line(kept, _BEFORE - (len(line) - len(kept)), False, ends)
        compared = min(len(line), len(match.text), LONGEST_SHOWN - _SLACK)
        if line[:compared] != match.text[:compared] or len(line) <= match.column - 1:
            return None
        return Line(line, match.column, True, ends)

    def _wide_line(self, file: int, match: Match) -> Line | None:
        """A line of a UTF-16 file, whose places an engine counts in UTF-8."""
        text = match.text.decode("utf-8", "replace")
        content = os.pread(file, _LARGEST_WIDE, len(self._mark)).decode(_WIDE[self._mark], "replace")
        whole = len(match.text) < LONGEST_SHOWN - _SLACK
        if (text if whole else text[: LONGEST_SHOWN // 8]) not in content:
            return None
        return Line(match.text, min(match.column, len(match.text)), True, whole)

    def _open(self, path: str) -> int | None:
        if isinstance(self._where, int):
            if self._path is None:
                self._path, self._mark = path, _mark(self._where)
            return self._where
        if path == self._path:
            return self._file
        self._close_file()
        way, _, name = path.rpartition("/")
        if way != self._way:
            self._enter(way)
        file = self._folder.open_file(name) if self._folder is not None else None
        if file is not None and self._refused_file(os.fstat(file)):
            os.close(file)
            file = None
        self._path, self._file = path, file
        self._mark = _mark(file) if file is not None else b""
        return file

    def _enter(self, way: str) -> None:
        assert isinstance(self._where, Folder)
        self._close_folder()
        folder = self._where
        for name in way.split("/") if way else ():
            below = folder.child(name)
            if folder is not self._where:
                folder.close()
            folder = below
            if self._refused_folder(folder.key):
                folder.close()
                return
        self._way, self._folder = way, folder

    def _close_file(self) -> None:
        self._path = None
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _close_folder(self) -> None:
        if self._folder is not None and self._folder is not self._where:
            self._folder.close()
        self._folder = self._way = None

    def __enter__(self) -> LineReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_file()
        self._close_folder()


def _mark(file: int) -> bytes:
    head = os.pread(file, 3, 0)
    return next((mark for mark in (codecs.BOM_UTF8, *_WIDE) if head.startswith(mark)), b"")
