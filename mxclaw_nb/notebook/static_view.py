"""The view of a turn where no widget may be: its record, as it grows or in the end; questions by input or nobody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from IPython.display import DisplayHandle, display

from mxclaw_nb.protocol import Answer, Event, PermissionRequested, PermissionResolved, TurnHandle

from .breaking import CallBroken
from .folding import TurnState, opening
from .painter import Painter
from .record import record

REFRESH_S = 0.5
"""A whole record is sent each time."""

Ask = Callable[[PermissionRequested], Awaitable[Answer]]


class StaticView:
    """A protocol.TurnView made of one display. ``ask`` answers the questions; without it there is nobody to ask,

    and the record is shown only when the turn has ended.
    """

    def __init__(self, handle: TurnHandle, state: TurnState | None = None, *, ask: Ask | None = None) -> None:
        self.state = state or opening(handle)
        self._handle = handle
        self._ask = ask
        self._closed = False
        self._display: DisplayHandle | None = None
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._painter = Painter(self._paint, REFRESH_S) if ask is not None else None

    def on_event(self, event: Event) -> None:
        self.state.apply(event)
        if self._painter is not None:
            self._painter.changed()
        if isinstance(event, PermissionRequested) and self._ask is not None:
            self._asking[event.request_id] = asyncio.get_running_loop().create_task(self._question(event, self._ask))
        if isinstance(event, PermissionResolved) and (task := self._asking.pop(event.request_id, None)) is not None:
            task.cancel()  # answered elsewhere, or too late

    async def close(self) -> None:
        """Show the final record. Does nothing the second time."""
        if self._closed:
            return
        self._closed = True
        for task in self._asking.values():
            task.cancel()
        if self._painter is not None:
            self._painter.stop()
        if not self.state.ended:
            self.state.end("interrupted")
        self._paint()

    async def _question(self, request: PermissionRequested, ask: Ask) -> None:
        with contextlib.suppress(CallBroken, OSError, NotImplementedError):
            self._handle.answer(request.request_id, await ask(request))

    def _paint(self) -> None:
        shown = record(self.state)
        if self._display is None:
            self._display = display(shown, raw=True, display_id=True)
        else:
            self._display.update(shown, raw=True)
