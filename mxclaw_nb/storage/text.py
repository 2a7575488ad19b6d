"""Text on its way into and out of the store: encodable, searchable, and cut for people."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from mxclaw_nb.text import column_width, encodable

# Scripts that are written without spaces between words: every character is a word of its own to the index.
_SPACELESS = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3100-\u318f\u31a0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff])"
)
_SPACE = re.compile(r"\s+")
_MAX_TERMS, _MAX_QUERY = 32, 1_000
EXCERPT_COLUMNS = 160


def searchable(text: str) -> str:
    """The text as the full-text index is given it, and a query too: one form for one character, CJK spaced."""
    text = text.replace("\0", " ")
    if text.isascii():
        return text
    return _SPACELESS.sub(r" \1 ", unicodedata.normalize("NFKC", text))


def match_expression(query: str) -> str | None:
    """An FTS5 expression for messages that hold all the words of the query; None if it has no words.

    Each word becomes a quoted phrase, so nothing in it is an operator.
    """
    phrases = [f'"{searchable(term)}"' for term in _terms(query)]
    return " ".join(phrases) or None


def _terms(query: str) -> Iterator[str]:
    """The words of a query that have something to look for, without the quotes that mean nothing to the index."""
    count = 0
    for word in encodable(query[:_MAX_QUERY]).replace("\0", " ").replace('"', " ").split():
        if any(unicodedata.category(character)[0] in "LN" for character in word):
            yield word
            count += 1
            if count == _MAX_TERMS:
                return


def excerpt(text: str, query: str, *, columns: int = EXCERPT_COLUMNS) -> str:
    """One line of at most ``columns`` columns around the first place where a word of the query stands.

    Wide characters count two. A character keeps its combining marks, and a word of a spaced script its end where
    that costs little. What was left out is shown by an ellipsis.
    """
    text = _SPACE.sub(" ", text.replace("\0", " ")).strip()
    start, end = _first_match(text, query)
    budget = columns - 2
    first, last, used = start, start, 0
    while last < len(text) and (last < end or used < budget // 2) and used + column_width(text[last]) <= budget:
        used += column_width(text[last])
        last += 1
    while first > 0 and used + column_width(text[first - 1]) <= budget:
        first -= 1
        used += column_width(text[first])
    while last < len(text) and used + column_width(text[last]) <= budget:
        used += column_width(text[last])
        last += 1
    if first > 0:
        first = _step_inward(text, first, start, 1)
    if last < len(text):
        last = _step_inward(text, last, min(end, last), -1)
    return ("…" if first > 0 else "") + text[first:last].strip() + ("…" if last < len(text) else "")


def _first_match(text: str, query: str) -> tuple[int, int]:
    best: tuple[int, int] | None = None
    for term in _terms(query):
        tokens = [re.escape(token) for token in re.findall(r"\w+", term)]
        found = re.search(r"[\W_]{0,8}".join(tokens), text, re.IGNORECASE) if tokens else None
        if found and found.end() > found.start() and (best is None or found.start() < best[0]):
            best = found.span()
    return best or (0, 0)


def _step_inward(text: str, cut: int, limit: int, step: int) -> int:
    """Move a cut off the middle of a character cluster, and off the middle of a short word."""
    while cut != limit and _joins(text, cut):
        cut += step
    for moved in range(cut, limit, step)[:16]:
        if text[moved - 1 : moved].isspace() or text[moved : moved + 1].isspace():
            return moved
        if _SPACELESS.match(text, moved) or (moved and _SPACELESS.match(text, moved - 1)):
            return cut
    return cut


def _joins(text: str, index: int) -> bool:
    """Whether the characters on both sides of ``index`` are one to the reader."""
    if not 0 < index < len(text):
        return False
    after, before = text[index], text[index - 1]
    regional = "\U0001f1e6" <= before <= "\U0001f1ff" and "\U0001f1e6" <= after <= "\U0001f1ff"
    skin = "\U0001f3fb" <= after <= "\U0001f3ff"
    return unicodedata.category(after) in ("Mn", "Me", "Mc") or "\u200d" in (after, before) or regional or skin
