"""What encoding a text file has, and whether it is text at all. Never guesses so that a byte could be lost.

Byte order mark, else UTF-8, else UTF-8 with some stray bytes, else the legacy encoding that makes the likeliest text.
A decoding always gives the same bytes back; bytes that are no text are kept as lone surrogates (``surrogateescape``)
and shown as ``\\xe9``.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass

SAMPLE = 1 << 16
"""Bytes from the start of a file that the decision is made from."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"),
)  # fmt: skip
_CONTROLS = frozenset(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27}
_TWINS = {"gb18030", "euc_kr"}  # the rows of Hangul lie among those of the common Chinese characters,
_TELLING = 8  # but so many Chinese characters in a row hardly all fall into them
_STRAY = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True, slots=True)
class Encoding:
    """An encoding as Python names it, and the mark that the file starts with.

    ``guessed``: not told by the file. ``sure`` is false if other guesses were nearly as good.
    """

    name: str
    mark: bytes = b""
    guessed: bool = False
    sure: bool = True

    @property
    def errors(self) -> str:
        """The error handler that loses nothing."""
        return "surrogateescape" if self.name == "utf-8" else "strict"

    @property
    def title(self) -> str:
        """The name for people."""
        return f"{self.name.upper()}{' with BOM' if self.mark else ''}"

    def encode(self, text: str) -> bytes:
        """The text's bytes, without the mark. Raises UnicodeEncodeError for what the encoding has no bytes for."""
        return text.encode(self.name, "strict")


def detect(sample: bytes, *, whole: bool) -> Encoding | None:
    """The encoding of the file that starts with ``sample`` (all of it, if ``whole``), None for a binary file."""
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return Encoding(name, mark)
    if b"\0" in sample or sum(byte in _CONTROLS for byte in sample[:4096]) * 10 > len(sample[:4096]):
        return None
    return _without_mark(sample, whole)


def _without_mark(sample: bytes, whole: bool) -> Encoding:
    if _decodes(sample, "utf-8", whole):
        return Encoding("utf-8")
    text = sample.decode("utf-8", "surrogateescape")
    stray = len(_STRAY.findall(text))
    # a sequence of three or four bytes hardly ever comes about by chance, one of two sometimes does
    proper = sum(3 if character >= "\u0800" else 1 for character in text if character >= "\x80") - 3 * stray
    if proper >= 2 * stray:
        return Encoding("utf-8")
    return _guess(sample, whole)


def visible(text: str) -> str:
    """The decoded text as it can be sent: stray bytes as ``\\xe9``, NUL as ``␀``."""
    text = text.replace("\0", "␀")
    return _STRAY.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text) if _STRAY.search(text) else text


def _decodes(sample: bytes, name: str, whole: bool) -> bool:
    try:
        codecs.getincrementaldecoder(name)().decode(sample, final=whole)
    except UnicodeDecodeError:
        return False
    return True


def _guess(sample: bytes, whole: bool) -> Encoding:
    """The legacy encoding under which the sample reads most like text; else Latin-1, which takes every byte."""
    scores: list[tuple[float, str]] = []
    for name, worth in _CANDIDATES:
        try:
            text = codecs.getincrementaldecoder(name)().decode(sample, final=whole)
            if not sample.startswith(text.encode(name)):
                continue
        except UnicodeError:
            continue
        foreign = [index for index, character in enumerate(text) if character >= "\x80"]
        if foreign:
            scores.append((sum(worth(text, index) for index in foreign) / len(foreign), name))
    scores.sort(key=lambda each: -each[0])
    if {name for _, name in scores[:2]} == _TWINS and scores[0][0] - scores[1][0] < 0.05:
        korean = sum(byte >= 0x80 for byte in sample) >= 2 * _TELLING
        return Encoding("euc_kr" if korean else "gb18030", guessed=True, sure=False)
    if not scores or scores[0][0] <= 0:
        return Encoding("latin-1", guessed=True, sure=False)
    rival = scores[1][0] if len(scores) > 1 else 0.0
    return Encoding(scores[0][1], guessed=True, sure=scores[0][0] >= 0.5 and scores[0][0] - rival >= 0.15)


def _two_byte(
    name: str, ranges: tuple[tuple[int, int, float], ...], least_trail: int = 0x40
) -> Callable[[str, int], float]:
    """How likely a character is, by the row of the code table that its first byte names."""

    def worth(text: str, index: int) -> float:
        code = text[index].encode(name)
        if len(code) == 2 and code[1] >= least_trail:
            for first, last, value in ranges:
                if first <= code[0] <= last:
                    return value
        return -0.8

    return worth


def _latin(text: str, index: int) -> float:
    """Accented letters stand alone among plain ones, as in `café`; runs of them are another encoding misread."""
    character = text[index]
    if character in "“”‘’–—…€«»°§©®":
        return 0.7
    if not character.isalpha():
        return -0.5
    before, after = text[index - 1 : index], text[index + 1 : index + 2]
    if before >= "\x80" or after >= "\x80":
        return -0.3
    return 0.9 if before.isalpha() or after.isalpha() else 0.2


def _cyrillic(text: str, index: int) -> float:
    """Russian: small letters beside other Cyrillic ones."""
    character = text[index]
    if not "А" <= character <= "ё":
        return -0.5
    before, after = text[index - 1 : index], text[index + 1 : index + 2]
    if not ("А" <= before <= "ё" or "А" <= after <= "ё"):
        return -0.3
    if character.islower():
        return 0.95
    return 0.6 if not before.isalpha() else -0.2


_CANDIDATES: tuple[tuple[str, Callable[[str, int], float]], ...] = (
    (
        "gb18030",
        _two_byte("gb18030", ((0xB0, 0xD7, 1.0), (0xA1, 0xA3, 0.8), (0xD8, 0xF7, 0.1), (0xA4, 0xA9, -0.2)), 0xA1),
    ),
    ("cp932", _two_byte("cp932", ((0x82, 0x83, 1.0), (0x81, 0x81, 0.6), (0x88, 0x97, 0.8), (0x98, 0xEA, 0.0)))),
    ("euc_jp", _two_byte("euc_jp", ((0xA4, 0xA5, 1.0), (0xA1, 0xA1, 0.6), (0xB0, 0xCF, 0.75)), 0xA1)),
    ("euc_kr", _two_byte("euc_kr", ((0xB0, 0xC8, 0.99), (0xA1, 0xA3, 0.5)), 0xA1)),
    ("big5", _two_byte("big5", ((0xA4, 0xC6, 0.9), (0xA1, 0xA3, 0.6), (0xC9, 0xF9, 0.0)))),
    ("cp1252", _latin),
    ("cp1251", _cyrillic),
    ("koi8_r", _cyrillic),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decoded:
    """The text of a whole file (without its mark) and how to make bytes of it again; the same bytes, if unchanged."""

    text: str
    encoding: Encoding


def decode_whole(data: bytes) -> Decoded | None:
    """The text of a file, None if it is binary or does not keep to the encoding that its mark tells."""
    encoding = detect(data[:SAMPLE], whole=len(data) <= SAMPLE)
    if encoding is None or (b"\0" in data and not encoding.name.startswith(("utf-16", "utf-32"))):
        return None
    body = data[len(encoding.mark) :]
    text = _exact(body, encoding)
    if encoding.mark:
        return None if text is None else Decoded(text, encoding)
    stray = _STRAY.search(text) if text is not None and encoding.name == "utf-8" else None
    if text is None or (stray is not None and len(data) > SAMPLE):  # the start did not show all: look further
        start = 0 if text is None or stray is None else len(text[: stray.start()].encode("utf-8", "surrogateescape"))
        start = data.rfind(b"\n", 0, start) + 1
        again = _without_mark(data[start : start + 4 * SAMPLE], start + 4 * SAMPLE >= len(data))
        if again != encoding:
            encoding, text = again, _exact(body, again)
    if text is None:
        encoding = Encoding("latin-1", guessed=True, sure=False)
        text = body.decode("latin-1")
    return Decoded(text, encoding)


def _exact(body: bytes, encoding: Encoding) -> str | None:
    """The text, if it gives back the very same bytes."""
    try:
        text = body.decode(encoding.name, encoding.errors)
        return text if text.encode(encoding.name, encoding.errors) == body else None
    except UnicodeError:
        return None
