"""Bounded HTTP/1.1, as much of it as the rehearsal needs: read a request, write a head, write a chunk."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

HEAD_LIMIT = 64 * 1024
BODY_LIMIT = 64 * 1024 * 1024
IDLE_TIMEOUT_S = 75.0
HEAD_TIMEOUT_S = 10.0
BODY_TIMEOUT_S = 30.0
LINGER_TIMEOUT_S = 2.0
LINGER_LIMIT = 8 * 1024 * 1024


class BadRequest(Exception):
    """The request cannot be served: an HTTP status and a sentence. The connection is closed after it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Head:
    """The first line and the lower-cased headers of a request."""

    method: str
    path: str
    headers: Mapping[str, str]

    @property
    def keep_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


async def read_head(reader: asyncio.StreamReader, first: bytes) -> Head:
    """Read up to the empty line; ``first`` was read already. Raises BadRequest, TimeoutError or EOFError."""
    try:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            data = first + await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise BadRequest(431, f"the headers are longer than {HEAD_LIMIT} bytes") from None
    lines = data.decode("latin-1").split("\r\n")
    try:
        method, target, version = lines[0].split(" ")
    except ValueError:
        raise BadRequest(400, "the request line is malformed") from None
    if not version.startswith("HTTP/1."):
        raise BadRequest(505, "only HTTP/1.1 is spoken here")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        if line:
            name, colon, value = line.partition(":")
            if not colon:
                raise BadRequest(400, "a header line is malformed")
            headers[name.strip().lower()] = value.strip()
    return Head(method, target.partition("?")[0], headers)


async def read_body(reader: asyncio.StreamReader, head: Head) -> bytes:
    """Read the body that the head announces. Raises BadRequest (413 past the limit), TimeoutError or EOFError."""
    async with asyncio.timeout(BODY_TIMEOUT_S):
        if "chunked" in head.headers.get("transfer-encoding", "").lower():
            return await _read_chunked(reader)
        length = head.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit() and len(length) < 16):
            raise BadRequest(400, "the content length is malformed")
        if int(length) > BODY_LIMIT:
            raise BadRequest(413, f"the body is longer than {BODY_LIMIT} bytes")
        return await reader.readexactly(int(length))


async def _read_chunked(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        try:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0].strip(), 16)
        except (ValueError, asyncio.LimitOverrunError):
            raise BadRequest(400, "a chunk size is malformed") from None
        if size < 0 or len(body) + size > BODY_LIMIT:
            raise BadRequest(413, f"the body is longer than {BODY_LIMIT} bytes")
        body += (await reader.readexactly(size + 2))[:size]
        if size == 0:
            return bytes(body)


async def linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """After a refusal: read on for a while, so that the refusal reaches a client that is still sending its body."""
    writer.write_eof()
    left = LINGER_LIMIT
    async with asyncio.timeout(LINGER_TIMEOUT_S):
        while left > 0 and (data := await reader.read(65_536)):
            left -= len(data)


def head_bytes(status: int, headers: Mapping[str, str]) -> bytes:
    """A response head."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def chunk_bytes(data: bytes) -> bytes:
    """One chunk of a chunked body; empty data is its end."""
    return b"%x\r\n%b\r\n" % (len(data), data)
