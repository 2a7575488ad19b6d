"""What a change looks like: a unified diff that shows everything and that no character in it can disturb."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from ..text import escape_invisible
from ..workspace import shown
from .encodings import visible

_CONTEXT = 3
_MOST_COMPARED = 4_000  # changed lines that are compared one by one; more are shown as a block out, a block in


def unified_diff(name: str, old: str | None, new: str) -> str:
    """The diff from ``old`` (None: the file is new) to ``new``; empty if they are equal.

    Line endings are shown as ``␍`` where they are not the same throughout; other control, invisible and bidirectional
    characters are escaped.
    """
    if old == new:
        return ""
    before, after = _lines(old or ""), _lines(new)
    if _uniform(before) and _uniform(after) and (not before or not after or _ending(before) == _ending(after)):
        strip = "\r\n" if _ending(after or before) == "\r\n" else "\n"
    else:
        strip = "\n"
    name = shown(name)
    lines = [f"--- {'/dev/null' if old is None else name}", f"+++ {name}"]
    for group in _groups(before, after):
        first, last = group[0], group[-1]
        lines.append(f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@")
        for kind, start, end, new_start, new_end in group:
            if kind == "equal":
                lines += _shown(" ", before[start:end], strip)
            else:
                lines += _shown("-", before[start:end], strip)
                lines += _shown("+", after[new_start:new_end], strip)
    return "\n".join(lines)


_Change = tuple[str, int, int, int, int]


def _groups(before: list[str], after: list[str]) -> Iterator[list[_Change]]:
    """The changes with the lines around them, as ``difflib`` gives them; equal ends are cut off first, for speed."""
    shortest = min(len(before), len(after))
    head = next((index for index in range(shortest) if before[index] != after[index]), shortest)
    tail = next((index for index in range(shortest - head) if before[-1 - index] != after[-1 - index]), shortest - head)
    old_middle, new_middle = before[head : len(before) - tail], after[head : len(after) - tail]
    if len(old_middle) + len(new_middle) > _MOST_COMPARED:
        changes: list[_Change] = [("replace", 0, len(old_middle), 0, len(new_middle))]
    else:
        matcher = difflib.SequenceMatcher(None, old_middle, new_middle, autojunk=False)
        changes = [(kind, *places) for kind, *places in matcher.get_opcodes()]  # type: ignore[misc]
    kept_head, kept_tail = min(head, _CONTEXT), min(tail, _CONTEXT)
    shifted = [(kind, a + head, b + head, c + head, d + head) for kind, a, b, c, d in changes]
    if kept_head:
        shifted.insert(0, ("equal", head - kept_head, head, head - kept_head, head))
    if kept_tail:
        old_end, new_end = len(before) - tail, len(after) - tail
        shifted.append(("equal", old_end, old_end + kept_tail, new_end, new_end + kept_tail))
    group: list[_Change] = []
    for kind, a, b, c, d in shifted:
        if kind == "equal" and b - a > 2 * _CONTEXT and group:
            yield [*group, (kind, a, a + _CONTEXT, c, c + _CONTEXT)]
            group = []
            a, c = b - _CONTEXT, d - _CONTEXT
        group.append((kind, a, b, c, d))
    if any(kind != "equal" for kind, *_ in group):
        yield group


def _lines(text: str) -> list[str]:
    """The lines with their endings; only ``\\n`` ends a line."""
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _ending(lines: list[str]) -> str:
    return "\r\n" if lines and lines[0].endswith("\r\n") else "\n"


def _uniform(lines: list[str]) -> bool:
    carriage = sum(line.endswith("\r\n") for line in lines)
    return carriage in (0, sum(line.endswith("\n") for line in lines))


def _range(start: int, end: int) -> str:
    return f"{start + 1}" if end - start == 1 else f"{start + (end > start)},{end - start}"


def _shown(sign: str, lines: list[str], strip: str) -> Iterator[str]:
    for line in lines:
        text = line.removesuffix(strip)
        yield sign + escape_invisible(visible(text.replace("\r", "␍")))
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"
