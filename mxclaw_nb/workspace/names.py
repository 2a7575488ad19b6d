"""Names of files: compared as the most forgiving file system would, and shown without tricks."""

from __future__ import annotations

import os
import re
import unicodedata

_STREAM = re.compile(r":.*\Z", re.DOTALL)  # NTFS: `.git::$INDEX_ALLOCATION` is `.git`
_LONG = 300  # characters of a path that a sentence quotes
_WINDOWS = os.name == "nt"


def plain_name(name: str) -> str:
    """A name in the form in which two names of one file are equal on some file system.

    Case, Unicode form, invisible characters (HFS+ ignores them), trailing dots and blanks, and the tail after a
    colon (Windows) make no difference. For deciding what must be refused or asked, never for opening.
    """
    kept = "".join(character for character in name if unicodedata.category(character) != "Cf")
    if _WINDOWS:
        kept = _STREAM.sub("", kept)
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", kept).casefold()).rstrip(". ")


def shown(name: str) -> str:
    """A path as a person and a model may see it: on one line, control and invisible characters escaped.

    Bytes that are no UTF-8 appear as ``\\xff``. Ordinary backslashes stay as they are.
    """
    if name.isascii() and name.isprintable():
        return name
    return "".join(character if _harmless(character) else _escaped(character) for character in name)


def quoted(name: str) -> str:
    """A path as part of a sentence: shown, in quotes, and cut if it is very long."""
    return f'"{shown(name)}"' if len(name) <= _LONG else f'"{shown(name[:_LONG])}…"'


def _harmless(character: str) -> bool:
    return character in "\u200c\u200d" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp", "Cn")


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")
