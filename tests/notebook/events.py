"""A turn's events, written as a person would tell them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from mxclaw_nb.protocol import (
    CHOICES,
    Choice,
    Detail,
    DetailKind,
    Event,
    FailureCode,
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
    TurnStarted,
    UsageEvent,
    WireToolCall,
)


@dataclass
class Told:
    """Collects the events of one turn. Every method adds one and returns it."""

    session_id: str = "s-1234567890"
    turn_id: str = "t-0987654321"
    events: list[Event] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def _base(self) -> dict[str, object]:
        number = next(self._numbers)
        stamp = f"2026-10-23T00:00:{number % 60:02d}.000Z"
        return {"sequence": number, "session_id": self.session_id, "turn_id": self.turn_id, "timestamp": stamp}

    def _add(self, event: Event) -> Event:
        self.events.append(event)
        return event

    def started(self, prompt: str = "Look around", model: str = "rehearsal/quickstart") -> Event:
        return self._add(TurnStarted.model_validate({**self._base(), "input": prompt, "model": model, "mode": "ask"}))

    def delta(self, text: str, message: str = "m-1") -> Event:
        return self._add(MessageDelta.model_validate({**self._base(), "message_id": message, "delta": text}))

    def thought(self, text: str, message: str = "m-1") -> Event:
        return self._add(ReasoningDeltaEvent.model_validate({**self._base(), "message_id": message, "delta": text}))

    def message(self, text: str = "", calls: tuple[WireToolCall, ...] = (), message: str = "m-1") -> Event:
        data = {**self._base(), "message_id": message, "text": text, "tool_calls": calls, "finish_reason": "stop"}
        return self._add(MessageCompleted.model_validate(data))

    def asked(
        self,
        detail: str = "ls -l",
        *,
        kind: DetailKind = "command",
        call: str = "c-1",
        request: str = "a-1",
        name: str = "run_command",
        choices: tuple[Choice, ...] = CHOICES,
    ) -> PermissionRequested:
        event = PermissionRequested.model_validate(
            {
                **self._base(),
                "request_id": request,
                "call_id": call,
                "name": name,
                "summary": f"run {detail[:40]}",
                "detail": Detail(kind=kind, text=detail),
                "reason": "mode ask asks for every command",
                "choices": choices,
            }
        )
        self._add(event)
        return event

    def answered(
        self, answer: Choice = "allow_once", by: str = "user", call: str = "c-1", request: str = "a-1"
    ) -> Event:
        data = {**self._base(), "request_id": request, "call_id": call, "answer": answer, "by": by}
        return self._add(PermissionResolved.model_validate(data))

    def tool_started(self, call: str = "c-1", name: str = "run_command", summary: str = "run ls -l") -> Event:
        data = {**self._base(), "call_id": call, "name": name, "arguments": '{"a": 1}', "summary": summary}
        return self._add(ToolStarted.model_validate(data))

    def output(self, text: str, call: str = "c-1") -> Event:
        return self._add(ToolOutput.model_validate({**self._base(), "call_id": call, "delta": text}))

    def tool_completed(
        self,
        result: str = "done",
        *,
        status: ToolStatus = "ok",
        call: str = "c-1",
        name: str = "run_command",
        exit_code: int | None = None,
        path: str | None = None,
    ) -> Event:
        data = {
            **self._base(),
            "call_id": call,
            "name": name,
            "status": status,
            "result": result,
            "exit_code": exit_code,
            "duration_ms": 1234,
            "output_path": path,
        }
        return self._add(ToolCompleted.model_validate(data))

    def usage(self, tokens_in: int = 100, tokens_out: int = 20) -> Event:
        data = {**self._base(), "input_tokens": tokens_in, "output_tokens": tokens_out}
        return self._add(UsageEvent.model_validate(data))

    def notice(self, text: str) -> Event:
        return self._add(Notice.model_validate({**self._base(), "level": "warning", "text": text}))

    def completed(self, text: str = "Done.") -> Event:
        return self._add(TurnCompleted.model_validate({**self._base(), "text": text}))

    def failed(self, code: FailureCode = "max_iterations", message: str = "The turn used its 8 rounds.") -> Event:
        return self._add(TurnFailedEvent.model_validate({**self._base(), "code": code, "message": message}))


def call(call_id: str = "c-1", name: str = "run_command", arguments: str = '{"command": "ls -l"}') -> WireToolCall:
    return WireToolCall(id=call_id, name=name, arguments=arguments)


def a_whole_turn(reply: str = "All is well.") -> Told:
    """A turn with a reply, an approved command and a final reply."""
    told = Told()
    told.started()
    told.delta("Let me look.", "m-1")
    told.message("Let me look.", (call(),), "m-1")
    told.usage()
    told.asked()
    told.answered()
    told.tool_started()
    told.output("total 0\n")
    told.tool_completed("total 0\n", exit_code=0)
    told.delta(reply, "m-2")
    told.message(reply, message="m-2")
    told.usage()
    told.completed(reply)
    return told
