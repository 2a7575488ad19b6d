"""HTTP/1.1 as a client speaks it: the head of a request, the head of a response, and the three kinds of body."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

MAX_HEAD_BYTES = 64 * 1024
_MAX_LINE = 4096
_START = b"HTTP/1."
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/1\.([01]) +(\d{3})(?: .*)?\Z")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_UNSAFE = re.compile(rb"[\x00\r\n]")

Headers = list[tuple[bytes, bytes]]


class ProtocolError(Exception):
    """The other side does not speak HTTP/1.1 as it should."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and headers. ``keep_alive``: the connection may be used again after the body."""

    status: int
    headers: Headers
    keep_alive: bool

    def get(self, name: bytes) -> bytes:
        """The last value of a header (``name`` in lower case), b"" if there is none."""
        return next((value for key, value in reversed(self.headers) if key.lower() == name), b"")


def request_head(method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The bytes of a request head. Raises ProtocolError for a header that would break out of its line."""
    lines = [b"%b %b HTTP/1.1" % (method, target)]
    if _UNSAFE.search(target) or b" " in target:
        raise ProtocolError("the request's address has a character that cannot be sent")
    for name, value in headers:
        if not _NAME.match(name) or _UNSAFE.search(value):
            raise ProtocolError("a request header has a character that cannot be sent")
        lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join(lines) + b"\r\n\r\n"


def split_head(buffer: bytes) -> tuple[ResponseHead, bytes] | None:
    """The head at the start of a buffer and what follows it; None if it is not all there. Skips 1xx heads.

    Raises ProtocolError.
    """
    position = 0
    while (end := _HEAD_END.search(buffer, position, position + MAX_HEAD_BYTES)) is not None:
        head = _parse_head(buffer[position : end.start()])
        position = end.end()
        if head.status >= 200 or head.status == 101:
            return head, buffer[position:]
    if len(buffer) - position >= MAX_HEAD_BYTES:
        raise ProtocolError("the head of the answer is too long")
    start = buffer[position : position + len(_START)]
    if not _START.startswith(start):
        raise ProtocolError("the answer is not HTTP")
    return None


async def read_head(read: Callable[[], Awaitable[bytes]]) -> tuple[ResponseHead, bytes]:
    """The head of the answer that ``read`` (b"" at the end) gives, and what came after it. Raises ProtocolError."""
    received = b""
    while (parsed := split_head(received)) is None:
        if len(received) > 2 * MAX_HEAD_BYTES:
            raise ProtocolError("the head of the answer is too long")  # 1xx heads without end
        data = await read()
        if not data:
            raise ProtocolError("the connection was closed before an answer came")
        received += data
    return parsed


def _parse_head(text: bytes) -> ResponseHead:
    lines = text.replace(b"\r\n", b"\n").split(b"\n")
    status_line = _STATUS.match(lines[0])
    if status_line is None:
        raise ProtocolError("the answer is not HTTP")
    headers: Headers = []
    for line in lines[1:]:
        if line[:1] in (b" ", b"\t") and headers:
            name, value = headers[-1]
            headers[-1] = (name, value + b" " + line.strip())
            continue
        name, colon, value = line.partition(b":")
        if colon and _NAME.match(name.strip()):
            headers.append((name.strip(), value.strip()))
    head = ResponseHead(int(status_line[2]), headers, keep_alive=False)
    options = head.get(b"connection").lower()
    modern = status_line[1] == b"1"
    return ResponseHead(head.status, headers, b"close" not in options and (modern or b"keep-alive" in options))


class Body(Protocol):
    """A body's framing: wire bytes in, content out. ``complete`` once its end was seen."""

    complete: bool

    def feed(self, data: bytes) -> bytes:
        """The content in these wire bytes. Raises ProtocolError."""
        ...

    def end(self) -> None:
        """The connection ended. Raises ProtocolError if the body did not."""
        ...


def body_of(head: ResponseHead) -> Body:
    """The framing that a response's head announces. Raises ProtocolError."""
    if head.status in (204, 304) or head.status < 200:
        return _LengthBody(0)
    coding = head.get(b"transfer-encoding").lower()
    if coding:
        return _ChunkedBody() if coding.rpartition(b",")[2].strip() == b"chunked" else _UntilCloseBody()
    length = head.get(b"content-length")
    if not length:
        return _UntilCloseBody()
    if not length.isdigit() or len(length) > 18:
        raise ProtocolError("the answer has a content length that is no number")
    return _LengthBody(int(length))


class _UntilCloseBody:
    def __init__(self) -> None:
        self.complete = False

    def feed(self, data: bytes) -> bytes:
        return data

    def end(self) -> None:
        self.complete = True


class _LengthBody:
    def __init__(self, length: int) -> None:
        self._left = length
        self.complete = not length

    def feed(self, data: bytes) -> bytes:
        data = data[: self._left]
        self._left -= len(data)
        self.complete = not self._left
        return data

    def end(self) -> None:
        if not self.complete:
            raise ProtocolError("the connection was closed in the middle of the answer")


class _ChunkedBody:
    def __init__(self) -> None:
        self._rest = b""  # an unfinished line
        self._left = 0  # bytes of the chunk still to come
        self._line_end = False  # the line end after a chunk is still to come
        self._trailer = False
        self.complete = False

    def feed(self, data: bytes) -> bytes:
        if self._rest:
            data = self._rest + data
            self._rest = b""
        position, end = 0, len(data)
        content: list[bytes] = []
        while position < end and not self.complete:
            if self._left:
                piece = data[position : position + self._left]
                content.append(piece)
                position += len(piece)
                self._left -= len(piece)
                self._line_end = not self._left
                continue
            line_end = data.find(b"\n", position)
            if line_end < 0:
                self._rest = data[position:]
                if len(self._rest) > _MAX_LINE:
                    raise ProtocolError("a chunk of the answer has no readable size")
                break
            line = data[position:line_end]
            position = line_end + 1
            if self._line_end:
                if line not in (b"\r", b""):
                    raise ProtocolError("a chunk of the answer is longer than it says")
                self._line_end = False
            elif self._trailer:
                self.complete = line in (b"\r", b"")
            else:
                self._size(line)
        return content[0] if len(content) == 1 else b"".join(content)

    def end(self) -> None:
        if not self.complete:
            raise ProtocolError("the connection was closed in the middle of the answer")

    def _size(self, line: bytes) -> None:
        text = line.partition(b";")[0].strip()
        try:
            self._left = int(text, 16)
        except ValueError:
            raise ProtocolError("a chunk of the answer has no readable size") from None
        if self._left < 0 or len(text) > 16:
            raise ProtocolError("a chunk of the answer has no readable size")
        self._trailer = not self._left
