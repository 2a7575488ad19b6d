"""Growing prose, broken between words. Append-only: what is printed is never taken back, so a word waits for its end.

A Chinese, Japanese or Korean character is a word of its own, but closing punctuation stays with what it closes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..text import column_width, text_width

_ATOM = re.compile(r"\n|[ \t]+|[\x21-\u10ff]+|.", re.DOTALL)
_STAYS_BEHIND = frozenset("，。！？、；：）］｝》〉」』】〕…—～”’％,.!?;:)]}%")
_LONGEST_WORD = 200  # characters that are held back at most

Write = Callable[[str, str], None]


class WordWrapper:
    """Feeds styled text to ``write(text, style)`` with newlines put in where a word would not fit.

    ``width`` gives the columns of a line at the moment, so a resize holds from the next word on.
    """

    def __init__(self, write: Write, width: Callable[[], int]) -> None:
        self._write, self._width = write, width
        self._column = 0
        self._blank = ("", "")  # blanks after the last word, and their style
        self._word: list[tuple[str, str]] = []
        self._word_width = self._word_length = 0

    def feed(self, text: str, style: str) -> None:
        """Take some more text."""
        for atom in _ATOM.findall(text):
            if atom == "\n":
                self.flush()
                self._write("\n", "")
                self._column = 0
            elif atom[0] in " \t":
                self._end_word()
                self._blank = (self._blank[0] + atom.expandtabs(4), style)
            else:
                wide = column_width(atom[0]) == 2
                if self._word and wide and atom not in _STAYS_BEHIND:
                    self._end_word()
                self._add(atom, style)
                if self._word_length > _LONGEST_WORD:
                    self._end_word()

    def verbatim(self, text: str, style: str) -> None:
        """Take text that is not to be broken (code)."""
        self.flush()
        self._write(text, style)
        self._column = 0 if text.endswith("\n") else self._column + text_width(text.rpartition("\n")[2])

    def flush(self) -> None:
        """Print what was held back."""
        self._end_word()
        blank, style = self._blank
        if blank and self._column + len(blank) < self._width():
            self._write(blank, style)
            self._column += len(blank)
        self._blank = ("", "")

    def _add(self, atom: str, style: str) -> None:
        previous = self._word[-1][0][-1] if self._word else ""
        if previous and column_width(previous) == 2 and column_width(atom[0]) != 2 and atom[0] not in _STAYS_BEHIND:
            self._end_word()
        self._word.append((atom, style))
        self._word_width += text_width(atom)
        self._word_length += len(atom)

    def _end_word(self) -> None:
        if not self._word:
            return
        word, width = self._word, self._width()
        blank, style = self._blank
        if self._column and self._column + len(blank) + self._word_width > width:
            self._write("\n", "")
            self._column = 0
        elif blank:
            self._write(blank, style)
            self._column += len(blank)
        for piece, piece_style in word:
            self._write(piece, piece_style)
        self._column = (self._column + self._word_width) % max(width, 1) or (width if self._word_width else 0)
        self._blank, self._word, self._word_width, self._word_length = ("", ""), [], 0, 0
