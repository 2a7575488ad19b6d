"""Terminal control sequences, taken out of text, also where a stream cuts one in two (ECMA-48, section 5)."""

from __future__ import annotations

import re

# A control sequence; a control string (OSC, DCS, SOS, PM, APC) up to its terminator; an escape of two characters.
# A control string ends with its line at the latest, so that one that is never closed cannot swallow what follows.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n\x18\x1a]*(?:\x07|\x1b\\|\x9c|\x18|\x1a)?"
    r"|\x1b[ -/]*[0-~]?"
)
# The same, begun and not ended.
_OPEN = re.compile(
    r"(?:(?:\x1b\[|\x9b)[0-?]*[ -/]*"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n\x18\x1a]*\x1b?"
    r"|\x1b[ -/]*|\r)\Z"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LONGEST_OPEN = 4096  # characters of an unfinished sequence that a stream holds back


def plain(text: str) -> str:
    """The text without control sequences and control characters; every carriage return begins a new line.

    Newlines and tabs stay. Lone surrogates, which no terminal and no file can take, become U+FFFD.
    """
    if _SURROGATE.search(text) is not None:
        text = _SURROGATE.sub("\ufffd", text)
    if _CONTROL.search(text) is None:
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("", _SEQUENCE.sub("", text))


class ControlStripper:
    """As ``plain``, for text that comes in pieces: a sequence that a piece only begins is kept back until it ends."""

    def __init__(self) -> None:
        self._open = ""

    def feed(self, piece: str) -> str:
        """What may be shown now."""
        text = self._open + piece
        self._open = ""
        if _CONTROL.search(text) is None:
            return plain(text)
        if (unfinished := _OPEN.search(text)) is not None and len(text) - unfinished.start() <= _LONGEST_OPEN:
            self._open = text[unfinished.start() :]
            text = text[: unfinished.start()]
        return plain(text)

    def finish(self) -> str:
        """The rest, when no more text comes."""
        rest, self._open = self._open, ""
        return plain(rest)
