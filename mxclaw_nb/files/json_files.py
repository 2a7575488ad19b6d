"""Small JSON files, read with a bound and written at one stroke."""

from __future__ import annotations

import json
from pathlib import Path

from .atomic import write_atomic
from .errors import FileError
from .reading import read_bounded

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def read_json(path: Path, *, limit: int = 4 << 20) -> Json:
    """The value in a JSON file (UTF-8, with or without BOM) of at most ``limit`` bytes.

    Raises FileError if it is too large or not JSON (without showing any of it), FileNotFoundError or another OSError.
    """
    data = read_bounded(path, limit)
    try:
        value: Json = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise FileError(f"{path} is damaged: it is not valid JSON. Mend it, or move it away to start anew.") from None
    return value


def write_json(path: Path, value: Json, *, mode: int = 0o600) -> None:
    """Write a value as indented JSON, at one stroke. Raises OSError; ValueError for NaN or a lone surrogate."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    write_atomic(path, text.encode("utf-8"), mode=mode)
