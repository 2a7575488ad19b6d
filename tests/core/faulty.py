"""A store whose commits can be held back or refused, and a core that uses it. Everything else about it is real."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from mxclaw_nb.core import AgentCore
from mxclaw_nb.protocol import Event, Message, TurnWriter

from .conftest import Stage

Before = Callable[[str, Sequence[Message], Sequence[Event]], Awaitable[None]]
"""Called before each write with ``commit`` or ``release`` and what it is to write; what it raises, the write raises."""


class FaultyWriter:
    """A turn's writer with something happening before its writes."""

    def __init__(self, writer: TurnWriter, before: Before) -> None:
        self._writer, self._before = writer, before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    async def commit(self, *, messages: Sequence[Message] = (), events: Sequence[Event] = (), **more: Any) -> None:
        await self._before("commit", messages, events)
        await self._writer.commit(messages=messages, events=events, **more)

    async def release(self, *, messages: Sequence[Message] = (), events: Sequence[Event] = (), **more: Any) -> None:
        await self._before("release", messages, events)
        await self._writer.release(messages=messages, events=events, **more)


class FaultyStore:
    """A store that gives such writers."""

    def __init__(self, store: Any, wrap: Callable[[TurnWriter], Any]) -> None:
        self._store, self._wrap = store, wrap

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def acquire(self, *arguments: Any, **options: Any) -> Any:
        return self._wrap(await self._store.acquire(*arguments, **options))


def with_faults(stage: Stage, before: Before) -> AgentCore:
    """The stage's core, with ``before`` called before every write of its turns."""
    return with_writers(stage, lambda writer: FaultyWriter(writer, before))


def with_writers(stage: Stage, wrap: Callable[[TurnWriter], Any]) -> AgentCore:
    """The stage's core, with the writers of its turns wrapped."""
    services = stage.core._services
    return AgentCore(replace(services, store=FaultyStore(stage.store, wrap)))
