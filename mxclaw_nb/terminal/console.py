"""The one rich Console of this room: nothing that is printed is taken for markup, links or emoji names."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from .output import Output


def make_console(output: Output) -> Console:
    """A console over an output; colours, width and dumbness are the terminal's own (NO_COLOR, TERM, COLUMNS)."""
    terminal = output.isatty()
    return Console(
        file=output,  # type: ignore[arg-type]  # has all that rich uses of a text stream
        force_terminal=terminal,
        force_jupyter=False,
        markup=False,
        emoji=False,
        highlight=False,
        color_system="auto" if terminal else None,
        legacy_windows=False,
    )


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The few signs of a turn, for terminals that can draw them and for those that cannot."""

    call: str = "●"
    ok: str = "✓"
    failed: str = "✗"
    bar: str = "│"
    ask: str = "?"
    dot: str = "·"
    dots: str = "…"


UNICODE = Glyphs()
ASCII = Glyphs(call="*", ok="+", failed="x", bar="|", dot="-", dots="...")


def glyphs_for(console: Console) -> Glyphs:
    """Which signs this console's encoding can carry."""
    return UNICODE if console.encoding.lower().startswith("utf") else ASCII
