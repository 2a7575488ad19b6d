"""Long output, made fit for the model: head and tail, the count of what was cut, and the full text in a file."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from ..files import make_private_dir
from ..protocol import ToolContext

OUTPUT_LIMIT = 20_000
"""Characters of one tool's output that the model is given at most."""

_ZWJ = "\u200d"
_LOOK_BACK = 64  # no real grapheme cluster is longer; a longer chain of marks is an attack and may be cut
_NEAR_LINE_END = 200  # a cut moves this far at most to fall between two lines
_SMALLEST_SPLIT = 160  # below this, head and tail with a notice between them make no sense


def clip(text: str, limit: int = OUTPUT_LIMIT, *, hint: str = "") -> str:
    """The text if it has at most ``limit`` characters, else its head and tail with the count of what was cut.

    The result is never longer than ``limit``. No cut falls inside a grapheme cluster (combining marks, emoji
    sequences, flags, Hangul, surrogates). ``hint`` is added to the notice, for example where the full text is.
    """
    if len(text) <= limit:
        return text
    widest = f"\n[... {len(text):,} characters ({len(text):,} lines) cut{hint} ...]\n"
    room = limit - len(widest)
    if room < _SMALLEST_SPLIT:
        return text[: boundary_before(text, max(limit - 1, 0))] + ("…" if limit > 0 else "")
    start = boundary_before(text, room // 2)
    line = text.rfind("\n", max(start - _NEAR_LINE_END, 1), start)
    start = start if line < 0 else line + 1
    end = boundary_after(text, len(text) - (room - room // 2))
    line = text.find("\n", end, end + _NEAR_LINE_END)
    end = end if line < 0 or line + 1 >= len(text) else line + 1
    cut, lines = end - start, text.count("\n", start, end)
    size = f"{cut:,} characters" + (f" ({lines:,} lines)" if lines else "")
    before = "" if text[start - 1] == "\n" else "\n"
    return f"{text[:start]}{before}[... {size} cut{hint} ...]\n{text[end:]}"


def boundary_before(text: str, index: int) -> int:
    """The nearest place at or before ``index`` where the text may be cut."""
    for place in range(index, max(index - _LOOK_BACK, 0), -1):
        if not _joined(text, place):
            return place
    return index if index > _LOOK_BACK else 0


def boundary_after(text: str, index: int) -> int:
    """The nearest place at or after ``index`` where the text may be cut."""
    for place in range(index, min(index + _LOOK_BACK, len(text))):
        if not _joined(text, place):
            return place
    return index if index + _LOOK_BACK < len(text) else len(text)


def _joined(text: str, place: int) -> bool:
    """Whether the characters on both sides of ``place`` belong to one grapheme cluster (after Unicode's UAX 29)."""
    if place <= 0 or place >= len(text):
        return False
    left, right = text[place - 1], text[place]
    if left < "\u0300" and right < "\u0300":
        return left == "\r" and right == "\n"
    if right == _ZWJ or left == _ZWJ or unicodedata.category(right) in ("Mn", "Me", "Mc"):
        return True
    if "\U0001f3fb" <= right <= "\U0001f3ff" or "\U000e0020" <= right <= "\U000e007f":
        return True
    if "\ud800" <= left <= "\udbff" and "\udc00" <= right <= "\udfff":
        return True
    if _is_flag_letter(left) and _is_flag_letter(right):
        run = place
        while run > 0 and _is_flag_letter(text[run - 1]):
            run -= 1
        return (place - run) % 2 == 1
    if "\u1160" <= right <= "\u11ff":  # Hangul vowel or final consonant
        return "\u1100" <= left <= "\u11ff" or "\uac00" <= left <= "\ud7a3"
    return "\u1100" <= left <= "\u115f" and "\u1100" <= right <= "\u115f"


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def save_output(folder: Path, call_id: str, content: bytes) -> Path:
    """Write a call's full output as a new private file (0600) in the session's private folder (0700).

    The name is derived from ``call_id``, which comes from the provider and may hold anything; it never leaves the
    folder and never replaces a file. Raises OSError.
    """
    make_private_dir(folder)
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", call_id[:200]).strip("-")[:40] or "call"
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for attempt in range(1, 10_000):
            name = f"{readable}-{digest}.txt" if attempt == 1 else f"{readable}-{digest}-{attempt}.txt"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                descriptor = os.open(name, flags, 0o600, dir_fd=directory)
            except FileExistsError:
                continue
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
            except OSError:
                os.unlink(name, dir_fd=directory)
                raise
            return folder / name
    finally:
        os.close(directory)
    raise FileExistsError(f"too many output files for one call in {folder}")


@dataclass(frozen=True, slots=True)
class Presented:
    """What the model reads, and where the full text is if it was cut."""

    content: str
    path: str | None = None


def present(text: str, context: ToolContext, *, limit: int = OUTPUT_LIMIT, full: bytes | None = None) -> Presented:
    """Clip a tool's text for the model; if something is cut, save the full text first, and say where.

    ``full`` is what to save, if it is not the text itself. A disk that cannot take it costs the file, not the result.
    Writes a file: call it on a thread when the text may be long.
    """
    if len(text) <= limit:
        return Presented(text)
    try:
        path = str(save_output(context.outputs, context.call_id, full or text.encode("utf-8", "replace")))
    except OSError as error:
        return Presented(clip(text, limit, hint=f"; the full text could not be saved: {error.strerror or error}"))
    return Presented(clip(text, limit, hint=f"; full text: {path}"), path)
