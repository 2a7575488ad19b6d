"""JSON as models really write it: invalid UTF-8, lone surrogates and half pairs included."""

from __future__ import annotations

import json
import re

from pydantic_core import from_json, to_json

from mxclaw_nb.text import encodable

_ESCAPE = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|u[dD][c-fC-F][0-9a-fA-F]{2}|.)", re.S
)


def parse_json(data: bytes) -> object:
    """The value of a JSON text. Bytes that are not UTF-8 become U+FFFD; lone surrogates are left for the caller.

    Raises ValueError if it is not JSON.
    """
    try:
        value: object = from_json(data)
    except ValueError:
        # The fast parser refuses lone surrogates; the standard library's lets them through.
        try:
            value = json.loads(data.decode("utf-8", "replace"))
        except RecursionError:
            raise ValueError("nested too deeply") from None
    return value


def is_json(text: str) -> bool:
    """Whether the text is one whole JSON value."""
    try:
        from_json(text.encode("utf-8", "surrogatepass"))
    except ValueError:
        return False
    return True


def is_whole_object(text: str) -> bool:
    """Whether the text is one whole JSON object. Cheap for a text that does not end like one."""
    stripped = text.strip()
    return stripped.startswith("{") and stripped.endswith("}") and is_json(stripped)


def encode_json(value: object) -> bytes:
    """Compact JSON in UTF-8; lone surrogates in it become U+FFFD, pairs of them the character they spell."""
    try:
        return to_json(value)
    except ValueError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return encodable(text).encode()


def replace_lone_escapes(text: str) -> str:
    r"""In a JSON text, escapes of lone surrogates (``\ud83d``) become ``\ufffd``; all else stays as it is."""
    if "\\u" not in text:
        return text
    return _ESCAPE.sub(_whole_escape, text)


def _whole_escape(match: re.Match[str]) -> str:
    escape = match.group()
    lone = len(escape) == 6 and escape[2] in "dD"
    return "\\ufffd" if lone else escape


class SurrogateJoiner:
    """Text that arrives in pieces: half of a pair waits for its other half in the next piece."""

    def __init__(self) -> None:
        self._high = ""

    def feed(self, piece: str) -> str:
        """The piece as it can be shown and stored."""
        if not self._high and encodable(piece) is piece:
            return piece
        text = self._high + piece
        self._high = ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        return encodable(text)

    def close(self) -> str:
        """What is left: U+FFFD for half a pair that stayed alone."""
        left, self._high = self._high, ""
        return "�" if left else ""
