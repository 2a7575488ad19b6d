"""Replacing text in a file's bytes so that every byte outside the change stays what it was.

Pure: bytes in, bytes out. Line endings make no difference in finding; what is put in gets the endings of what it
replaces, or of the lines around it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

from .encodings import Decoded

_CRLF = re.compile("\r\n")


@dataclass(frozen=True, slots=True)
class Spliced:
    """The new bytes, how many places were changed, and the number of the first changed line."""

    data: bytes
    text: str
    count: int
    first_line: int


class NotFound(Exception):
    """The old text is not in the file."""


class NotUnique(Exception):
    """The old text is there more than once; ``lines`` are the first places, ``count`` their number."""

    def __init__(self, lines: list[int], count: int) -> None:
        super().__init__(lines, count)
        self.lines, self.count = lines, count


def splice(data: bytes, decoded: Decoded, old: str, new: str, *, replace_all: bool) -> Spliced:
    """Replace ``old`` (not empty) by ``new`` in ``data``, which decodes to ``decoded``.

    With ``replace_all`` every place from left to right, places that overlap the one before left out; else the only
    place. Raises NotFound, NotUnique, or UnicodeEncodeError if ``new`` cannot be written in the file's encoding.
    """
    file = _File(decoded.text)
    old, new = _plain(old), _plain(new)
    if decoded.encoding.mark:
        old, new = old.removeprefix("\ufeff"), new.removeprefix("\ufeff")
    starts = _places(file.plain, old, overlapping=not replace_all) if old else []
    if not starts:
        raise NotFound
    if len(starts) > 1 and not replace_all:
        raise NotUnique([file.line(start) for start in starts[:20]], len(starts))
    head, tail = _common_ends(old, new)
    encoding = decoded.encoding
    mark = len(encoding.mark)
    bytes_out, text_out = [data[:mark]], []
    text_at, byte_at = 0, mark
    for start in starts:
        first, last = start + head, start + len(old) - tail
        raw_first, raw_last = file.raw(first), file.raw(last)
        put = file.with_endings(new[head : len(new) - tail], first, last)
        kept = decoded.text[text_at:raw_first]
        kept_bytes = len(kept.encode(encoding.name, encoding.errors))
        gone_bytes = len(decoded.text[raw_first:raw_last].encode(encoding.name, encoding.errors))
        bytes_out += [data[byte_at : byte_at + kept_bytes], encoding.encode(put)]
        text_out += [kept, put]
        text_at, byte_at = raw_last, byte_at + kept_bytes + gone_bytes
    bytes_out.append(data[byte_at:])
    text_out.append(decoded.text[text_at:])
    return Spliced(b"".join(bytes_out), "".join(text_out), len(starts), file.line(starts[0] + head))


class _File:
    """The text with every line ending as ``\\n`` in ``plain``, and the way back to the places in the real text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.plain = _plain(text)
        # for each CRLF, where its newline is in the plain text
        self._crlf = [found.start() - index for index, found in enumerate(_CRLF.finditer(text))]

    def raw(self, place: int) -> int:
        """Where a place in the plain text is in the real one (before the whole ending, if it is at a newline)."""
        return place + bisect_left(self._crlf, place)

    def line(self, place: int) -> int:
        """The number of the line, from 1."""
        return self.plain.count("\n", 0, place) + 1

    def with_endings(self, text: str, first: int, last: int) -> str:
        """Text to stand for ``plain[first:last]``, with the endings that the lines there have, or those around."""
        needed = text.count("\n")
        if not needed or not self._crlf:
            return text
        here = [self._ending(place) for place in _places(self.plain[first:last], "\n", offset=first)]
        endings = (here + [here[-1] if here else self._ending_near(first)] * needed)[:needed]
        lines = text.split("\n")
        return "".join(line + ending for line, ending in zip(lines, endings, strict=False)) + lines[-1]

    def _ending(self, place: int) -> str:
        index = bisect_left(self._crlf, place)
        return "\r\n" if index < len(self._crlf) and self._crlf[index] == place else "\n"

    def _ending_near(self, place: int) -> str:
        """The ending of the line that the place is in; of the line before, if that is the last and has none."""
        after = self.plain.find("\n", place)
        return self._ending(after if after >= 0 else self.plain.rfind("\n", 0, place))


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


def _places(text: str, wanted: str, *, overlapping: bool = False, offset: int = 0) -> list[int]:
    places = []
    place = text.find(wanted)
    while place >= 0:
        places.append(place + offset)
        place = text.find(wanted, place + (1 if overlapping else len(wanted)))
    return places


def _common_ends(old: str, new: str) -> tuple[int, int]:
    """How many characters at the start and at the end are the same: they are not touched at all."""
    shortest = min(len(old), len(new))
    head = next((index for index in range(shortest) if old[index] != new[index]), shortest)
    tail = next((index for index in range(shortest - head) if old[-1 - index] != new[-1 - index]), shortest - head)
    return head, tail
