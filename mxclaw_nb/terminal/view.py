"""A turn at the terminal: appended line by line, in order, never redrawn."""

from __future__ import annotations

import time
from collections import deque

from rich.console import Console
from rich.text import Text

from ..protocol import (
    ContextCompacted,
    Event,
    MessageCompleted,
    MessageDelta,
    Notice,
    PermissionRequested,
    PermissionResolved,
    ReasoningDeltaEvent,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
    TurnCompleted,
    TurnFailedEvent,
    TurnHandle,
    TurnStarted,
    UsageEvent,
)
from ..text import one_line, plain
from .approval import Approvals
from .cards import ToolCards, duration
from .console import glyphs_for, make_console
from .keys import Keyboard
from .output import Output
from .stream import TextStream

_PATIENCE_S = 2.0  # a terminal that was stopped with Ctrl-S must not keep the turn from ending
_LEVELS = {"info": "dim", "warning": "yellow", "error": "red"}


class TerminalTurnView:
    """The view of one turn.

    ``output`` is where the turn is shown. With ``final``, that gets the final text alone and ``output`` the progress
    (a pipe at stdout, the progress at stderr). ``handle`` is None for a record, which then also says how it failed.
    """

    def __init__(
        self,
        output: Output,
        *,
        handle: TurnHandle | None,
        keyboard: Keyboard | None = None,
        final: Output | None = None,
    ) -> None:
        self._output, self._handle, self._final = output, handle, final
        self._console: Console = make_console(output)
        self._glyphs = glyphs_for(self._console)
        self._cards = ToolCards(self._console, self._glyphs)
        self._approvals = Approvals(self._console, output, self._glyphs, handle, keyboard)
        self._stream: TextStream | None = None
        self._message = ("", "")  # id and kind of what is streaming
        self._streamed: dict[str, int] = {}  # characters shown of a message's text
        self._block = ""
        self._denied: set[str] = set()  # calls whose denial was shown as an answer
        self._held: deque[Event] = deque()
        self._started = time.monotonic()
        self._usage = _Totals()
        if handle is not None:
            (final or output).on_broken = handle.stop

    def on_event(self, event: Event) -> None:
        """Show an event; while a person types a line, keep it for later."""
        if self._approvals.typing and not self._ends_typing(event):
            self._held.append(event)
            return
        with self._approvals.aside():
            self._show(event)

    async def close(self) -> None:
        """End the question if one is open, show what was held back, and wait for a reader that reads."""
        await self._approvals.close()
        while self._held:
            self._show(self._held.popleft())
        self._end_stream()
        for output in filter(None, (self._output, self._final)):
            await output.drain(_PATIENCE_S)

    def _ends_typing(self, event: Event) -> bool:
        return isinstance(event, PermissionResolved) and self._approvals.is_about(event.request_id)

    def _show(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self._begin("head")
                self._line(f"{one_line(event.model, 80)} {self._glyphs.dot} {event.mode}", "dim")
                if self._handle is None:
                    self._line(plain(event.input), "bold")
            case MessageDelta():
                self._delta(event.message_id, "text", event.delta)
            case ReasoningDeltaEvent():
                self._delta(event.message_id, "reasoning", event.delta)
            case MessageCompleted():
                self._complete_message(event)
            case PermissionRequested():
                self._begin("tools")
                self._approvals.requested(event)
            case PermissionResolved():
                self._approvals.resolved(event)
                if event.answer == "deny":
                    self._denied.add(event.call_id)
                while self._held and not self._approvals.typing:
                    self._show(self._held.popleft())
            case ToolStarted():
                self._begin("tools")
                self._cards.started(event)
            case ToolOutput():
                self._cards.output(event)
            case ToolCompleted() if event.status == "denied" and event.call_id in self._denied:
                pass  # the answer has just been shown
            case ToolCompleted():
                self._begin("tools")
                self._cards.completed(event)
            case UsageEvent():
                self._usage.add(event)
            case ContextCompacted():
                self._begin("notice")
                self._line(f"context shortened: {event.before:,} to {event.after:,} tokens", "dim")
            case Notice():
                self._begin("notice")
                self._line(plain(event.text), _LEVELS[event.level])
            case TurnCompleted():
                self._end("completed")
                if self._final is not None and event.text:
                    text = plain(event.text)
                    self._final.write(text if text.endswith("\n") else text + "\n")
            case TurnFailedEvent():
                self._end(event.outcome, event.reason)

    # -- blocks

    def _begin(self, block: str) -> None:
        """Start a block of a kind; a blank line parts it from one of another kind."""
        self._end_stream()
        if self._block not in ("", block):
            self._output.write("\n")
        self._block = block

    def _line(self, text: str, style: str) -> None:
        self._console.print(Text(text, style))

    def _end(self, outcome: str, reason: str = "") -> None:
        """The last lines. Of a running turn whoever started it says how it ended; a record says it itself."""
        facts = self._usage.facts()
        self._begin("end")
        if self._handle is not None:
            facts.append(duration(time.monotonic() - self._started))
        else:
            facts.insert(0, outcome)
            if reason:
                self._line(plain(reason), "red")
        self._line(f" {self._glyphs.dot} ".join(facts), "dim")

    # -- streamed text

    def _delta(self, message_id: str, kind: str, delta: str) -> None:
        if kind == "text":
            self._streamed[message_id] = self._streamed.get(message_id, 0) + len(delta)
        if self._final is not None:  # the text goes there, whole, at the end
            return
        if self._message != (message_id, kind) or self._stream is None:
            self._begin(kind)
            self._message = (message_id, kind)
            style, markdown = ("", True) if kind == "text" else ("dim italic", False)
            self._stream = TextStream(self._console, style=style, markdown=markdown)
        self._stream.feed(delta)

    def _complete_message(self, event: MessageCompleted) -> None:
        shown = self._streamed.pop(event.message_id, 0)
        if self._final is None and shown < len(event.text):  # a record keeps no deltas of finished messages
            self._delta(event.message_id, "text", event.text[shown:])
        self._end_stream()
        self._cards.announced(event.tool_calls)
        if self._final is not None and event.tool_calls and event.text:
            self._begin("text")
            self._line(plain(event.text), "dim")
        if event.incomplete:
            self._line(f"{self._glyphs.dots} cut off here", "yellow")

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.finish()


class _Totals:
    """The usage of a turn, over its requests."""

    def __init__(self) -> None:
        self._requests: list[UsageEvent] = []

    def add(self, event: UsageEvent) -> None:
        self._requests.append(event)

    def facts(self) -> list[str]:
        """Tokens and cost in words; nothing where nothing is known."""
        if not self._requests:
            return []
        about = "~" if any(request.estimated for request in self._requests) else ""
        cached = sum(request.cached_tokens for request in self._requests)
        facts = [
            f"{about}{sum(request.input_tokens for request in self._requests):,} in"
            + (f" ({cached:,} cached)" if cached else ""),
            f"{about}{sum(request.output_tokens for request in self._requests):,} out",
        ]
        costs = [request.cost for request in self._requests if request.cost is not None]
        if len(costs) == len(self._requests) and sum(costs) > 0:
            facts.append(f"${sum(costs):.4f}")
        return facts
