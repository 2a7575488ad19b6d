"""list_dir: what is in a folder."""

from __future__ import annotations

import heapq
import os
import stat
import threading
from collections.abc import Iterator

from pydantic import BaseModel, Field

from ..files import Folder
from ..protocol import CallPreview, Risk, ToolContext, ToolFailure, ToolResult
from ..workspace import shown
from .common import Arguments, counted, fitting, human_size, on_thread, preview_reading, workspace_of

MOST_ENTRIES = 1_000


class ListDirArguments(Arguments):
    path: str = Field(default=".", description="The folder, relative to the workspace or absolute inside it.")


class ListDir:
    """The entries of a folder by name, with sizes; hidden ones too."""

    name = "list_dir"
    description = (
        "List a folder in the workspace, hidden entries included: folders end in `/`, links show where they point, "
        "files show their size. At most 1,000 entries. Use glob to find files in a whole tree."
    )
    risk: Risk = "read"
    concurrency_safe = True
    arguments: type[BaseModel] = ListDirArguments

    async def preview(self, arguments: ListDirArguments, context: ToolContext) -> CallPreview:
        """What would be listed. Raises ToolFailure for a path that may not be read."""
        return await preview_reading(self.name, arguments.path, context)

    async def run(self, arguments: ListDirArguments, context: ToolContext, preview: CallPreview) -> ToolResult:
        """The list. Raises ToolFailure if it is no folder or may not be listed."""
        stop = threading.Event()
        return await on_thread(lambda: _list(arguments.path, context, stop), on_cancel=stop.set)


def _list(path: str, context: ToolContext, stop: threading.Event) -> ToolResult:
    workspace = workspace_of(context)
    place = workspace.resolve_for_reading(path)
    if not place.path.is_dir():
        raise ToolFailure(f"{place.shown} is not a folder. Use read_file to see a file.")
    total = 0

    def names() -> Iterator[str]:
        nonlocal total
        for entry in folder.scan():
            total += 1
            if stop.is_set():
                raise ToolFailure("Listing was stopped.")
            yield entry.name

    with workspace.open_folder(place) as folder:
        try:
            first = heapq.nsmallest(MOST_ENTRIES, names())
        except OSError as error:
            raise ToolFailure(f"{place.shown} cannot be listed: {error.strerror or error}.") from None
        lines = fitting(_described(folder, name) for name in first)
    if not total:
        return ToolResult(f"{place.shown} is an empty folder.")
    left = total - len(lines)
    cut = f"\n({counted(total, 'entry')}; the last {left:,} by name are not shown)" if left else ""
    return ToolResult("\n".join(lines) + cut)


def _described(folder: Folder, name: str) -> str:
    text = shown(name)
    try:
        found = folder.stat(name)
        if found is None:
            return f"{text}  (just removed)"
        if stat.S_ISDIR(found.st_mode):
            return f"{text}/"
        if stat.S_ISLNK(found.st_mode):
            return f"{text} -> {shown(folder.read_link(name))}"
        if stat.S_ISREG(found.st_mode):
            return f"{text}  {human_size(found.st_size)}"
        return f"{text}  ({_special(found)})"
    except OSError as error:
        return f"{text}  ({error.strerror})"


def _special(found: os.stat_result) -> str:
    for is_kind, words in ((stat.S_ISFIFO, "named pipe"), (stat.S_ISSOCK, "socket"), (stat.S_ISBLK, "block device")):
        if is_kind(found.st_mode):
            return words
    return "character device"
