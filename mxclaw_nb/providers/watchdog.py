"""One timer for a whole stream: it looks when a limit could have passed, not at every piece."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from mxclaw_nb.protocol import Settings

from .reply import ReplyReader
from .transport import Exchange

_AFTER_END_S = 5.0  # how long a provider that said why it stopped may keep usage and [DONE] to itself
_RECHECK_S = 1.0


class StreamTooSlow(Exception):
    """The provider was silent, or sent no token, for too long. The text says which, and for how long."""


@dataclass(slots=True)
class Watchdog:
    """Ends an exchange that stands still: ``with`` it around the reading, ``note`` after each piece read.

    Silence counts from the last byte, comments included; ``token_timeout_s`` from the last text, reasoning or
    tool call. Time that the consumer takes is not the provider's: with bytes unread nothing is late.
    """

    exchange: Exchange
    reader: ReplyReader
    settings: Settings
    _loop: asyncio.AbstractEventLoop
    _started: float
    _token_at: float
    _progress: int = 0
    _any: bool = False
    _timer: asyncio.TimerHandle | None = None

    @classmethod
    def over(cls, exchange: Exchange, reader: ReplyReader, settings: Settings) -> Watchdog:
        loop = asyncio.get_running_loop()
        return cls(exchange, reader, settings, loop, loop.time(), loop.time())

    def __enter__(self) -> Watchdog:
        self._look()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self) -> None:
        """A piece was read and taken in."""
        self._any = True
        if self.reader.folder.progress != self._progress:
            self._progress = self.reader.folder.progress
            self._token_at = self._loop.time()

    def _look(self) -> None:
        due, complaint = self._next_limit()
        now = self._loop.time()
        if now >= due:
            if not self.exchange.unread:
                self.exchange.fail(StreamTooSlow(complaint))
                return
            due = now + _RECHECK_S
        self._timer = self._loop.call_at(due, self._look)

    def _next_limit(self) -> tuple[float, str]:
        settings = self.settings
        heard = max(self.exchange.received_at, self._started)
        if not self._any:
            limit = settings.first_byte_timeout_s
            silence = heard + limit, f"sent nothing for {limit:g} s (first_byte_timeout_s)"
        elif self.reader.finished:
            silence = heard + min(settings.idle_timeout_s, _AFTER_END_S), "did not close its reply"
        else:
            limit = settings.idle_timeout_s
            silence = heard + limit, f"fell silent for {limit:g} s (idle_timeout_s)"
        limit = settings.token_timeout_s
        return min(silence, (self._token_at + limit, f"sent no token for {limit:g} s (token_timeout_s)"))
