"""The bounded queue between a turn and the one consumer of its events."""

from __future__ import annotations

import asyncio
from collections import deque

from mxclaw_nb.protocol import Event, MessageDelta, ReasoningDeltaEvent, ToolOutput

_COALESCE_AT = 256
"""Events that may wait before deltas are merged: a slow consumer gets longer deltas, never a stalled turn."""
_LONGEST_DELTA = 8_192
"""Characters at which a merged delta counts as full: each merge copies it."""


class Channel:
    """One producer and one consumer on one event loop. ``put`` never waits.

    When the consumer is slow, a delta is merged into the one before it (the later sequence number stands), so what
    waits is bounded by the text itself and by the number of other events, of which a turn has few.
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
    """Both deltas as one with the later number, or None if they do not belong together or fill one already."""
    if not isinstance(last, MessageDelta | ReasoningDeltaEvent | ToolOutput) or type(event) is not type(last):
        return None
    assert isinstance(event, MessageDelta | ReasoningDeltaEvent | ToolOutput)
    if _source(event) != _source(last) or len(last.delta) >= _LONGEST_DELTA:
        return None
    return event.model_copy(update={"delta": last.delta + event.delta})


def _source(delta: MessageDelta | ReasoningDeltaEvent | ToolOutput) -> str:
    return delta.call_id if isinstance(delta, ToolOutput) else delta.message_id
