"""Reading from the person at a terminal: one key, one line, one secret. Cancellable, and no thread is left behind.

The terminal's own line discipline does the editing of lines. While a key is waited for, Ctrl-C stays a signal; the
terminal is put back as it was whatever happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

if sys.platform != "win32":
    import termios

_POLL_S = 0.2
_LONGEST_READ = 4096


class EndOfInput(Exception):
    """The person pressed Ctrl-D, or the terminal is gone."""


def can_read_keys(stream: TextIO | None) -> bool:
    """Whether a person's keys can be read from this stream: a terminal, on a system that has termios."""
    if sys.platform == "win32" or stream is None:
        return False
    try:
        return stream.isatty() and os.isatty(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return False


class Keyboard:
    """The keys of one terminal, read on the running event loop."""

    def __init__(self, stream: TextIO) -> None:
        self._descriptor = stream.fileno()
        self._wanted: list[Any] | None = None  # the modes that hold now, for when a shell has changed them

    async def foreground(self) -> None:
        """Wait while a shell keeps this process in the background, where reading would stop it."""
        while not self._in_foreground():  # noqa: ASYNC110  # the system tells nobody when this changes
            await asyncio.sleep(_POLL_S)

    def _in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:  # not our controlling terminal: nothing can stop us
            return True

    @contextlib.contextmanager
    def single_keys(self) -> Iterator[None]:
        """Within this, keys come one by one and unechoed. What was typed before is thrown away."""
        with self._mode(canonical=False, echo=False):
            yield

    @contextlib.contextmanager
    def whole_lines(self, *, echo: bool) -> Iterator[None]:
        """Within this, lines come whole, edited by the terminal; ``echo`` shows them. Earlier input is thrown away."""
        with self._mode(canonical=True, echo=echo):
            yield

    @contextlib.contextmanager
    def _mode(self, *, canonical: bool, echo: bool) -> Iterator[None]:
        try:
            before = termios.tcgetattr(self._descriptor)
        except termios.error as error:
            raise EndOfInput from error
        outer = self._wanted
        now = [*before]
        now[3] = before[3] & ~(termios.ICANON | termios.ECHO) | termios.ISIG
        if canonical:
            now[0] |= termios.ICRNL
            now[3] |= termios.ICANON | (termios.ECHO | termios.ECHOE | termios.ECHOK if echo else termios.ECHONL)
        else:
            now[6] = [*before[6]]
            now[6][termios.VMIN], now[6][termios.VTIME] = 1, 0
        try:
            # TCSANOW: the two others wait for the screen, which a person may have stopped with Ctrl-S.
            termios.tcsetattr(self._descriptor, termios.TCSANOW, now)
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
            self._wanted = now
            yield
        except termios.error as error:
            raise EndOfInput from error
        except asyncio.CancelledError:  # what was half typed must not reach the shell
            with contextlib.suppress(termios.error):
                termios.tcflush(self._descriptor, termios.TCIFLUSH)
            raise
        finally:
            self._wanted = outer
            if self._in_foreground():  # else the shell has put its own modes back, and setting ours would stop us
                with contextlib.suppress(termios.error):
                    termios.tcsetattr(self._descriptor, termios.TCSANOW, before)

    async def read(self) -> str:
        """What comes next: in ``single_keys`` what was pressed, in ``whole_lines`` a line with its newline.

        Empty when the person has come back from the shell (Ctrl-Z, then ``fg``): show again what is asked.
        Raises EndOfInput at Ctrl-D and when the terminal is gone.
        """
        while True:
            await self.foreground()
            if self._modes_were_changed():
                return ""
            data = await self._next()
            if data is None:
                continue
            if data in (b"", b"\x04"):
                raise EndOfInput
            return data.decode("utf-8", "replace")

    async def read_line(self) -> str:
        """The next whole line. Raises EndOfInput as ``read`` does."""
        while not (line := await self.read()):
            pass
        return line

    async def _next(self) -> bytes | None:
        """The next input, or None after a while without any, or when this process is not in the foreground."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[bytes | None] = loop.create_future()

        def readable() -> None:
            if arrived.done():
                return
            try:
                arrived.set_result(os.read(self._descriptor, _LONGEST_READ) if self._in_foreground() else None)
            except BlockingIOError:
                return
            except OSError:
                arrived.set_result(b"")

        loop.add_reader(self._descriptor, readable)
        try:
            await asyncio.wait({arrived}, timeout=_POLL_S)
            return arrived.result() if arrived.done() else None
        finally:
            loop.remove_reader(self._descriptor)

    def _modes_were_changed(self) -> bool:
        """Whether a shell has put its own modes in place of ours; ours hold again."""
        ours = termios.ICANON | termios.ECHO
        try:
            now = termios.tcgetattr(self._descriptor)
            if self._wanted is None or now[3] & ours == self._wanted[3] & ours:
                return False
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._wanted)
        except termios.error as error:
            raise EndOfInput from error
        return True
