"""The body of an answer: decoded, every wait within its limit of time, its connection kept or ended at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import httpx

from mxclaw_nb.protocol import Settings

from .reply import ReplyReader
from .transport import CARRIER_ERRORS

_AFTER_END_S = 5.0  # how long a provider that said why it stopped may keep usage and [DONE] to itself
_REST_S = 0.1  # how long the end of an answer that said all may take, for its connection to be used again


class StreamTooSlow(Exception):
    """The provider was silent, or sent no token, for too long. The text says which, and for how long."""


class UndecodableBody(Exception):
    """The body's ``Content-Encoding`` is not one of those that are undone although nobody asked for any.

    Those are gzip and deflate, once: a piece of another, or of one within another, may fill the memory.
    """


class Body:
    """The pieces of an answer's body; ``aclose`` it in any case."""

    def __init__(self, response: httpx.Response) -> None:
        names = [name.strip().lower() for name in response.headers.get("content-encoding", "").split(",")]
        encodings = [name for name in names if name not in ("", "identity")]
        self._strange = "" if encodings in ([], ["gzip"], ["deflate"]) else ", ".join(encodings)[:40]
        self._response = response
        self._pieces = response.aiter_bytes()
        self.content_type: str = response.headers.get("content-type", "")

    async def read(self) -> bytes:
        """The next piece, decoded; b"" at the end. Raises UndecodableBody or an exception of the libraries."""
        if self._strange:
            raise UndecodableBody(f"it is encoded with {self._strange}, which was not asked for")
        return await anext(self._pieces, b"")

    async def read_all(self, limit: int, seconds: float) -> bytes:
        """The whole body, at most ``limit`` bytes of it, and close it. Raises what ``read`` does, or TimeoutError."""
        content = bytearray()
        try:
            async with asyncio.timeout(seconds):
                while len(content) < limit and (piece := await self.read()):
                    content += piece
        finally:
            await self.aclose()
        return bytes(content[:limit])

    async def finish(self) -> None:
        """What matters is read: wait a moment for the end, so that the connection can be used again."""
        with suppress(TimeoutError, *CARRIER_ERRORS):
            async with asyncio.timeout(_REST_S):
                while await self.read():
                    pass

    async def aclose(self) -> None:
        """End it; before its end this ends the connection at once."""
        await self._response.aclose()


@dataclass(slots=True)
class PatientReading:
    """Reads a streamed body piece by piece and gives up when the provider takes too long.

    Silence counts from the last byte, comments included; ``token_timeout_s`` from the last text, reasoning or
    tool call. Only waiting counts: the time that the consumer takes is not the provider's.
    """

    body: Body
    reader: ReplyReader
    settings: Settings
    _any: bool = False
    _progress: int = 0
    _waited: float = 0.0  # seconds since the last token

    async def read(self) -> bytes:
        """The next piece; b"" at the end. Raises StreamTooSlow and what ``Body.read`` does."""
        if self.reader.folder.progress != self._progress:
            self._progress = self.reader.folder.progress
            self._waited = 0.0
        seconds, complaint = self._limit()
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            async with asyncio.timeout(seconds) as timeout:
                piece = await self.body.read()
        except TimeoutError:
            if timeout.expired():
                raise StreamTooSlow(complaint) from None
            raise
        self._waited += clock() - started
        self._any = True
        return piece

    def _limit(self) -> tuple[float, str]:
        settings = self.settings
        if not self._any:
            limit = settings.first_byte_timeout_s
            silence = limit, f"sent nothing for {limit:g} s (first_byte_timeout_s)"
        elif self.reader.finished:
            silence = min(settings.idle_timeout_s, _AFTER_END_S), "did not close its reply"
        else:
            limit = settings.idle_timeout_s
            silence = limit, f"fell silent for {limit:g} s (idle_timeout_s)"
        limit = settings.token_timeout_s
        return min(silence, (max(limit - self._waited, 0.0), f"sent no token for {limit:g} s (token_timeout_s)"))
