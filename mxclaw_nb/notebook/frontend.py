"""The Jupyter front end: how commands and turns speak to a person in a notebook."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from mxclaw_nb.protocol import Answer, Event, Level, PermissionRequested, TurnHandle, TurnView, UsageError
from mxclaw_nb.text import plain

from .approvals_input import ask_by_input
from .bridge import current_caller
from .driver import call_blocking
from .folding import TurnState, fold, opening
from .markdown import render_html, safe_markdown
from .record import SHOW_BYTES, record
from .static_view import StaticView
from .styles import STYLE

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

T = TypeVar("T")

QUESTION_S = 3600.0
"""How long an input field waits where it holds up the turn itself, in seconds: as long as an approval may."""
AWAKE_KERNEL = (7, 4)
"""The first ipykernel on which a click reaches a cell that is suspended in ``await``, on every front end."""

_repeats: dict[str, tuple[str, int]] = {}
_advised: set[str] = set()


class JupyterFrontend:
    """A protocol.Frontend for one command or turn in a kernel.

    ``can_answer`` is false where the client takes no input: nbconvert, nbclient and papermill. There no widget is made.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        kernel = getattr(shell, "kernel", None)
        # The kernel keeps what the execute request said of its client; there is no public name for it.
        self.can_answer: bool = bool(getattr(kernel, "_allow_stdin", False))

    def say(self, text: str, *, level: Level = "info") -> None:
        stream = sys.stderr if level in ("warning", "error") else sys.stdout
        print(plain(text), file=stream, flush=True)

    def say_markdown(self, markdown: str) -> None:
        from IPython.display import display

        shown = f'{STYLE}<div class="mxc mxc-text">{render_html(markdown)}</div>'
        safe = safe_markdown(markdown)
        display({"text/html": shown, "text/markdown": safe, "text/plain": plain(markdown)}, raw=True)

    def write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    async def ask(self, prompt: str, *, default: str = "") -> str:
        shown = f"{plain(prompt)} [{default}] " if default else f"{plain(prompt)} "
        return (await self._answered(lambda: input(shown))).strip() or default

    async def confirm(self, prompt: str) -> bool:
        answer = await self.ask(f"{prompt} [y/N]")
        return answer.lower() in ("y", "yes")

    async def choose(self, prompt: str, options: Sequence[str], *, default: str | None = None) -> str:
        numbered = "\n".join(f"{number}. {option}" for number, option in enumerate(options, 1))
        for _attempt in range(3):
            answer = await self.ask(f"{prompt}\n{numbered}\nNumber or name:", default=default or "")
            if answer.isdecimal() and 1 <= int(answer) <= len(options):
                return options[int(answer) - 1]
            if answer in options:
                return answer
        raise UsageError(f"Nothing was chosen. It can be one of: {', '.join(options)}.")

    async def read_secret(self, prompt: str) -> str:
        return await self._answered(lambda: getpass.getpass(f"{plain(prompt)} "))

    def open_turn(self, handle: TurnHandle) -> TurnView:
        """Live widgets where a click can reach the turn, else a record that grows and questions by ``input()``."""
        state = _opening(handle)
        if not self.can_answer:
            return StaticView(handle, state)
        if current_caller() is not None:
            return StaticView(handle, state, ask=self._ask_by_input)
        if not _kernel_hears_clicks():
            self._advise()
            return StaticView(handle, state, ask=self._ask_by_input)
        from .panel import TURNS
        from .view import LiveView

        return TURNS.open(lambda closed: LiveView(handle, state, on_close=closed))

    def show_record(self, events: Sequence[Event]) -> None:
        from IPython.display import display

        for _turn, its_events in groupby(events, lambda event: event.turn_id):
            display(record(fold(its_events), limit=SHOW_BYTES), raw=True)

    def show_panel(self) -> bool:
        if not self.can_answer:
            return False
        from .panel import TURNS

        TURNS.show_panel()
        return True

    async def _ask_by_input(self, request: PermissionRequested) -> Answer:
        return await self._answered(lambda: ask_by_input(request))

    async def _answered(self, function: Callable[[], T]) -> T:
        """Call what blocks on the person: on the caller's thread behind the bridge, else right here."""
        if not self.can_answer:
            raise UsageError("Nobody can answer a question here. Give the answer as an argument of the command.")
        caller = current_caller()
        if caller is not None:
            return await caller.run(function)
        return call_blocking(function, limit_s=QUESTION_S)

    def _advise(self) -> None:
        if "kernel" not in _advised:
            _advised.add("kernel")
            wanted = ".".join(map(str, AWAKE_KERNEL))
            self.say(
                f"Buttons need ipykernel {wanted}, and this kernel runs an older one: questions come as input. "
                "Restart the kernel if ipykernel was updated meanwhile.",
                level="warning",
            )


def _kernel_hears_clicks() -> bool:
    kernel = sys.modules.get("ipykernel")
    version: tuple[object, ...] = getattr(kernel, "version_info", (0,))
    numbers = tuple(part for part in version if isinstance(part, int))
    return numbers >= AWAKE_KERNEL


def _opening(handle: TurnHandle) -> TurnState:
    """The turn before its first event. This kernel's first turn in a session that has some already takes it up again;

    a cell that is run again adds a turn to the session. Both are said, once each.
    """
    resumed = 0 if handle.session_id in _repeats else handle.earlier_messages
    prompt, count = _repeats.get(handle.session_id, ("", 0))
    count = count + 1 if prompt == handle.prompt else 1
    _repeats[handle.session_id] = (handle.prompt, count)
    note = f"the same prompt for the {_ordinal(count)} time in this session" if count > 1 else ""
    return replace(opening(handle), resumed=resumed, note=note)


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
