"""Asking at the prompt: shows exactly what would happen, takes one key, and goes away when somebody else answers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Iterator
from typing import Literal

from rich.console import Console
from rich.text import Text

from ..protocol import Answer, Choice, Detail, PermissionRequested, PermissionResolved, TurnHandle
from ..text import is_invisible, one_line
from .console import Glyphs
from .keys import EndOfInput, Keyboard
from .output import Output

_KEYS: dict[str, Choice | Literal["message"]] = {
    "y": "allow_once",
    "yes": "allow_once",
    "s": "allow_session",
    "n": "deny",
    "no": "deny",
    "m": "message",
}
_BY = {
    "user": "",
    "cli": "answered from another terminal",
    "timeout": "nobody answered in time",
    "cancelled": "the turn was stopped",
    "nobody": "nobody can be asked here",
}
_ERASE_LINE = "\r\x1b[2K"


class Approvals:
    """The approvals of one turn, asked one after the other.

    ``handle`` and ``keyboard`` are None where nobody can answer: then a request is only shown. Used from the turn's
    loop; every question is a task that ``close`` ends.
    """

    def __init__(
        self, console: Console, output: Output, glyphs: Glyphs, handle: TurnHandle | None, keyboard: Keyboard | None
    ) -> None:
        self._console, self._output, self._glyphs = console, output, glyphs
        self._handle, self._keyboard = handle, keyboard
        self._waiting: deque[PermissionRequested] = deque()
        self._current: PermissionRequested | None = None
        self._task: asyncio.Task[None] | None = None
        self._answered_here: set[str] = set()
        self._question = ""
        self.typing = False
        """Whether a line is being typed, which nothing may be printed into."""

    # -- what the view tells

    def requested(self, event: PermissionRequested) -> None:
        """Show a request, or let it wait for its turn."""
        if self._handle is None or self._keyboard is None:
            self._show(event)
            return
        self._waiting.append(event)
        self._next()

    def resolved(self, event: PermissionResolved) -> None:
        """It was answered, here or elsewhere: the question goes, the answer stays."""
        self._waiting = deque(request for request in self._waiting if request.request_id != event.request_id)
        if self._current is not None and self._current.request_id == event.request_id:
            self._stop_asking()
        self._print(self._outcome(event))
        self._next()

    def is_about(self, request_id: str) -> bool:
        """Whether this is the request that is being asked now."""
        return self._current is not None and self._current.request_id == request_id

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Take the question off the screen while something is printed above it, and put it back if it still stands."""
        question, task = self._question, self._task
        self._hide_question()
        yield
        if question and self._task is task and not self._question:
            self._put_question(question)

    async def close(self) -> None:
        """End the question and give the terminal back."""
        task = self._task
        self._waiting.clear()
        self._stop_asking()
        if task is not None:
            await asyncio.wait({task}, timeout=2)

    # -- asking

    def _next(self) -> None:
        if self._current is None and self._waiting:
            self._current = self._waiting.popleft()
            self._show(self._current)
            self._task = asyncio.get_running_loop().create_task(self._ask(self._current))

    def _stop_asking(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self.typing:
            self._output.write("\n")
        self.typing = False
        self._hide_question()
        self._task, self._current = None, None

    async def _ask(self, event: PermissionRequested) -> None:
        assert self._handle is not None
        try:
            answer = await self._read_answer(event)
        except EndOfInput:
            answer = Answer("deny")
            if self.typing:
                self._output.write("\n")
        self.typing = False
        self._hide_question()
        self._answered_here.add(event.request_id)
        self._handle.answer(event.request_id, answer)

    async def _read_answer(self, event: PermissionRequested) -> Answer:
        keyboard = self._keyboard
        assert keyboard is not None
        await self._output.drain()  # the question is not open before it can be read
        await keyboard.foreground()
        with keyboard.single_keys():
            self._put_question(self._wording(event))
            while True:
                keys = await keyboard.read()
                if not keys:
                    self._put_question(self._wording(event))
                    continue
                pressed = _KEYS.get(keys.strip("\r\n").lower())
                if pressed == "message":
                    return await self._read_message(keyboard)
                if pressed is not None and pressed in event.choices:
                    return Answer(pressed)

    async def _read_message(self, keyboard: Keyboard) -> Answer:
        self._hide_question()
        self._output.write("Tell the model (Enter sends): ")
        self.typing = True
        with keyboard.whole_lines(echo=True):
            return Answer("deny", (await keyboard.read_line()).strip())

    def _wording(self, event: PermissionRequested) -> str:
        offers = {"allow_once": "[y] once", "allow_session": "[s] session", "deny": "[n] deny"}
        words = [offers[choice] for choice in offers if choice in event.choices]
        long = "  ".join(["Allow?", *words, "[m] deny with a message "])
        if len(long) < self._console.width:
            return long
        return "/".join(word[1] for word in words) + "/m? "

    def _put_question(self, question: str) -> None:
        self._hide_question()
        self._question = question
        self._console.print(Text(question, "bold yellow"), end="", soft_wrap=True)

    def _hide_question(self) -> None:
        if self._question:
            self._question = ""
            self._output.write("\n" if self._console.is_dumb_terminal else _ERASE_LINE)

    # -- showing

    def _show(self, event: PermissionRequested) -> None:
        self._print(
            Text.assemble(
                (f"{self._glyphs.ask} ", "yellow"), (one_line(event.name, 60), "bold"), (" wants to run", "yellow")
            )
        )
        detail = event.detail
        if not detail.text:
            detail = Detail(kind="text", text=event.summary)
        lines = detail.text.split("\n")
        styles = (
            _diff_styles(lines) if detail.kind == "diff" else ["bold" if detail.kind == "command" else ""] * len(lines)
        )
        for line, style in zip(lines, styles, strict=True):
            self._print(Text.assemble((f"  {self._glyphs.bar} ", "yellow"), _marked(line, style)))
        if self._handle is not None and self._handle.workspace:
            self._print(Text.assemble(("  in ", "dim"), _marked(self._handle.workspace, "dim")))
        if event.reason:
            self._print(Text.assemble("  ", _marked(event.reason.replace("\n", " "), "dim")))
        if self._keyboard is not None and len(lines) > max(self._console.height - 8, 8):  # it may have left the screen
            self._print(
                Text.assemble(
                    (f"  {len(lines):,} lines in all; the first is: ", "bold yellow"),
                    _marked(lines[0][: self._console.width], ""),
                )
            )

    def _outcome(self, event: PermissionResolved) -> Text:
        allowed = event.answer != "deny"
        words = {"allow_once": "allowed once", "allow_session": "allowed for this session", "deny": "denied"}
        why = _BY.get(event.by, f"by {one_line(event.by, 40)}")
        if event.by == "user" and self._keyboard is not None and event.request_id not in self._answered_here:
            why = "answered elsewhere"
        sign = self._glyphs.ok if allowed else self._glyphs.failed
        return Text.assemble(
            (f"  {sign} {words[event.answer]}", "green" if allowed else "red"), (f" ({why})" if why else "", "dim")
        )

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


def _diff_styles(lines: list[str]) -> list[str]:
    """A style a line: file names before the first hunk, then what is added, removed and where."""
    styles, in_hunk = [], False
    for line in lines:
        in_hunk = in_hunk or line.startswith("@@")
        styles.append({"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "") if in_hunk else "bold")
    return styles


def _marked(text: str, style: str) -> Text:
    """The text exactly as it is, with what cannot be seen written as marked escapes."""
    if text.isascii() and text.isprintable():
        return Text(text, style)
    marked = Text(style=style)
    for hidden, run in itertools.groupby(text, is_invisible):
        if hidden:
            marked.append("".join(f"⟨U+{ord(character):04X}⟩" for character in run), "reverse")
        else:
            marked.append("".join(run))
    return marked
