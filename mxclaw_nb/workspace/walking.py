"""From what was typed to the real path: symbolic links, ``..`` and Unicode forms resolved, one name at a time."""

from __future__ import annotations

import errno
import os
import unicodedata
from collections import deque
from dataclasses import dataclass
from pathlib import Path

_MOST_LINKS = 40  # as Linux
_MOST_NAMES = 100_000  # of a folder, when looking for another Unicode form of a name


@dataclass(frozen=True, slots=True)
class Walked:
    """Where a path leads. ``exists`` is false from the first missing name on, which is then taken as it stands.

    ``dangling``: the missing name came out of a symbolic link. ``problem``: why the path cannot be followed, as the
    end of a sentence about it.
    """

    path: Path
    exists: bool
    dangling: bool = False
    problem: str | None = None


def walk(start: Path, text: str) -> Walked:
    """Resolve ``text``, relative to the real folder ``start``. ``..`` means the parent of where a link leads.

    Touches nothing but names: no file is opened. Never raises OSError.
    """
    if os.name == "nt":
        real = Path(os.path.realpath(start / text))
        return Walked(real, real.exists())
    current = "/" if text.startswith("/") else str(start)
    pending = deque((name, False) for name in text.split("/"))
    exists, dangling, links = True, False, 0
    problem: str | None = None
    while pending:
        name, from_link = pending.popleft()
        if name in ("", "."):
            continue
        if name == "..":
            if not exists:
                problem = problem or "has `..` behind a folder that does not exist"
            current = os.path.dirname(current)
            continue
        path = os.path.join(current, name)
        target: str | None = None
        if exists:
            try:
                target = _link_target(path)
            except FileNotFoundError:
                other = _other_form(current, name)
                if other is not None:
                    pending.appendleft((other, from_link))
                    continue
                exists, dangling = False, from_link
            except OSError as error:
                exists, problem = False, problem or _why(error)
        if target is None:
            current = path
            continue
        links += 1
        if links > _MOST_LINKS:
            return Walked(Path(path), False, True, "goes round in circles through symbolic links")
        if target.startswith("/"):
            current = "/"
        pending.extendleft((part, True) for part in reversed(target.split("/")))
    return Walked(Path(current), exists, dangling, problem)


def _link_target(path: str) -> str | None:
    """Where the symbolic link points, None for anything else that exists. Raises OSError."""
    try:
        return os.readlink(path)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def _other_form(folder: str, name: str) -> str | None:
    """The one name in the folder that is the same text in another Unicode form (NFC, NFD)."""
    if name.isascii():
        return None
    wanted = unicodedata.normalize("NFC", name)
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                if count >= _MOST_NAMES:
                    return None
                if not entry.name.isascii() and unicodedata.normalize("NFC", entry.name) == wanted:
                    found.append(entry.name)
    except OSError:
        return None
    return found[0] if len(found) == 1 else None


def _why(error: OSError) -> str:
    if error.errno == errno.ENOTDIR:
        return "goes on behind a file as if that were a folder"
    if error.errno == errno.ENAMETOOLONG:
        return "is longer than a path may be here"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "goes through a folder that may not be entered (permission denied)"
    return f"cannot be followed ({error.strerror or 'unknown error'})"
