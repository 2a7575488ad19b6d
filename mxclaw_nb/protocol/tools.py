"""What a tool is, what it is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from .messages import ToolStatus
from .settings import Settings

Risk = Literal["read", "write", "execute"]
DetailKind = Literal["text", "command", "diff"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is told of it. ``parameters`` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """A file that a call would touch: its resolved absolute path, and what kind of place that is."""

    path: Path
    protected: bool = False


@dataclass(frozen=True, slots=True)
class CallPreview:
    """What exactly a call would do, for the person who is asked and for the verdict. Made without side effects.

    ``summary`` is one line; ``detail`` is the command, or the unified diff, in full. ``fingerprint`` names the
    state of the file that the diff was made from: ``run`` refuses when it has changed since.
    """

    summary: str
    detail: str = ""
    detail_kind: DetailKind = "text"
    targets: tuple[Target, ...] = ()
    command: str | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a running call may know. ``emit`` shows live output; call it from the event loop's thread only.

    ``workspace`` is the resolved root; ``outputs`` the session's own folder for long output (made on first need);
    ``home`` our home directory, which no tool may touch otherwise. ``redact`` takes the keys out of a text: what a
    call keeps on disk itself goes through it (core redacts what the call returns and emits).
    """

    session_id: str
    turn_id: str
    call_id: str
    workspace: Path
    outputs: Path
    home: Path
    settings: Settings = field(default_factory=Settings)
    emit: Callable[[str], None] = lambda _delta: None
    redact: Callable[[str], str] = lambda text: text


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call came to. ``content`` is what the model reads, already cut to size.

    ``timed_out`` tells a call that ran out of time (its status is error) from one that failed: it may be repeated.
    """

    content: str
    status: ToolStatus = "ok"
    exit_code: int | None = None
    output_path: str | None = None
    timed_out: bool = False


class Tool(Protocol):
    """One tool. ``arguments`` is the pydantic model that its JSON is validated against (strict, extra forbidden).

    ``preview`` and ``run`` raise ToolFailure for everything the model can do something about. ``run`` ends within
    1 s of being cancelled, with nothing of it left running.
    """

    name: str
    description: str
    risk: Risk
    concurrency_safe: bool
    arguments: type[BaseModel]

    async def preview(self, arguments: Any, context: ToolContext) -> CallPreview: ...

    async def run(self, arguments: Any, context: ToolContext, preview: CallPreview) -> ToolResult: ...


def tool_spec(tool: Tool) -> ToolSpec:
    """The tool as the model is told of it."""
    return ToolSpec(tool.name, tool.description, _schema(tool.arguments))


@lru_cache(maxsize=256)
def _schema(arguments: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON schema of a tool's arguments; pydantic takes a millisecond to make one, and every turn asks."""
    return arguments.model_json_schema()
