"""Tables in markdown whose cells are only ever text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"[\\`*_{}\[\]<>()#+!|~$&]")


def plain(text: str) -> str:
    """Any text as markdown that shows just that text, on one line.

    Special characters become numeric references: a backslash before a parenthesis would be a formula to a notebook.
    """
    flat = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", flat)


def code(text: str) -> str:
    """Any text as inline code, usable in a table."""
    flat = " ".join("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text).split())
    fence = "`" * (max((len(run) for run in re.findall(r"`+", flat)), default=0) + 1)
    padding = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{padding}{flat}{padding}{fence}".replace("|", "\\|")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table; the cells must be markdown already (see ``plain`` and ``code``)."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)
