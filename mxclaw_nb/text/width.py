"""How many columns text takes where every character has a place in a grid: Chinese takes two, an accent none."""

from __future__ import annotations

import re
import unicodedata

from .invisible import escape_invisible


def column_width(character: str) -> int:
    """Columns of one character: 0, 1 or 2."""
    if character < "\u0300":
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def text_width(text: str) -> int:
    """Columns of a text on one line."""
    return len(text) if text.isascii() else sum(map(column_width, text))


def fit(text: str, width: int) -> str:
    """The text if it fits into ``width`` columns, else its beginning and an ellipsis; never wider than ``width``."""
    if len(text) * 2 <= width or text_width(text) <= width:
        return text
    used = 0
    for place, character in enumerate(text):
        used += column_width(character)
        if used > width - 1:
            return text[:place].rstrip() + "…" if width > 0 else ""
    return text


def last_words(text: str, width: int = 100) -> str:
    """The end of the text as one line of at most ``width`` columns; an ellipsis stands for what went before."""
    flat = escape_invisible(" ".join(text[-width * 8 :].split()))
    if len(text) <= width * 8 and text_width(flat) <= width:
        return flat
    used, start = 1, len(flat)
    while start > 0 and (used := used + column_width(flat[start - 1])) <= width:
        start -= 1
    return f"…{flat[start:].lstrip()}"


def one_line(text: str, width: int = 100) -> str:
    """The text as one line of at most ``width`` columns, what is invisible escaped and runs of blanks closed."""
    return fit(escape_invisible(re.sub(r"\s+", " ", text[: width * 8]).strip()), width)
