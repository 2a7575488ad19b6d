"""Fold a turn's events into what a screen shows of it. Pure: no clock, no widgets; live view and record share it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from mxclaw_nb.protocol import (
    Choice,
    ContextCompacted,
    Detail,
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
    ToolStatus,
    TurnCompleted,
    TurnFailedEvent,
    TurnHandle,
    TurnStarted,
    UsageEvent,
)

CallStatus = Literal["waiting", "asking", "running"] | ToolStatus
Phase = Literal["waiting", "thinking", "writing", "asking", "running", "completed", "failed", "interrupted"]

TAIL_CHARACTERS = 4096
"""How much of a growing text (the reply, a tool's output) is kept for the live view."""
REASONING_CHARACTERS = 1000
"""The same of the model's reasoning, of which one line is shown."""


@dataclass(slots=True)
class Reply:
    """One message of the model. ``text`` is complete only when ``done``; until then the parts are joined on demand."""

    message_id: str
    parts: list[str] = field(default_factory=list)
    done: bool = False
    incomplete: bool = False

    @property
    def text(self) -> str:
        if len(self.parts) > 1:
            self.parts[:] = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""


@dataclass(slots=True)
class Call:
    """One tool call. ``output`` is the tail of its live output; ``result`` what the model was given in the end."""

    call_id: str
    name: str
    arguments: str = ""
    summary: str = ""
    status: CallStatus = "waiting"
    output: str = ""
    result: str = ""
    exit_code: int | None = None
    duration_ms: int = 0
    output_path: str | None = None
    request: PermissionRequested | None = None
    answer: Choice | None = None
    answered_by: str = ""
    version: int = 0

    @property
    def detail(self) -> Detail | None:
        return self.request.detail if self.request else None

    @property
    def finished(self) -> bool:
        return self.status not in ("waiting", "asking", "running")


@dataclass(slots=True)
class Remark:
    """Something that happened besides: a notice, a compaction."""

    level: Literal["info", "warning", "error"]
    text: str


Item = Reply | Call | Remark


@dataclass(slots=True)
class TurnState:
    """Everything that a screen knows of one turn. ``items`` are in the order in which they happened.

    ``resumed`` counts the messages of a session that this turn takes up again, 0 if it does not; ``note`` is one more
    sentence about the turn. ``remark`` is the newest one, until something comes of what it announces.
    """

    session_id: str = ""
    turn_id: str = ""
    prompt: str = ""
    model: str = ""
    mode: str = ""
    items: list[Item] = field(default_factory=list)
    resumed: int = 0
    note: str = ""
    phase: Phase = "waiting"
    rounds: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = 0.0
    estimated: bool = False
    failure_reason: str = ""
    reply_tail: str = ""
    reply_cut: bool = False
    reasoning_tail: str = ""
    remark: Remark | None = None
    started_at: str = ""
    ended_at: str = ""
    last_sequence: int = 0

    @property
    def ended(self) -> bool:
        return self.phase in ("completed", "failed", "interrupted")

    @property
    def calls(self) -> list[Call]:
        return [item for item in self.items if isinstance(item, Call)]

    @property
    def pending(self) -> list[Call]:
        """The calls whose approval waits for an answer, the oldest first."""
        return [call for call in self.calls if call.status == "asking"]

    @property
    def final_text(self) -> str:
        """The text of the turn's last message, as far as it came."""
        return next((item.text for item in reversed(self.items) if isinstance(item, Reply) and item.parts), "")

    @property
    def seconds(self) -> float | None:
        """From the first to the last event, if both have a time."""
        try:
            span = datetime.fromisoformat(self.ended_at) - datetime.fromisoformat(self.started_at)
        except ValueError:
            return None
        return max(span.total_seconds(), 0.0)

    def call(self, call_id: str, name: str = "") -> Call:
        """The call with this id; made if it was not known."""
        for item in reversed(self.items):
            if isinstance(item, Call) and item.call_id == call_id:
                return item
        call = Call(call_id, name)
        self.items.append(call)
        return call

    def reply(self, message_id: str) -> Reply:
        """The message with this id; made if it was not known."""
        for item in reversed(self.items):
            if isinstance(item, Reply) and item.message_id == message_id:
                return item
        reply = Reply(message_id)
        self.items.append(reply)
        if self.reply_tail:
            self._grow_tail("\n\n")
        return reply

    def apply(self, event: Event) -> None:
        """Take one event in. Events of a kind that is not known here change nothing."""
        self.last_sequence = max(self.last_sequence, event.sequence)
        self.started_at = self.started_at or event.timestamp
        self.ended_at = event.timestamp
        self.turn_id = self.turn_id or event.turn_id
        self.session_id = self.session_id or event.session_id
        match event:
            case TurnStarted():
                self.prompt, self.model, self.mode = event.input, event.model, event.mode
                self.phase = "waiting"
            case MessageDelta():
                self._delta(event)
            case ReasoningDeltaEvent():
                self._reasoning(event)
            case MessageCompleted():
                self._message(event)
            case PermissionRequested() | PermissionResolved() | ToolStarted() | ToolOutput() | ToolCompleted():
                self._call(event)
            case UsageEvent():
                self._usage(event)
            case ContextCompacted():
                text = f"Earlier messages were summed up: {event.before:,} tokens became {event.after:,}."
                self._remark(Remark("info", text))
            case Notice():
                self._remark(Remark(event.level, event.text))
            case TurnCompleted():
                self.end("completed")
            case TurnFailedEvent():
                self.failure_reason = event.reason
                self.end(event.outcome)

    def end(self, phase: Literal["completed", "failed", "interrupted"]) -> None:
        """The turn is over. Calls that never got a result are shown as interrupted."""
        self.phase = phase
        for call in self.calls:
            if not call.finished:
                call.status = "interrupted"
                call.version += 1

    def _delta(self, event: MessageDelta) -> None:
        reply = self.reply(event.message_id)
        if reply.done:
            return
        reply.parts.append(event.delta)
        self._grow_tail(event.delta)
        self.phase, self.remark = "writing", None

    def _reasoning(self, event: ReasoningDeltaEvent) -> None:
        self.reasoning_tail = (self.reasoning_tail + event.delta)[-REASONING_CHARACTERS:]
        if self.phase == "waiting":
            self.phase = "thinking"
        self.remark = None

    def _remark(self, remark: Remark) -> None:
        self.items.append(remark)
        self.remark = remark

    def _grow_tail(self, text: str) -> None:
        grown = self.reply_tail + text
        self.reply_cut = self.reply_cut or len(grown) > TAIL_CHARACTERS
        self.reply_tail = grown[-TAIL_CHARACTERS:]

    def _message(self, event: MessageCompleted) -> None:
        self.rounds += 1
        self.phase, self.reasoning_tail, self.remark = "waiting", "", None
        if event.text:
            reply = self.reply(event.message_id)
            if not reply.parts:
                self._grow_tail(event.text)
            reply.parts[:] = [event.text]
            reply.done, reply.incomplete = True, event.incomplete
        for wanted in event.tool_calls:
            call = self.call(wanted.id, wanted.name)
            if call.finished:  # some models use the same ids again in every reply
                call = Call(wanted.id, wanted.name)
                self.items.append(call)
            call.arguments = call.arguments or wanted.arguments

    def _call(self, event: PermissionRequested | PermissionResolved | ToolStarted | ToolOutput | ToolCompleted) -> None:
        call = self.call(event.call_id)
        call.version += 1
        self.remark = None
        match event:
            case PermissionRequested():
                call.name, call.summary, call.request, call.status = event.name, event.summary, event, "asking"
                self.phase = "asking"
            case PermissionResolved():
                call.answer, call.answered_by = event.answer, event.by
                if call.status == "asking":
                    call.status = "waiting"
            case ToolStarted():
                call.name, call.summary, call.arguments = event.name, event.summary, event.arguments
                call.status = "running"
            case ToolOutput():
                call.output = (call.output + event.delta)[-TAIL_CHARACTERS:]
                return
            case ToolCompleted():
                call.name, call.status, call.result = event.name, event.status, event.result
                call.exit_code, call.duration_ms, call.output_path = (
                    event.exit_code,
                    event.duration_ms,
                    event.output_path,
                )
        if not self.ended:
            self.phase = "asking" if self.pending else "running" if self._any_running() else "waiting"

    def _any_running(self) -> bool:
        return any(call.status == "running" for call in self.calls)

    def _usage(self, event: UsageEvent) -> None:
        self.input_tokens += event.input_tokens
        self.output_tokens += event.output_tokens
        self.cached_tokens += event.cached_tokens
        self.cost = None if self.cost is None or event.cost is None else self.cost + event.cost
        self.estimated = self.estimated or event.estimated


def opening(handle: TurnHandle) -> TurnState:
    """The state of a turn before its first event."""
    return TurnState(session_id=handle.session_id, prompt=handle.prompt)


def fold(events: Iterable[Event]) -> TurnState:
    """The state after these events of one turn."""
    state = TurnState()
    for event in events:
        state.apply(event)
    return state
