"""Why a text was not found: what comes nearest to it in the file, and how it differs. Explains, and never matches."""

from __future__ import annotations

import difflib
import json
import re
import unicodedata

from ..text import escape_invisible
from .encodings import visible

_MOST_LINES = 200_000
_MOST_COMPARED = 5_000
_LONGEST = 400  # characters of a line that are shown
_NUMBERED = re.compile(r"\s*\d+\t")
_ALIKE = str.maketrans({
    **dict.fromkeys("‘’‚‛′`´", "'"), **dict.fromkeys("“”„‟″«»", '"'), **dict.fromkeys("‐‑‒–—―−", "-"), "…": "...",
})  # fmt: skip


def explain_missing(text: str, old: str) -> str:
    """One or more sentences, each after a blank, or nothing. Both texts have ``\\n`` as their only line ending."""
    old_lines, lines = old.split("\n"), text.split("\n")[:_MOST_LINES]
    if all(_NUMBERED.match(line) for line in old_lines if line) and old.strip():
        return " It starts with line numbers as read_file shows them: leave out each number and the tab after it."
    start = _alike(lines, old_lines)
    if start is not None:
        return _difference(lines, old_lines, start)
    wanted = next((line for line in old_lines if line.strip()), "")
    near = _closest(lines, wanted)
    if near is None:
        return ""
    return f" The nearest line is {near + 1}:\n{_marked(lines[near])}\nNot:\n{_marked(wanted)}"


def _alike(lines: list[str], old_lines: list[str]) -> int | None:
    """The first line from which on the file is the same, but for white space and characters that look alike."""
    wanted = [_skeleton(line) for line in old_lines]
    if not any(wanted):
        return None
    having = [_skeleton(line) for line in lines]
    last = len(wanted) - 1
    for start in range(len(having) - last):
        if last == 0:
            if wanted[0] in having[start]:
                return start
        elif (
            having[start].endswith(wanted[0])
            and having[start + last].startswith(wanted[last])
            and having[start + 1 : start + last] == wanted[1:last]
        ):
            return start
    return None


def _skeleton(line: str) -> str:
    if line.isascii():
        return "".join(line.split())
    text = unicodedata.normalize("NFKC", line.translate(_ALIKE))
    return "".join(
        character for character in text if not character.isspace() and unicodedata.category(character) != "Cf"
    )


def _difference(lines: list[str], old_lines: list[str], start: int) -> str:
    last = len(old_lines) - 1
    for index, wanted in enumerate(old_lines):
        line = lines[start + index]
        if wanted == line or (index == 0 and line.endswith(wanted)) or (index == last and line.startswith(wanted)):
            continue
        if unicodedata.normalize("NFC", line) == unicodedata.normalize("NFC", wanted):
            return (
                f" Line {start + index + 1} differs from it only in Unicode form. The file has:\n{_spelled(line)}\nand "
                f"`old` has:\n{_spelled(wanted)}"
            )
        kind = "white space" if "".join(line.split()) == "".join(wanted.split()) or (
            "".join(wanted.split()) in "".join(line.split())
        ) else "characters that look alike"  # fmt: skip
        return (
            f" Line {start + index + 1} differs from it only in {kind} (`→` is a tab, `·` a blank). The file has:"
            f"\n{_marked(line)}\nand `old` has:\n{_marked(wanted)}"
        )
    return ""


def _closest(lines: list[str], wanted: str) -> int | None:
    if not wanted.strip() or len(wanted) > _LONGEST:
        return None
    matcher = difflib.SequenceMatcher(None, "", wanted.strip(), autojunk=False)
    best, best_ratio = None, 0.6
    for index, line in enumerate(lines[:_MOST_COMPARED]):
        if len(line) > _LONGEST:
            continue
        matcher.set_seq1(line.strip())
        if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio:
            ratio = matcher.ratio()
            if ratio > best_ratio:
                best, best_ratio = index, ratio
    return best


def _spelled(line: str) -> str:
    """The line with every character outside ASCII as an escape, as JSON takes it."""
    return "".join(
        character if character.isascii() else json.dumps(character)[1:-1] for character in _marked(line[:_LONGEST])
    )


def _marked(line: str) -> str:
    """The line with its white space visible."""
    text = escape_invisible(visible(line[:_LONGEST].replace("\r", "␍")))
    return text.replace("\t", "→").replace(" ", "·") + ("…" if len(line) > _LONGEST else "")
