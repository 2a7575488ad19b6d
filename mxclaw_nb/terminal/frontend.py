"""The front end of terminal IPython and of the ``mxclaw`` command."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from ..protocol import Event, Level, TurnHandle, TurnView, UsageError
from ..text import plain
from .keys import EndOfInput, Keyboard, can_read_keys
from .output import STALLED_S, Output

if TYPE_CHECKING:
    from rich.console import Console

_STYLES: dict[Level, str] = {"info": "", "success": "green", "warning": "yellow", "error": "red"}

_REFERENCE = re.compile(r"&#(3[2-9]|[4-9]\d|1[01]\d|12[0-6]);")


class TerminalFrontend:
    """Talks with a person at a terminal, or with nobody where standard input or output is none.

    With standard output in a pipe, a turn's progress goes to standard error and its final text alone to the pipe.
    """

    can_answer: bool

    def __init__(
        self, *, stdin: TextIO | None = None, stdout: TextIO | None = None, stderr: TextIO | None = None
    ) -> None:
        self._stdin = stdin if stdin is not None else sys.stdin
        self._stdout = Output(stdout if stdout is not None else sys.stdout)
        self._stderr = Output(stderr if stderr is not None else sys.stderr)
        self._at_terminal = self._stdout.isatty()
        self.can_answer = self._at_terminal and can_read_keys(self._stdin)

    # -- saying

    def say(self, text: str, *, level: Level = "info") -> None:
        """Plain text: what went wrong to standard error, all else to standard output."""
        output = self._stderr if level in ("warning", "error") else self._stdout
        text = plain(text)
        if output.isatty():
            from rich.text import Text

            self._console(output).print(Text(text, _STYLES[level]))
        else:
            output.write(text + "\n")
        output.settle()

    def say_markdown(self, markdown: str) -> None:
        """Rendered at a terminal; in a pipe as it is, but for numeric references, which become their character.

        Links are written out, raw HTML stays text.
        """
        text = plain(markdown)
        if self._at_terminal:
            from .markdown import render

            self._console(self._stdout).print(render(text))
        else:
            text = _REFERENCE.sub(lambda found: chr(int(found[1])), text)
            self._stdout.write(text if text.endswith("\n") else text + "\n")
        self._stdout.settle()

    def write(self, text: str) -> None:
        """Exactly these characters, as UTF-8, to standard output. Raises BrokenPipeError once its reader is gone.

        Returns at once: a reader that is slow must not hold up the turn whose events these are. See ``drain``.
        """
        if self._stdout.broken:
            raise BrokenPipeError("nobody reads standard output any more")
        self._stdout.write_bytes(text.encode("utf-8", "replace"))

    async def drain(self, patience_s: float = STALLED_S) -> None:
        """Wait until all that was said is written, or its reader has taken nothing for ``patience_s`` seconds."""
        await self._stdout.drain(patience_s)
        await self._stderr.drain(patience_s)

    def _console(self, output: Output) -> Console:
        from .console import make_console

        return make_console(output)

    # -- asking

    async def ask(self, prompt: str, *, default: str = "") -> str:
        """A line from the person; the default for an empty line, Ctrl-D, and where nobody can answer."""
        if not self.can_answer:
            return default
        try:
            line = await self._line(f"{plain(prompt)}{f' [{plain(default)}]' if default else ''}: ", echo=True)
        except EndOfInput:
            self._stdout.write("\n")
            return default
        return line.strip() or default

    async def confirm(self, prompt: str) -> bool:
        """True only for a clear yes."""
        answer = await self.ask(f"{prompt} [y/N]")
        return answer.lower() in ("y", "yes")

    async def choose(self, prompt: str, options: Sequence[str], *, default: str | None = None) -> str:
        """One of the options, by its number or its name. Raises UsageError where nobody can choose."""
        if not self.can_answer:
            if default is not None:
                return default
            raise UsageError(f"{prompt}: nobody can be asked here; name one of {', '.join(options)}.")
        for number, option in enumerate(options, 1):
            self.say(f"  {number}. {option}")
        while True:
            answer = await self.ask(prompt, default=default or "")
            if answer in options:
                return answer
            if answer.isdecimal() and 1 <= int(answer) <= len(options):
                return options[int(answer) - 1]
            if not answer:
                raise UsageError(f"{prompt}: nothing was chosen.")
            self.say(f"Type a number from 1 to {len(options)}, or a name from the list.", level="warning")

    async def read_secret(self, prompt: str) -> str:
        """A line that is not shown; from a pipe, its first line. Empty at Ctrl-D."""
        if can_read_keys(self._stdin):
            shown = self._stdout if self._at_terminal else self._stderr
            try:
                return (await self._line(f"{plain(prompt)}: ", echo=False, shown=shown)).rstrip("\r\n")
            except EndOfInput:
                shown.write("\n")
                return ""
        if self._stdin is None:
            return ""
        line: str = await asyncio.to_thread(self._stdin.readline)
        return line.rstrip("\r\n")

    async def _line(self, prompt: str, *, echo: bool, shown: Output | None = None) -> str:
        keyboard, shown = Keyboard(self._stdin), shown or self._stdout
        await keyboard.foreground()
        with keyboard.whole_lines(echo=echo):
            shown.write(prompt)
            await shown.drain()
            return await keyboard.read_line()

    # -- turns

    def open_turn(self, handle: TurnHandle) -> TurnView:
        """A view that streams the turn, and asks at the prompt where somebody can answer."""
        from .view import TerminalTurnView

        if self._at_terminal:
            keyboard = Keyboard(self._stdin) if self.can_answer else None
            return TerminalTurnView(self._stdout, handle=handle, keyboard=keyboard)
        return TerminalTurnView(self._stderr, handle=handle, final=self._stdout)

    def show_record(self, events: Sequence[Event]) -> None:
        """A turn again, from its stored events."""
        from .view import TerminalTurnView

        view = TerminalTurnView(self._stdout, handle=None)
        for event in events:
            view.on_event(event)
        self._stdout.settle()

    def show_panel(self) -> bool:
        """A terminal has none: a turn and its questions are where it was started."""
        return False
