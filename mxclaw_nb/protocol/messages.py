"""What is said in a session: messages and tool calls, as they are stored and as the model is shown them."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

Role = Literal["system", "user", "assistant", "tool"]
ToolStatus = Literal["ok", "error", "invalid", "denied", "duplicate", "interrupted"]


def new_id(prefix: str) -> str:
    """A fresh identifier such as ``s-3f9c2e81``; short enough to type, random enough not to be guessed by chance."""
    return f"{prefix}-{secrets.token_hex(5)}"


def now_iso() -> str:
    """The present moment in UTC as ISO 8601 with milliseconds: ``2026-10-23T00:00:00.000Z``.

    Called once an event, so the part down to the second is formatted once a second.
    """
    now = time.time_ns()
    return f"{_second(now // 1_000_000_000)}.{now // 1_000_000 % 1000:03d}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


@dataclass(frozen=True, slots=True)
class Attachment:
    """Something the user mentioned, already resolved to text by the front end."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class UserInput:
    """What the user typed, with the mentions in it resolved."""

    text: str
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as the model wrote it. ``arguments`` is its JSON text, not yet parsed and perhaps malformed."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Message:
    """One message of a session. Immutable; hashed by identity, so that its encoded form can be cached by object.

    ``position`` is the message's place in its session (from 1; 0 before it is stored).
    ``status`` is set on tool messages only; ``incomplete`` marks a reply that was cut off.
    """

    role: Role
    content: str = ""
    id: str = field(default_factory=lambda: new_id("m"))
    turn_id: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str = ""
    status: ToolStatus | None = None
    finish_reason: str | None = None
    incomplete: bool = False
    attachments: tuple[Attachment, ...] = ()
    created_at: str = field(default_factory=now_iso)
    position: int = 0

    __hash__ = object.__hash__
