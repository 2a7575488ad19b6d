"""The live view of a turn in a page: one display that is widgets while it runs and a static record ever after.

Its order: a running line with the clock and Stop, the pending question, the tool calls, and the reply in a box that
stays pinned to its end. Everything is state in synced traits, so that a page which attaches later sees all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from IPython.display import DisplayHandle, display

from mxclaw_nb.protocol import Answer, Event, PermissionRequested, ToolStarted, TurnHandle
from mxclaw_nb.text import last_words, one_line

from .approvals import Question
from .approvals_input import ask_by_input, question
from .breaking import CallBroken
from .cards import card_html, duration, remark_html, running_html
from .driver import call_blocking
from .folding import Call, TurnState, opening
from .markdown import balanced, escape_markdown, render_html
from .painter import Painter
from .record import is_news, record, session_words, show_command
from .styles import LIVE_STYLE
from .untrusted import text_to_html
from .widgets import Pulse, Widget, bundle, button, close_all, column, html, row

REFRESH_S = 0.05
"""At most 20 refreshes a second."""
PULSE_S = 5.0
"""How long a question waits for a sign that there is a page with buttons, before it is asked by input()."""
QUESTION_S = 3600.0
"""How long that input field waits, in seconds: as long as an approval may."""
CARDS = 30
"""How many calls are shown live; earlier ones are in the record."""
_CARD_CHARACTERS = 4000
_ASIDE_COLUMNS = 240
"""How much of a notice is shown under the running line, and of the reasoning, whose end a narrow page shows."""

_PHASES = {
    "waiting": "waiting for the model",
    "thinking": "thinking",
    "writing": "writing",
    "asking": "waiting for your answer",
    "running": "running a tool",
}


class LiveView:
    """A protocol.TurnView made of widgets. Made on the turn's loop; ``on_close`` is told when it is gone."""

    def __init__(
        self, handle: TurnHandle, state: TurnState | None = None, *, on_close: Callable[[LiveView], None]
    ) -> None:
        self.state = state or opening(handle)
        self.reattached = False
        self.final_html = ""
        self._handle = handle
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        self._call_began: dict[str, float] = {}
        self._questions: dict[str, Question] = {}
        self._cards: dict[int, Widget] = {}
        self._drawn: dict[int, tuple[int, int]] = {}
        self._closed = False
        self._stopping = False
        self._asking: set[asyncio.Task[None]] = set()
        self._build()
        self._display: DisplayHandle = display(bundle(self.box, self._fallback()), raw=True, display_id=True)
        self._painter = Painter(self._paint, REFRESH_S)

    def _build(self) -> None:
        self._pulse = Pulse()
        self._line = html("", flex="1 1 auto", width="auto", min_width="0")
        self._stop = button("Stop", "Stop this turn", self._stop_clicked)
        self._bar = row([self._line, self._stop], width="auto", align_items="center")
        self._bar.add_class("mxc-bar")
        self._asks = column(width="auto")
        self._calls = column(width="auto")
        self._text = html("", width="auto")
        self._scroller = column(
            [self._text], width="auto", max_height="20em", overflow="auto", flex_flow="column-reverse", display="none"
        )
        self._scroller.add_class("mxc-stream")
        sheet = html(LIVE_STYLE, height="0px", margin="0", overflow="hidden")
        self.box = column([sheet, self._bar, self._asks, self._calls, self._scroller], width="auto")
        self.box.add_class("mxc-live")
        self._paint_line()

    def on_event(self, event: Event) -> None:
        """Take an event in; the page follows within a refresh."""
        self.state.apply(event)
        if isinstance(event, ToolStarted):
            self._call_began[event.call_id] = time.monotonic()
        if isinstance(event, PermissionRequested):
            self._ask(event)
        self._painter.changed()

    async def close(self) -> None:
        """Leave the record in place of the widgets, and no widget behind. Does nothing the second time."""
        if self._closed:
            return
        self._closed = True
        try:
            for task in self._asking:
                task.cancel()
            self._painter.stop()
            if not self.state.ended:
                self.state.end("interrupted")
        finally:
            self._leave_record()

    def _leave_record(self) -> None:
        final = record(self.state)
        self.final_html = final["text/html"]
        try:
            self._display.update(final, raw=True)
        finally:
            self._pulse.close()
            self._on_close(self)
            if self.reattached:
                # That page knows this output as a widget only; a display update does not reach it any more.
                shown = html(final["text/html"], width="auto")
                self._keep_only(shown)
            else:
                close_all(self.box)
            # Those that were made and not shown any more; closing one twice does nothing.
            for left in (*(question_.box for question_ in self._questions.values()), *self._cards.values()):
                close_all(left)

    def _keep_only(self, shown: Widget) -> None:
        children = self.box.children
        self.box.children = (shown,)
        self.box.remove_class("mxc-live")
        for child in children:
            close_all(child)

    def page_attached(self) -> None:
        """A page attached to the kernel while the turn runs."""
        self.reattached = True

    # -- questions

    def _ask(self, request: PermissionRequested) -> None:
        self._questions[request.request_id] = Question(request, lambda answer: self._give(request, answer))
        self._display.update(bundle(self.box, self._fallback()), raw=True)
        task = self._loop.create_task(self._ask_otherwise(request))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    def _give(self, request: PermissionRequested, answer: Answer) -> None:
        """A button was used, on whatever thread."""
        self._handle.answer(request.request_id, answer)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the turn is over
            self._loop.call_soon_threadsafe(self._freeze, request.request_id, answer)

    def _freeze(self, request_id: str, answer: Answer) -> None:
        question_ = self._questions.get(request_id)
        if question_ is not None and not self._closed:
            question_.freeze(answer)

    async def _ask_otherwise(self, request: PermissionRequested) -> None:
        """Where no page answers, ask in the input field. That blocks the loop, so an interrupt must be raised there."""
        if await self._pulse.wait(PULSE_S) or request.request_id not in self._pending_ids():
            return
        try:
            answer = call_blocking(lambda: ask_by_input(request), limit_s=QUESTION_S)
        except (CallBroken, NotImplementedError, OSError):
            return  # nobody was there, or there is no input field: others can still answer
        self._handle.answer(request.request_id, answer)

    def _pending_ids(self) -> set[str]:
        return {call.request.request_id for call in self.state.pending if call.request is not None}

    # -- what is shown

    def _fallback(self) -> dict[str, str]:
        """For whoever has no widgets, the saved file first of all: names the turn, and never claims that it runs."""
        what = f"agent turn: {one_line(self._handle.prompt, 80)}"
        how = f"`{show_command(self.state)}` shows what was said and done"
        asked = [question(call.request) for call in self.state.pending if call.request is not None]
        plain = "\n".join([f"[{what}]", *asked, show_command(self.state)])
        marked = [f"**{escape_markdown(what)}**", *map(escape_markdown, asked), how]
        return {"text/plain": plain, "text/markdown": "\n\n".join(marked)}

    def _stop_clicked(self) -> None:
        self._handle.stop()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._show_stopping)

    def _show_stopping(self) -> None:
        if not self._closed:
            self._stopping = True
            self._stop.disabled = True
            self._painter.changed()

    def _paint(self) -> None:
        self._paint_line()
        self._paint_questions()
        self._paint_calls()
        self._paint_text()

    def _paint_line(self) -> None:
        state = self.state
        what = "stopping" if self._stopping else _PHASES.get(state.phase, state.phase)
        bound = self._handle.max_iterations
        number = state.rounds + (0 if state.phase in ("running", "asking") else 1)
        parts = [
            duration(time.monotonic() - self._began, whole=True),
            f"round {number}/{bound}" if bound else f"round {number}",
        ]
        if state.input_tokens or state.output_tokens:
            parts.append(f"{state.input_tokens:,} in, {state.output_tokens:,} out")
        parts += [part for part in (state.model, session_words(state), state.note) if part]
        rest = "".join(
            f'<span class="mxc-{"opt" if place > 1 and not is_news(state, part) else "main"}">'
            f"{text_to_html(one_line(part, 80))}</span> "
            for place, part in enumerate(parts)
        )
        icon = "?" if state.phase == "asking" else '<span class="mxc-spin"></span>'
        kind = "ask" if state.phase == "asking" else "run"
        _set(
            self._line,
            f'<div class="mxc"><div class="mxc-head mxc-{kind}" style="background:none"><span>'
            f'<span class="mxc-i" aria-hidden="true">{icon}</span> <b role="status">{what}</b></span>'
            f"{rest}</div>{self._aside()}</div>",
        )

    def _aside(self) -> str:
        """Under the running line: what the model is waited for, or the end of what it thinks."""
        if self.state.remark is not None:
            return f'<div class="mxc-aside" role="status">{remark_html(self.state.remark, _ASIDE_COLUMNS)}</div>'
        if self.state.phase != "thinking":
            return ""
        thought = text_to_html(last_words(self.state.reasoning_tail, _ASIDE_COLUMNS))
        return f'<div class="mxc-aside mxc-end mxc-dim"><span>{thought}</span></div>'

    def _paint_questions(self) -> None:
        pending = self._pending_ids()
        over = [self._questions.pop(key) for key in list(self._questions) if key not in pending]
        boxes = tuple(question_.box for question_ in self._questions.values())
        if boxes != self._asks.children:
            self._asks.children = boxes
        for question_ in over:
            question_.close()

    def _paint_calls(self) -> None:
        # A pending call is in its question already.
        shown = [call for call in self.state.calls if call.status != "asking"][-CARDS:]
        children = tuple(self._card(call) for call in shown)
        if children != self._calls.children:
            self._calls.children = children
        kept = {id(call) for call in shown}
        for key in [key for key in self._cards if key not in kept]:
            close_all(self._cards.pop(key))
            del self._drawn[key]

    def _card(self, call: Call) -> Widget:
        key = id(call)
        began = self._call_began.get(call.call_id)
        seconds = time.monotonic() - began if began is not None and call.status == "running" else None
        version = (call.version, int(seconds or 0))
        if self._drawn.get(key) != version:
            drawn = card_html(call, _CARD_CHARACTERS) if call.finished else running_html(call, seconds)
            widget = self._cards.get(key)
            if widget is None:
                widget = self._cards[key] = html("", width="auto", padding="0 8px")
            _set(widget, f'<div class="mxc">{drawn}</div>')
            self._drawn[key] = version
        return self._cards[key]

    def _paint_text(self) -> None:
        text = self.state.reply_tail
        if self.state.reply_cut:
            # The beginning of the first line is gone; what was code before the cut is still code.
            text = "…\n\n" + balanced(text, dropped=self.state.final_text[: -len(text)])
        if text:
            _set(self._text, f'<div class="mxc mxc-text">{render_html(text)}</div>')
            if self._scroller.layout.display != "flex":
                self._scroller.layout.display = "flex"


def _set(widget: Widget, value: str) -> None:
    if widget.value != value:
        widget.value = value
