"""What a program wrote for a terminal, as text that is plain to a model and safe on a screen.

Control sequences and control characters go. A carriage return starts its line again, so a progress bar leaves its
last state; a backspace takes back one character.
"""

from __future__ import annotations

import codecs
import re

from ..text import ControlStripper, plain

_NO_TEXT = re.compile("[\x00-\x06\x0e-\x1a\x1c-\x1f\ufffd]")
_SHORT, _SAMPLE = 512, 1 << 16  # bytes: less is always shown; how much is looked at


def terminal_text(data: bytes) -> str:
    """The whole output of a program as plain text, UTF-8 with what is not replaced by U+FFFD."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    if "\r" not in text and "\b" not in text:
        return plain(text)
    return "\n".join(_without_backspaces(_last_state(line)) for line in text.split("\n"))


def mostly_no_text(data: bytes) -> bool:
    """Whether more than a tenth of an output (of some length) is neither UTF-8 nor made for a terminal."""
    if len(data) < _SHORT:
        return False
    text = data[:_SAMPLE].decode("utf-8", "replace")
    return len(_NO_TEXT.findall(text)) * 10 > len(text)


def _last_state(line: str) -> str:
    """The last of a line's states that draws something."""
    if "\r" not in line:
        return line
    states = line.rstrip("\r\t ").split("\r")
    return next(filter(_draws, reversed(states)), states[0])


def _draws(state: str) -> bool:
    return plain(state).strip() != ""


def _without_backspaces(line: str) -> str:
    first, *others = line.split("\b")
    kept = list(plain(first))
    for piece in others:
        del kept[-1:]
        kept += plain(piece)
    return "".join(kept)


class LiveText:
    """The same for output that still comes, in pieces cut anywhere: what to append to what is shown.

    A screen that only appends cannot take a line back, so a line redrawn in a later piece is shown as a new one; of
    the states that come in one piece only the last is shown.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stripper = ControlStripper()
        self._returns = ""  # carriage returns at the end: of \r\n perhaps, or before the next state
        self._line_open = False

    def feed(self, data: bytes) -> str:
        """The text that this piece adds; what the next piece may change is held back."""
        return self._add(self._decoder.decode(data))

    def finish(self) -> str:
        """What was held back."""
        return self._add(self._decoder.decode(b"", True)) + self._stripper.finish()

    def _add(self, text: str) -> str:
        text = (self._returns + text).replace("\r\n", "\n")
        kept = text.rstrip("\r")
        self._returns = "\r" if kept != text else ""
        first, *others = kept.split("\n")
        continued, *states = first.split("\r")
        if any(map(_draws, states)):
            first = ("\n" if self._line_open else "") + _last_state(first)
        else:
            first = continued
        shown = self._stripper.feed("\n".join([first, *map(_last_state, others)]))
        if shown:
            self._line_open = not shown.endswith("\n")
        return shown
