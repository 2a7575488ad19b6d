"""Numbers events, writes them through the turn's writer and shows them in order, durable ones only once committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypedDict

from mxclaw_nb.protocol import Event, Message, MxclawError, PermissionRequested, TurnWriter, now_iso

from .bounded import finish
from .channel import Channel


class Stamp(TypedDict):
    """What every event carries."""

    sequence: int
    session_id: str
    turn_id: str
    timestamp: str


Build = Callable[[Callable[[], Stamp]], Sequence[Event]]


class Emitter:
    """The one way from the turn to its events. Belongs to one event loop.

    ``emit`` shows an event at once and leaves it to the next batch; ``commit`` shows its events when they are on
    disk. Events emitted while a commit is under way are held back until it is done, so that the consumer sees
    sequence numbers rise.
    """

    def __init__(self, writer: TurnWriter, channel: Channel) -> None:
        self._writer = writer
        self._channel = channel
        self._lock = asyncio.Lock()
        self._committing = False
        self._held: list[Event] = []
        self._newest = 0

    def stamp(self) -> Stamp:
        """The next number and the present time. Use it at once: order of stamping is order of showing.

        Raises StoreError or LeaseLost when there are no more numbers.
        """
        self._newest = self._writer.next_sequence()
        return self._stamped(self._newest)

    def last_stamp(self) -> Stamp:
        """As ``stamp``, for an event that must be shown although it cannot be stored. Never raises."""
        try:
            return self.stamp()
        except MxclawError:
            self._newest += 1
            return self._stamped(self._newest)

    def _stamped(self, number: int) -> Stamp:
        writer = self._writer
        return {
            "sequence": number,
            "session_id": writer.session_id,
            "turn_id": writer.turn_id,
            "timestamp": now_iso(),
        }

    def emit(self, event: Event) -> None:
        """Show an event whose loss in a power cut would not matter."""
        self._writer.append(event)
        if self._committing:
            self._held.append(event)
        else:
            self._channel.put(event)

    async def commit(
        self,
        build: Build,
        *,
        messages: Sequence[Message] = (),
        grant: str | None = None,
        written: Callable[[], None] = lambda: None,
    ) -> None:
        """Write events and messages in one durable transaction, then show the events.

        ``build`` is given the stamping function once it is this commit's turn. A ``permission.requested`` among the
        events opens its approval. A cancellation is passed on only when the write has ended, and ``written`` is called
        if it happened, so that nobody's books differ from the disk. Raises LeaseLost or StoreError; then nothing was
        written or shown.
        """
        await finish(asyncio.ensure_future(self._commit(build, messages, grant, written)))

    async def _commit(
        self, build: Build, messages: Sequence[Message], grant: str | None, written: Callable[[], None]
    ) -> None:
        async with self._lock:
            events = build(self.stamp)
            request = next((event for event in events if isinstance(event, PermissionRequested)), None)
            self._committing = True
            try:
                await self._writer.commit(messages=messages, events=events, request=request, grant=grant)
                written()
                self.show(events)
            finally:
                self._committing = False
                held, self._held = self._held, []
                self.show(held)

    def show(self, events: Sequence[Event]) -> None:
        """Hand events, already stored, to the consumer."""
        for event in events:
            self._channel.put(event)
