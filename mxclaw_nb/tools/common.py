"""What the file tools share: the base of their arguments, the workspace of a call, and lists cut to size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os.path import expanduser
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from ..files import run_in_thread
from ..protocol import CallPreview, Target, ToolContext, ToolFailure, rule_covers_path
from ..workspace import Place, Workspace, quoted, shown

T = TypeVar("T")

LIST_BYTES = 100_000
"""UTF-8 bytes of a list of names that the model is given at most."""


class Arguments(BaseModel):
    """Base of a file tool's arguments: strict types, nothing unknown."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def workspace_of(context: ToolContext) -> Workspace:
    """The workspace of a call; the session's own outputs may be read besides. Raises ToolFailure."""
    return Workspace(context.workspace, home=context.home, readable=(context.outputs,))


async def on_thread(work: Callable[[], T], *, on_cancel: Callable[[], None] = lambda: None) -> T:
    """Run a tool's work beside the loop. Raises ToolFailure for whatever the file system refuses."""
    try:
        return await run_in_thread(work, on_cancel=on_cancel, grace_s=0.9)
    except OSError as error:
        path = f" {quoted(str(error.filename))}" if error.filename else ""
        raise ToolFailure(f"The file system refused{path}: {error.strerror or error}.") from None


async def preview_reading(name: str, path: str, context: ToolContext) -> CallPreview:
    """The preview of a call that reads ``path``; nothing is opened. Raises ToolFailure if it may not be read."""
    place = await on_thread(lambda: workspace_of(context).resolve_for_reading(path))
    return CallPreview(f"{name} {quoted(place.shown)}", targets=targets_of(place))


def targets_of(place: Place) -> tuple[Target, ...]:
    """What a verdict should know of. A stored output is no target: it lies in our own home, and may be read."""
    return () if place.output else (Target(place.path, place.protected),)


@dataclass(frozen=True, slots=True)
class Hidden:
    """Files that deny rules of the user keep from being read: ``read_file(pattern)`` and rules of the tool itself."""

    patterns: tuple[str, ...]

    @classmethod
    def of(cls, rules: Iterable[str], tool: str) -> Hidden:
        """The patterns of the rules that are about reading a file or about ``tool``."""
        patterns = []
        for rule in rules:
            name, _, pattern = rule.strip().partition("(")
            if any(fnmatchcase(each, name.strip()) for each in ("read_file", tool)):
                patterns.append(expanduser(pattern.removesuffix(")").strip()))
        return cls(tuple(patterns))

    def hides(self, path: str) -> bool:
        """Whether the absolute path is covered. The words mean what they mean in a verdict."""
        return any(rule_covers_path(pattern, path) for pattern in self.patterns)


def name_below(place: Place, path: str) -> str:
    """How to name what lies at ``path`` below a place (the place itself for an empty path)."""
    if not path:
        return place.shown
    return shown(path) if place.shown == "." else f"{place.shown}/{shown(path)}"


def fitting(lines: Iterable[str], limit: int = LIST_BYTES) -> list[str]:
    """The first lines that fit into ``limit`` bytes of UTF-8 together."""
    kept: list[str] = []
    for line in lines:
        limit -= len(line.encode("utf-8", "replace")) + 1
        if limit < 0:
            break
        kept.append(line)
    return kept


def counted(number: int, noun: str) -> str:
    """``1 line``, ``2,000 lines``."""
    if number != 1:
        noun = {"entry": "entries", "match": "matches"}.get(noun, f"{noun}s")
    return f"{number:,} {noun}"


def human_size(size: int) -> str:
    """A size in bytes for people: ``12 B``, ``3.4 KB`` (1 KB is 1,024 bytes)."""
    value = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TB"
