"""The walk through a tree: no symbolic link followed, .gitignore obeyed, each folder opened from the one above."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .ignore import Ignores, ignores_at

_DEEPEST = 200
_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True, slots=True)
class Found:
    """An entry. ``path`` is relative to the top; ``folder`` the descriptor of the entry's folder (None: by path)."""

    path: str
    entry: os.DirEntry[str]
    folder: int | None
    is_folder: bool


class Walk:
    """Everything below the real folder ``top``, in the order of the paths; folders before what is in them.

    ``enter`` says whether to go into a folder (its relative path, device and inode). ``.git`` is left out.
    ``descriptor``, if given, is the open folder ``top``; the walk closes it.
    ``skipped`` counts the folders that could not be entered.
    """

    def __init__(
        self, top: str, enter: Callable[[str, tuple[int, int]], bool], *, descriptor: int | None = None
    ) -> None:
        self._top = top
        self._descriptor = descriptor
        self._enter = enter
        self.skipped = 0

    def __iter__(self) -> Iterator[Found]:
        descriptor = self._descriptor
        if descriptor is None and _BY_DESCRIPTOR:
            descriptor = os.open(self._top, _FOLDER & ~getattr(os, "O_NOFOLLOW", 0))
        yield from self._folder("", self._top, descriptor, None, 0)

    def _folder(
        self, way: str, full: str, descriptor: int | None, above: Ignores | None, depth: int
    ) -> Iterator[Found]:
        """What is in the folder ``full``; ``descriptor`` is closed. ``above`` None means the top."""
        try:
            try:
                with os.scandir(full if descriptor is None else descriptor) as scan:
                    entries = sorted(scan, key=lambda entry: entry.name)
            except OSError:
                self.skipped += 1
                return
            names = {entry.name for entry in entries}
            if above is None:
                ignores = ignores_at(os.path.abspath(full))
            else:
                name = os.path.basename(full)
                ignores = above.below(name, full, has_rules=".gitignore" in names, is_repository=".git" in names)
            for entry in entries:
                try:
                    is_folder = entry.is_dir(follow_symlinks=False)
                except OSError:  # a file system that does not tell kinds, and the entry is gone
                    continue
                if entry.name == ".git" or ignores.excludes(entry.name, is_folder=is_folder):
                    continue
                path = f"{way}{entry.name}"
                if not is_folder:
                    yield Found(path, entry, descriptor, False)
                elif self._may_enter(path, entry):
                    yield Found(path, entry, descriptor, True)
                    inner = self._open(entry.name, descriptor, depth)
                    if inner is not None:
                        yield from self._folder(
                            f"{path}/", os.path.join(full, entry.name), inner[0], ignores, depth + 1
                        )
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _may_enter(self, path: str, entry: os.DirEntry[str]) -> bool:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            return False
        return self._enter(path, (found.st_dev, found.st_ino))

    def _open(self, name: str, above: int | None, depth: int) -> tuple[int | None] | None:
        """The folder's descriptor (None where there are no such calls), or None if it cannot be entered."""
        if depth < _DEEPEST:
            try:
                return (os.open(name, _FOLDER, dir_fd=above) if above is not None else None,)
            except OSError:
                pass
        self.skipped += 1
        return None
