"""End a blocking call of the main thread (``input()``) from another thread, without touching anything but that call.

The only thing that ends it is a signal whose handler raises. So: SIGINT to the main thread, marked as ours, while the
handler is ours too (see the driver and the bridge); and never when the call has just ended by itself.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class CallBroken(Exception):
    """The call was ended by ``BlockingCall.end``."""


class BlockingCall:
    """One blocking call. ``current`` is the one that the main thread is in, for the signal handlers."""

    current: BlockingCall | None = None

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._inside = False
        self._ended = False
        self._on_main = False

    def run(self, function: Callable[[], T], *, limit_s: float | None = None) -> T:
        """Call it. Raises CallBroken if ``end`` was called meanwhile, or before, or after ``limit_s`` seconds.

        KeyboardInterrupt is raised as it is: it came from a person.
        """
        timer = threading.Timer(limit_s, self.end) if limit_s is not None else None
        if timer is not None:
            timer.name, timer.daemon = "mxclaw-question", True
            timer.start()
        before = BlockingCall.current
        self._on_main = threading.current_thread() is threading.main_thread()
        if self._on_main:
            BlockingCall.current = self
        try:
            with self._guard:
                if self._ended:
                    raise CallBroken
                self._inside = True
            try:
                return function()
            finally:
                with self._guard:  # a signal that was sent is handled here at the latest
                    self._inside = False
        except KeyboardInterrupt:
            if self._ended:
                raise CallBroken from None
            raise
        finally:
            if self._on_main:
                BlockingCall.current = before
            if timer is not None:
                timer.cancel()
                timer.join(1)

    def end(self) -> None:
        """End the call; if it has not begun it never will. Any thread."""
        with self._guard:
            self._ended = True
            main = threading.main_thread().ident
            # On another thread, and where there is no such signal (Windows), it ends when it is answered.
            if self._inside and self._on_main and main is not None and hasattr(signal, "pthread_kill"):
                signal.pthread_kill(main, signal.SIGINT)

    @property
    def ended(self) -> bool:
        return self._ended


def is_ours() -> bool:
    """For a SIGINT handler: whether the signal is the end of the current call and not a person's interrupt."""
    call = BlockingCall.current
    return call is not None and call.ended
