"""A tool call in a few lines: one when it starts, its live output dimmed and bounded, one when it has ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from ..protocol import ToolCompleted, ToolOutput, ToolStarted, WireToolCall
from ..text import ControlStripper, escape_invisible, fit, named_values, one_line, plain
from .console import Glyphs

HEAD_LINES, TAIL_LINES = 10, 5
RESULT_LINES = 6
ARGUMENTS, ARGUMENT_LINES = 8, 6
_LONGEST_LINE = 4096


@dataclass(slots=True)
class _LiveOutput:
    """The output of a running call: the first lines were shown, the last ones are kept for its end."""

    stripper: ControlStripper = field(default_factory=ControlStripper)
    shown: int = 0
    hidden: int = 0
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    partial: str = ""

    def lines(self, text: str) -> list[str]:
        """The lines that became whole."""
        *whole, rest = (self.partial + text).split("\n")
        self.partial = rest[:_LONGEST_LINE]
        return whole


class ToolCards:
    """The tool calls of one turn."""

    def __init__(self, console: Console, glyphs: Glyphs) -> None:
        self._console = console
        self._glyphs = glyphs
        self._live: dict[str, _LiveOutput] = {}
        self._announced: dict[str, str] = {}

    def announced(self, calls: Iterable[WireToolCall]) -> None:
        """The model asked for these. Those that are refused before they start are shown with their arguments."""
        self._announced.update((call.id, call.arguments) for call in calls)

    def started(self, event: ToolStarted) -> None:
        line = Text.assemble((f"{self._glyphs.call} ", "cyan"), (_name(event.name), "bold"))
        room = self._console.width - line.cell_len - 3
        if event.summary and room > 8:
            line.append(f"  {one_line(_without_name(event.summary, event.name), room)}")
        self._print(line)
        self._live[event.call_id] = _LiveOutput()
        self._announced.pop(event.call_id, None)

    def output(self, event: ToolOutput) -> None:
        live = self._live.setdefault(event.call_id, _LiveOutput())
        self._show(live, live.lines(live.stripper.feed(event.delta)))

    def completed(self, event: ToolCompleted) -> None:
        live = self._live.pop(event.call_id, None)
        if live is not None:
            self._finish(live)
        self._print(self._outcome(event, named=live is None or bool(self._live)))
        self._arguments(self._announced.pop(event.call_id, ""))
        seen = live is not None and (live.shown or live.hidden)
        if event.status != "ok" and not seen:
            self._result(event.result)
        if event.output_path is not None:
            self._dim_line(f"full output: {escape_invisible(event.output_path)}", cut=False)

    def _show(self, live: _LiveOutput, lines: list[str]) -> None:
        for line in lines:
            if live.shown < HEAD_LINES:
                live.shown += 1
                self._dim_line(line)
            else:
                live.hidden += 1
                live.tail.append(line)

    def _finish(self, live: _LiveOutput) -> None:
        rest = live.partial + live.stripper.finish()
        self._show(live, rest.split("\n") if rest else [])
        left_out = live.hidden - len(live.tail)
        if left_out:
            self._dim_line(f"{self._glyphs.dots} {left_out:,} lines not shown {self._glyphs.dots}")
        for line in live.tail:
            self._dim_line(line)

    def _arguments(self, arguments: str) -> None:
        """A name and its value a line, of a long value the first lines."""
        named = named_values(arguments)
        for name, value in named[:ARGUMENTS]:
            lines = value.rstrip("\n").split("\n")
            label = f"{one_line(name, 40)}: " if name else ""
            for number, line in enumerate(lines[:ARGUMENT_LINES]):
                self._dim_line((label if number == 0 else "  ") + escape_invisible(line[:_LONGEST_LINE]))
            if len(lines) > ARGUMENT_LINES:
                self._dim_line(f"  {self._glyphs.dots} {len(lines) - ARGUMENT_LINES:,} more lines")
        if len(named) > ARGUMENTS:
            self._dim_line(f"{self._glyphs.dots} {len(named) - ARGUMENTS:,} more arguments")

    def _result(self, result: str) -> None:
        lines = plain(result).strip().split("\n")
        for line in lines[:RESULT_LINES]:
            self._dim_line(line)
        if len(lines) > RESULT_LINES:
            self._dim_line(f"{self._glyphs.dots} {len(lines) - RESULT_LINES:,} more lines")

    def _outcome(self, event: ToolCompleted, *, named: bool) -> Text:
        good = event.status == "ok"
        facts = [_name(event.name)] if named else []
        facts.append(event.status)
        if event.exit_code is not None and event.exit_code != 0:
            facts.append(f"exit {event.exit_code}")
        if event.duration_ms:
            facts.append(duration(event.duration_ms / 1000))
        sign = self._glyphs.ok if good else self._glyphs.failed
        return Text.assemble(
            (f"  {sign} ", "green" if good else "red"), (f" {self._glyphs.dot} ".join(facts), "dim" if good else "")
        )

    def _dim_line(self, line: str, *, cut: bool = True) -> None:
        line = line.expandtabs(4)
        room = max(self._console.width - 5, 8)
        self._print(Text(f"  {self._glyphs.bar} {fit(line, room) if cut else line}", "dim"))

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


def duration(seconds: float) -> str:
    """A length of time for people."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _name(name: str) -> str:
    return one_line(name, 60)


def _without_name(summary: str, name: str) -> str:
    return summary.removeprefix(f"{name} ").removeprefix(f"{name}: ")
