"""Half a character: what UTF-8, SQLite and HTTP cannot carry, made whole."""

from __future__ import annotations


def encodable(text: str) -> str:
    """The text with surrogate pairs joined to their character and lone halves replaced by U+FFFD; mostly itself."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
