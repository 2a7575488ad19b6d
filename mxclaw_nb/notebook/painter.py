"""Repaint something while a turn runs: soon after a change, seldom enough for the page, once a second anyway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

_LOG = logging.getLogger(__name__)

IDLE_S = 1.0
"""Without a change it is repainted this often, for the clock in it."""
_SHARE = 8
"""A repaint may cost one part in eight of the time; dear ones come less often."""


class Painter:
    """Calls ``paint`` on the running loop until it is stopped, at least ``interval_s`` seconds between two calls."""

    def __init__(self, paint: Callable[[], None], interval_s: float) -> None:
        self._paint = paint
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._earliest = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._schedule(0.0)

    def changed(self) -> None:
        """There is something new. On the loop's thread only."""
        self._schedule(0.0)

    def stop(self) -> None:
        """No call is made after this."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, delay_s: float) -> None:
        when = max(self._loop.time() + delay_s, self._earliest)
        if self._stopped or (self._timer is not None and self._timer.when() <= when):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._run)

    def _run(self) -> None:
        self._timer = None
        began = self._loop.time()
        try:
            self._paint()
        except Exception:  # noqa: BLE001 - a picture that fails must not fail the turn; it is logged
            _LOG.exception("the view could not be painted")
        now = self._loop.time()
        self._earliest = now + max(self._interval_s, (now - began) * _SHARE)
        self._schedule(IDLE_S)
