"""The body of a successful answer, read as it comes: a stream of events, or one whole completion.

Pure: bytes in, items out. What the body is, is seen from its first bytes; the content type only decides the rest.
"""

from __future__ import annotations

from mxclaw_nb.protocol import ProviderNotice, StreamItem

from .deltas import CompletionFolder
from .errors import Failure, failure_of_event, failure_of_frame
from .jsontext import parse_json
from .sse import MAX_EVENT_BYTES, EventTooLong, SseDecoder

MAX_REPLY_CHARACTERS = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_FIELDS = (b"data", b"event", b"id", b"retry")
_LONGEST_FIELD = 6  # "retry:"
_TOO_LONG = Failure(f"one frame of its reply is longer than {MAX_EVENT_BYTES // 2**20} MiB, or the reply has no end")


class ReplyReader:
    """Feed it the body; take the items. ``done`` once nothing more need be read.

    ``finished`` says that the provider ended the reply (a finish reason or ``[DONE]``): a connection that breaks
    after that has broken nothing. ``failure`` is set when the body tells of one (then ``done`` too); ``foreign``
    says that it is no answer of a chat completion at all.
    """

    def __init__(self, content_type: str) -> None:
        self._content_type = content_type.partition(";")[0].strip().lower()
        self._decoder = SseDecoder()
        self._head: bytes | None = b""  # what came before it was clear what the body is
        self._document: list[bytes] | None = None  # a body that is one JSON document
        self._document_bytes = 0
        self._skipped = 0
        self._ended = False
        self.done = False
        self.failure: Failure | None = None
        self.foreign = False
        self.folder = CompletionFolder()

    @property
    def finished(self) -> bool:
        return self._ended or self.folder.finish_reason is not None

    def feed(self, chunk: bytes) -> list[StreamItem]:
        """The deltas in this piece of the body."""
        items: list[StreamItem] = []
        if self._head is not None:
            self._head += chunk
            if not self._look(self._head, whole=False):
                return items
            chunk, self._head = self._head, None
            if self.done:
                return items
        if self._document is not None:
            self._document.append(chunk)
            self._document_bytes += len(chunk)
            if self._document_bytes > MAX_EVENT_BYTES:
                self._fail(_TOO_LONG)
            return items
        try:
            events = self._decoder.feed(chunk)
        except EventTooLong:
            self._fail(_TOO_LONG)
            return items
        for name, data in events:
            self._event(name, data, items)
            if self.done:
                break
        return items

    def close(self) -> list[StreamItem]:
        """The rest, when the body has ended: last deltas, and a notice of what was skipped."""
        items: list[StreamItem] = []
        if self._head is not None and self._head.strip():
            head, self._head = self._head, None
            self._look(head, whole=True)
            if self._document is not None:
                self._document.append(head)
            elif not self.done:
                self._decoder.feed(head)
        if self._document is not None:
            if not self.done:
                self._whole_document(b"".join(self._document), items)
        elif not self.done:
            skipped = self._skipped
            for name, data in self._decoder.close():
                self._event(name, data, items)
            self._skipped = skipped  # a frame that the end cut is no strange frame
        self.folder.close(items)
        if self._skipped:
            frames = "frame" if self._skipped == 1 else "frames"
            items.append(
                ProviderNotice(f"Skipped {self._skipped} {frames} of the stream that were not JSON.", "warning")
            )
        return items

    def _look(self, head: bytes, *, whole: bool) -> bool:
        """Find out what the body is; False if more of it must be seen."""
        start = head.removeprefix(_BOM).lstrip()
        if not start or (not whole and _BOM.startswith(head)):
            return len(head) > 65536  # blank lines only: let the decoder have them
        if start[:1] in (b"{", b"["):
            self._document = []
            return True
        if self._content_type == "text/event-stream" or start[:1] == b":":
            return True
        field, colon, _ = start[:_LONGEST_FIELD].partition(b":")
        if colon and field in _FIELDS:
            return True
        if not whole and not colon and len(start) < _LONGEST_FIELD and any(f.startswith(field) for f in _FIELDS):
            return False
        self._not_a_reply()
        return True

    def _event(self, name: str, data: bytes, items: list[StreamItem]) -> None:
        stripped = data.strip()
        if stripped.startswith(b"[DONE]"):
            self._ended = self.done = True
            return
        if name == "error":
            self._fail(failure_of_event(stripped))
            return
        try:
            frame = parse_json(stripped)
        except ValueError:
            self._skipped += bool(stripped)
            return
        if not isinstance(frame, dict):
            self._skipped += 1
            return
        failure = failure_of_frame(frame)
        if failure is not None:
            self._fail(failure)
            return
        self.folder.add(frame, items)
        if self.folder.size > MAX_REPLY_CHARACTERS:
            self._fail(_TOO_LONG)

    def _whole_document(self, body: bytes, items: list[StreamItem]) -> None:
        try:
            value = parse_json(body.removeprefix(_BOM).strip())
        except ValueError:
            value = None
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, dict):
            self._not_a_reply()
            return
        failure = failure_of_frame(value)
        if failure is not None:
            self._fail(failure)
        elif "choices" not in value:
            self._not_a_reply()
        else:
            self.folder.add(value, items)
            self._ended = True

    def _fail(self, failure: Failure) -> None:
        self.failure = failure
        self.done = True

    def _not_a_reply(self) -> None:
        self.foreign = True
        self._fail(Failure(self._content_type or "none"))
