"""Repaint something while a turn runs: soon after a change, seldom enough for the page, once a second anyway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

_LOG = logging.getLogger(__name__)

IDLE_S = 1.0
"""Without a change it is repainted this often, for the clock in it."""
_SHARE = 8
"""A repaint may cost one part in eight of the time; dear ones come less often."""


class Painter:
    """Calls ``paint`` on the running loop, with at least ``interval_s`` seconds between two calls."""

    def __init__(self, paint: Callable[[], None], interval_s: float) -> None:
        self._paint = paint
        self._interval_s = interval_s
        self._changed = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def changed(self) -> None:
        """There is something new. On the loop's thread only."""
        self._changed.set()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), IDLE_S)
            self._changed.clear()
            began = time.perf_counter()
            try:
                self._paint()
            except Exception:  # noqa: BLE001 - logged; see below
                # A picture that fails must not fail the turn; the next one may succeed.
                _LOG.exception("the view could not be painted")
            cost = time.perf_counter() - began
            await asyncio.sleep(max(self._interval_s, cost * _SHARE))

    async def stop(self) -> None:
        """No call is made after this."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({self._task}, timeout=1)
