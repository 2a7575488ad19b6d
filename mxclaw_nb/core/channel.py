"""The bounded queue between a turn and the one consumer of its events."""

from __future__ import annotations

import asyncio
from collections import deque

from mxclaw_nb.protocol import Event, MessageDelta, ReasoningDeltaEvent, ToolOutput

_COALESCE_AT = 256
"""Events that may wait before deltas are merged: a slow consumer gets longer deltas, never a stalled turn."""


class Channel:
    """One producer and one consumer on one event loop. ``put`` never waits.

    When the consumer is slow, a delta is merged into the one before it (the later sequence number stands), so what
    waits is bounded by the number of other events, of which a turn has few.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def put(self, event: Event) -> None:
        if len(self._events) >= _COALESCE_AT:
            merged = _merge(self._events[-1], event)
            if merged is not None:
                self._events[-1] = merged
                return
        self._events.append(event)
        self._wake()

    def close(self) -> None:
        """No more events; the consumer still gets those that wait."""
        self._closed = True
        self._wake()

    async def get(self) -> Event | None:
        """The next event, or None after the last one. Safe to cancel: no event is lost."""
        while not self._events:
            if self._closed:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._events.popleft()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _merge(last: Event, event: Event) -> Event | None:
    """Both deltas as one with the later number, or None if they do not belong together."""
    if isinstance(event, MessageDelta) and isinstance(last, MessageDelta) and event.message_id == last.message_id:
        return event.model_copy(update={"delta": last.delta + event.delta})
    if (
        isinstance(event, ReasoningDeltaEvent)
        and isinstance(last, ReasoningDeltaEvent)
        and event.message_id == last.message_id
    ):
        return event.model_copy(update={"delta": last.delta + event.delta})
    if isinstance(event, ToolOutput) and isinstance(last, ToolOutput) and event.call_id == last.call_id:
        return event.model_copy(update={"delta": last.delta + event.delta})
    return None
