"""Writing to a terminal, a pipe or a file without ever stopping the event loop.

A reader that does not read (``| less``, Ctrl-S, a slow line) would block ``write``, and with it the loop, the stop
button and SIGTERM. So a short-lived thread writes, which ends by itself just after the last byte. A program calls
``drain`` before it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TextIO

LINGER_S = 0.05
STALLED_S = 600.0
"""A reader that takes nothing for this long counts as gone."""


class Output:
    """A text stream, as rich's Console wants its file, that never blocks and never raises.

    Characters that the stream's encoding lacks are replaced. When the other end is closed, everything later is
    dropped, ``broken`` is true and ``on_broken`` is called once, from the writing thread.
    """

    def __init__(self, stream: TextIO | None, *, on_broken: Callable[[], None] | None = None) -> None:
        self._stream = stream if stream is not None else io.StringIO()
        self.on_broken = on_broken
        self.broken = stream is None  # started with a closed descriptor: nobody can be told anything
        self.encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            self._descriptor: int | None = self._stream.fileno()
        except (OSError, ValueError, AttributeError):
            self._descriptor = None  # a stream of Python's own, as under a test runner
        self._changed = threading.Condition()
        self._queue: deque[bytes | str] = deque()
        self._writing = False
        self._waiters: list[Future[None]] = []
        self._thread: threading.Thread | None = None
        self._progress = time.monotonic()

    def isatty(self) -> bool:
        """Whether a terminal is at the other end."""
        try:
            return self._stream.isatty()
        except ValueError:  # closed
            return False

    def fileno(self) -> int:
        """The stream's descriptor. Raises OSError where it has none."""
        if self._descriptor is None:
            raise OSError("this stream has no file descriptor")
        return self._descriptor

    def write(self, text: str) -> int:
        """Queue text. Returns at once."""
        if text and not self.broken:
            self._put(text.encode(self.encoding, "replace") if self._descriptor is not None else text)
        return len(text)

    def write_bytes(self, data: bytes) -> None:
        """Queue bytes as they are, whatever the stream's encoding."""
        if not self.broken:
            self._put(data if self._descriptor is not None else data.decode("utf-8", "replace"))

    def flush(self) -> None:
        """Nothing to do: every write is on its way. See ``drain`` and ``settle``."""

    async def drain(self, patience_s: float = STALLED_S) -> None:
        """Wait until all is written, the other end is gone, or it has taken nothing for ``patience_s`` seconds."""
        with self._changed:
            if self._idle():
                return
            waiter: Future[None] = Future()
            self._waiters.append(waiter)
        written = asyncio.wrap_future(waiter)
        try:
            while not written.done() and (left := self._progress + patience_s - time.monotonic()) > 0:
                await asyncio.wait({written}, timeout=min(left, 1.0))
        finally:
            written.cancel()

    def settle(self) -> None:
        """As ``drain``, for code that is not asynchronous."""
        with self._changed:
            while not self._idle() and time.monotonic() - self._progress <= STALLED_S:
                self._changed.wait(1.0)

    def _idle(self) -> bool:
        return self.broken or not (self._queue or self._writing)

    def _put(self, data: bytes | str) -> None:
        with self._changed:
            if not self._queue and not self._writing:
                self._progress = time.monotonic()
            self._queue.append(data)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="mxclaw-terminal-output", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._queue:
                    self._writing = False
                    self._settled()
                    self._changed.wait_for(lambda: bool(self._queue), LINGER_S)
                    if not self._queue:
                        self._thread = None
                        return
                self._writing = True
                pieces = list(self._queue)
                self._queue.clear()
            try:
                self._write_now(pieces)
            except (OSError, ValueError):  # the other end, or the stream itself, is closed
                self._break()
                return

    def _write_now(self, pieces: list[bytes | str]) -> None:
        if self._descriptor is None:
            self._stream.write("".join(piece for piece in pieces if isinstance(piece, str)))
            self._stream.flush()
            self._progress = time.monotonic()
            return
        with contextlib.suppress(ValueError):
            self._stream.flush()  # what others printed comes first
        data = memoryview(b"".join(piece for piece in pieces if isinstance(piece, bytes)))
        while data:
            try:
                written = os.write(self._descriptor, data[: 64 * 1024])
            except BlockingIOError:  # somebody made the descriptor non-blocking
                time.sleep(0.01)
                continue
            data = data[written:]
            self._progress = time.monotonic()

    def _settled(self) -> None:
        self._changed.notify_all()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(None)

    def _break(self) -> None:
        with self._changed:
            self.broken, self._writing, self._thread = True, False, None
            self._queue.clear()
            self._settled()
        if self.on_broken is not None:
            self.on_broken()
