"""Between the commands and a screen. Commands speak to people only through this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from .events import Event
from .permissions import Answer
from .store import Approval

Level = Literal["info", "success", "warning", "error"]


@dataclass(frozen=True, slots=True)
class TurnHandle:
    """What a view may do to the turn that it shows. Both callables are thread-safe and return at once.

    ``max_iterations`` is the turn's bound of rounds, None if the view need not show it. ``earlier_messages`` counts
    what the session held before this turn.
    """

    session_id: str
    prompt: str
    answer: Callable[[str, Answer], None]
    stop: Callable[[], None]
    workspace: str = ""
    max_iterations: int | None = None
    earlier_messages: int = 0


class TurnView(Protocol):
    """A screen for one turn. It never holds a future of core's: it is told, and it answers by the handle."""

    def on_event(self, event: Event) -> None:
        """Show an event. Must be quick and must not raise; called on the turn's loop, in order."""
        ...

    async def close(self) -> None:
        """The last event was delivered, or the turn broke: leave the final record, release everything."""
        ...


class Frontend(Protocol):
    """A way to talk with a person. ``can_answer`` is false where nobody will ever answer (nbconvert, a pipe)."""

    can_answer: bool

    def say(self, text: str, *, level: Level = "info") -> None:
        """Plain text (never markup) for the person."""
        ...

    def say_markdown(self, markdown: str) -> None:
        """Text with markdown tables and code; untrusted parts are made safe by the front end."""
        ...

    def write(self, text: str) -> None:
        """Text for programs (JSON): exactly these characters on standard output, flushed. Raises BrokenPipeError."""
        ...

    async def ask(self, prompt: str, *, default: str = "") -> str: ...

    async def confirm(self, prompt: str) -> bool: ...

    async def choose(self, prompt: str, options: Sequence[str], *, default: str | None = None) -> str: ...

    async def read_secret(self, prompt: str) -> str: ...

    def open_turn(self, handle: TurnHandle) -> TurnView: ...

    def show_record(self, events: Sequence[Event]) -> None:
        """Show a finished (or running) turn again, from its stored events."""
        ...

    def show_panel(self) -> bool:
        """Show a persistent view of this process's running turns and approvals; False where there is no such thing."""
        ...


__all__ = ["Approval", "Frontend", "Level", "TurnHandle", "TurnView"]
