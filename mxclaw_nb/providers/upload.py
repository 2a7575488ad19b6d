"""The body of a request on its way out, and the limits of time until the head of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from mxclaw_nb.protocol import Settings

_PIECE = 256 * 1024


class AnswerTooLate(Exception):
    """No answer came in time. The text says what was waited for."""


class ConnectTooLate(AnswerTooLate):
    """There was not even a connection in time."""


class Upload(httpx.AsyncByteStream):
    """A body, told piece by piece; as the pieces are taken the limit of time moves on.

    ``connect_timeout_s`` until the first is taken, ``idle_timeout_s`` for each, then ``first_byte_timeout_s``.
    """

    def __init__(self, body: bytes, settings: Settings) -> None:
        self._body, self._settings = body, settings
        self._timeout: asyncio.Timeout | None = None
        self._late: AnswerTooLate = ConnectTooLate("connecting took too long")

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _Pieces(self, self._body)

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """Put it around sending and getting the head of the answer. Raises AnswerTooLate."""
        settings = self._settings
        seconds = settings.connect_timeout_s
        if not self._body:  # nobody will tell when the connection stands; the libraries have its limit too
            seconds += settings.first_byte_timeout_s
            self._late = AnswerTooLate(f"did not answer within {seconds:g} s (first_byte_timeout_s)")
        try:
            async with asyncio.timeout(seconds) as timeout:
                self._timeout = timeout
                yield
        except TimeoutError:
            if timeout.expired():
                raise self._late from None
            raise
        finally:
            self._timeout = None

    def taken(self) -> None:
        """A piece is on its way."""
        seconds = self._settings.idle_timeout_s
        self._allow(seconds, f"did not take the request within {seconds:g} s (idle_timeout_s)")

    def sent(self) -> None:
        """The last piece is on its way."""
        seconds = self._settings.first_byte_timeout_s
        self._allow(seconds, f"did not answer within {seconds:g} s (first_byte_timeout_s)")

    def _allow(self, seconds: float, complaint: str) -> None:
        if self._timeout is not None and not self._timeout.expired():
            self._late = AnswerTooLate(complaint)
            self._timeout.reschedule(asyncio.get_running_loop().time() + seconds)


class _Pieces:
    """No generator: one that is left half-way would have to be finalised by a task of its own."""

    def __init__(self, upload: Upload, body: bytes) -> None:
        self._upload, self._body, self._position = upload, body, 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        start, self._position = self._position, self._position + _PIECE
        if start >= len(self._body):
            self._upload.sent()
            raise StopAsyncIteration
        self._upload.taken()
        return self._body[start : self._position]
