"""Server-sent events from raw bytes, incrementally: whatever the cuts between reads, the events are the same.

Follows the WHATWG rules (https://html.spec.whatwg.org/multipage/server-sent-events.html) with two deliberate
differences: an event that the stream's end cuts from its blank line is still given, and an ``error`` event needs
no data. Lines are split as bytes, so U+2028 and its like inside JSON are text.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT_BYTES = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_LF, _CR, _COLON = 0x0A, 0x0D, 0x3A


class ServerSentEvent(NamedTuple):
    """One event: its name ("" for the usual one) and its data lines joined by a line feed."""

    name: str
    data: bytes


class EventTooLong(ValueError):
    """A line or an event is longer than the decoder's limit; nothing more can be decoded."""


class SseDecoder:
    """Bytes in, whole events out. Holds at most ``max_bytes`` (default 16 MiB) of an unfinished event."""

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._start: bytes | None = b""  # bytes seen so far that may be a byte order mark; None once that is settled
        self._after_cr = False  # the last read ended in CR: a LF at the start of the next belongs to it
        self._parts: list[bytes] = []  # the unfinished line
        self._parts_bytes = 0
        self._name = ""
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that ``chunk`` completes. Raises EventTooLong."""
        if self._start is not None:
            chunk = self._start + chunk
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._start = chunk
                return []
            self._start = None
            chunk = chunk.removeprefix(_BOM)
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == _LF:
                chunk = chunk[1:]
        if not chunk:
            return []
        lines = chunk.splitlines()
        if chunk[-1] == _LF:
            rest = b""
        elif chunk[-1] == _CR:
            rest = b""
            self._after_cr = True
        else:
            rest = lines.pop()
        if lines and self._parts:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts.clear()
            self._parts_bytes = 0
        events: list[ServerSentEvent] = []
        self._take(lines, events)
        if rest:
            self._parts.append(rest)
            self._parts_bytes += len(rest)
            if self._parts_bytes + self._data_bytes > self._max_bytes:
                raise EventTooLong
        return events

    def close(self) -> list[ServerSentEvent]:
        """The event that the end of the stream leaves without its blank line, if any."""
        line = (self._start or b"") + b"".join(self._parts)
        self._start, self._parts = None, []
        events: list[ServerSentEvent] = []
        self._take([line, b""] if line else [b""], events)
        return events

    def _take(self, lines: list[bytes], events: list[ServerSentEvent]) -> None:
        data = self._data
        for line in lines:
            if line.startswith(b"data:"):
                value = line[6:] if line[5:6] == b" " else line[5:]
                data.append(value)
                self._data_bytes += len(value)
                if self._data_bytes > self._max_bytes:
                    raise EventTooLong
            elif not line:
                if data:
                    events.append(ServerSentEvent(self._name, data[0] if len(data) == 1 else b"\n".join(data)))
                    data.clear()
                    self._data_bytes = 0
                elif self._name == "error":
                    events.append(ServerSentEvent(self._name, b""))
                self._name = ""
            elif line[0] != _COLON:
                field, _, value = line.partition(b":")
                if field == b"event":
                    self._name = value.removeprefix(b" ").decode("utf-8", "replace")
                elif field == b"data":
                    data.append(b"")
