"""Content encodings of a body, undone piece by piece as it arrives."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

_PIECE = 1024 * 1024  # what one step of decompression may yield: a bomb is met by whoever counts the pieces


class UndecodableBody(Exception):
    """The body is not what its ``Content-Encoding`` says, or says what we cannot undo."""


class BodyDecoder:
    """Pieces of a body in, pieces of content out. Knows gzip and deflate; we ask for neither, yet some send them."""

    def __init__(self, content_encoding: str) -> None:
        names = [name.strip().lower() for name in content_encoding.split(",")]
        self._encoding = next((name for name in names if name not in ("", "identity")), "")
        self._inflater: zlib._Decompress | None = None
        self._unsupported = self._encoding not in ("", "gzip", "x-gzip", "deflate")

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The content in this piece. Raises UndecodableBody."""
        if not self._encoding:
            yield data
            return
        if self._unsupported:
            raise UndecodableBody(f"it is encoded with {self._encoding[:40]}, which was not asked for")
        try:
            while data:
                if self._inflater is None:
                    self._inflater = zlib.decompressobj(self._window(data))
                piece = self._inflater.decompress(data, _PIECE)
                data = self._inflater.unconsumed_tail
                if self._inflater.eof:
                    data = self._inflater.unused_data.lstrip(b"\0")
                    self._inflater = None
                if piece:
                    yield piece
        except zlib.error:
            raise UndecodableBody(f"it is not the {self._encoding} that it says it is") from None

    def _window(self, start: bytes) -> int:
        """gzip and zlib are told apart by their heads; some servers send deflate without any head."""
        headless = self._encoding == "deflate" and start[0] & 0x0F != 8
        return -zlib.MAX_WBITS if headless else zlib.MAX_WBITS | 32
