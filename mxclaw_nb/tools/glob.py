"""glob: files by a pattern over their paths."""

from __future__ import annotations

import heapq
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

from pydantic import BaseModel, Field

from ..protocol import CallPreview, Risk, ToolContext, ToolFailure, ToolResult
from ..workspace import Place, Workspace, quoted
from .common import Arguments, counted, fitting, name_below, on_thread, preview_reading, workspace_of
from .search.patterns import Glob as Pattern
from .search.patterns import PatternError
from .search.walking import Walk

MOST_PATHS = 1_000
TIME_LIMIT_S = 20.0
_MAGIC = frozenset("*?[{\\")


class GlobArguments(Arguments):
    pattern: str = Field(
        min_length=1,
        description="For example `**/*.py` or `src/**/*.{ts,tsx}`: `*` stops at `/`, `**/` is any number of folders.",
    )
    path: str = Field(default=".", description="The folder to start from, relative to the workspace.")


class Glob:
    """Paths that match a pattern, the newest first; what .gitignore excludes is left out."""

    name = "glob"
    description = (
        "Find files in the workspace by a pattern over their paths, newest first, at most 1,000. `*.py` finds in the "
        "start folder only, `**/*.py` in all below it. Hidden files are found; what .gitignore excludes, and .git, is "
        "not. A pattern that ends in `/` finds folders."
    )
    risk: Risk = "read"
    concurrency_safe = True
    arguments: type[BaseModel] = GlobArguments

    async def preview(self, arguments: GlobArguments, context: ToolContext) -> CallPreview:
        """Where would be searched. Raises ToolFailure for a path that may not be read."""
        path, pattern = _split(arguments)
        preview = await preview_reading(self.name, path, context)
        where = preview.summary.removeprefix(f"{self.name} ")
        return replace(preview, summary=f"{self.name} {quoted(pattern)} in {where}")

    async def run(self, arguments: GlobArguments, context: ToolContext, preview: CallPreview) -> ToolResult:
        """The paths. Raises ToolFailure for a pattern that cannot be used or a path that is no folder."""
        stop = threading.Event()
        return await on_thread(lambda: _glob(arguments, context, stop), on_cancel=stop.set)


def _split(arguments: GlobArguments) -> tuple[str, str]:
    """The folder to start from and the pattern below it: leading names without magic belong to the folder."""
    pattern, path = arguments.pattern, arguments.path
    names = pattern.split("/")
    plain = 0
    while plain < len(names) - 1 and not _MAGIC & set(names[plain]):
        plain += 1
    if plain:
        lead = "/".join(names[:plain]) or "/"
        path = lead if pattern.startswith(("/", "~")) else f"{path}/{lead}"
    return path, "/".join(names[plain:])


def _glob(arguments: GlobArguments, context: ToolContext, stop: threading.Event) -> ToolResult:
    path, text = _split(arguments)
    workspace = workspace_of(context)
    try:
        pattern = Pattern(text)
    except PatternError as error:
        raise ToolFailure(f"The pattern {quoted(arguments.pattern)} cannot be used: {error}.") from None
    place = workspace.resolve_for_reading(path)
    if not place.path.is_dir():
        raise ToolFailure(f"{place.shown} is not a folder.")
    search = _Search(workspace, place, pattern, folders=text.endswith("/") or not text, stop=stop)
    newest = heapq.nsmallest(MOST_PATHS, search.found())
    lines = fitting(name_below(place, path) for _, path in newest)
    notes = ["what .gitignore excludes is left out"]
    if search.late:
        notes.insert(0, f"stopped after {TIME_LIMIT_S:.0f} s: not everything was searched")
    if search.skipped:
        notes.append(f"{counted(search.skipped, 'folder')} could not be entered")
    if not lines:
        hint = (
            f" {quoted(f'**/{text}')} would look in all folders below." if "/" not in text and "**" not in text else ""
        )
        return ToolResult(f"No path matches {quoted(arguments.pattern)} ({'; '.join(notes)}).{hint}")
    left = search.count - len(lines)
    notes.insert(0, f"{counted(search.count, 'path')}, newest first" + (f"; {left:,} not shown" if left else ""))
    return ToolResult("\n".join(lines) + f"\n({'; '.join(notes)})")


class _Search:
    """One walk; ``found`` gives what matches, and afterwards the rest says how it went."""

    def __init__(
        self, workspace: Workspace, place: Place, pattern: Pattern, *, folders: bool, stop: threading.Event
    ) -> None:
        self._workspace, self._place, self._pattern = workspace, place, pattern
        self._folders, self._stop = folders, stop
        self._deadline = time.monotonic() + TIME_LIMIT_S
        self.count = self.skipped = 0
        self.late = False

    def found(self) -> Iterator[tuple[int, str]]:
        """For each match its time of change, negative so that the newest sorts first, and its path below the place."""
        with self._workspace.open_folder(self._place) as folder:
            top = os.dup(folder.descriptor) if folder.descriptor is not None else None
            walk = Walk(str(self._place.path), self._enter, descriptor=top)
            for each in walk:
                self.late = time.monotonic() > self._deadline
                if self.late or self._stop.is_set():
                    break
                if each.is_folder == self._folders and self._pattern.matches(each.path):
                    try:
                        changed = each.entry.stat(follow_symlinks=False).st_mtime_ns
                    except OSError:
                        continue  # removed meanwhile
                    self.count += 1
                    yield -changed, each.path
            self.skipped = walk.skipped

    def _enter(self, path: str, key: tuple[int, int]) -> bool:
        return not self._workspace.is_refused(key) and (self._folders or self._pattern.may_match_below(path))
