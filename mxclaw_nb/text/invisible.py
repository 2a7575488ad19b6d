"""What is in a text and cannot be seen: shown, wherever a person decides by it."""

from __future__ import annotations

import unicodedata

_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"})
# They draw nothing, or a blank, although Unicode calls them letters, marks or symbols.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc")


def is_invisible(character: str) -> bool:
    """Whether it draws nothing, or a blank that is not the space bar's, or changes the order of what is drawn.

    Newline and tab count as visible.
    """
    if " " <= character <= "~" or character in "\n\t":
        return False
    return (
        unicodedata.category(character) in _CATEGORIES
        or character in _BLANKS
        or "\ufe00" <= character <= "\ufe0f"
        or "\U000e0100" <= character <= "\U000e01ef"
    )


def escape_invisible(text: str) -> str:
    """The text with every invisible, bidirectional or control character written as ``⟨U+202E⟩``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"⟨U+{ord(character):04X}⟩" if is_invisible(character) else character for character in text)
