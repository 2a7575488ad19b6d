"""The events of a turn: the only thing that screens, watchers and ``mxclaw run --json`` see.

Ordered by one sequence per session; camelCase on the wire, snake_case here. Consumers ignore what they do not
know, and so do we when we read them back.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticSerializationError

from .messages import ToolStatus
from .permissions import Choice
from .settings import Mode
from .tools import DetailKind

FailureCode = Literal[
    "error", "provider_error", "stream_interrupted", "empty_stream", "context_overflow", "cancelled",
    "max_iterations", "lease_lost", "timeout", "max_cost",
]  # fmt: skip


class Wire(BaseModel):
    """Base of everything that goes over the wire: frozen, camelCase outside, unknown fields ignored."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True
    )


class EventBase(Wire):
    sequence: int
    session_id: str
    turn_id: str
    timestamp: str


class WireToolCall(Wire):
    id: str
    name: str
    arguments: str


class Detail(Wire):
    """What an approval is about, in full: a command, a unified diff, or plain text."""

    kind: DetailKind
    text: str


class TurnStarted(EventBase):
    type: Literal["turn.started"] = "turn.started"
    input: str
    model: str
    mode: Mode


class MessageDelta(EventBase):
    type: Literal["message.delta"] = "message.delta"
    message_id: str
    delta: str


class ReasoningDeltaEvent(EventBase):
    type: Literal["reasoning.delta"] = "reasoning.delta"
    message_id: str
    delta: str


class MessageCompleted(EventBase):
    type: Literal["message.completed"] = "message.completed"
    message_id: str
    text: str
    tool_calls: tuple[WireToolCall, ...] = ()
    finish_reason: str | None = None
    incomplete: bool = False


class PermissionRequested(EventBase):
    type: Literal["permission.requested"] = "permission.requested"
    request_id: str
    call_id: str
    name: str
    summary: str
    detail: Detail
    reason: str
    choices: tuple[Choice, ...]


class PermissionResolved(EventBase):
    """``by`` says who answered: ``user``, ``cli``, ``timeout``, ``cancelled`` or ``nobody`` (no one can be asked)."""

    type: Literal["permission.resolved"] = "permission.resolved"
    request_id: str
    call_id: str
    answer: Choice
    by: str


class ToolStarted(EventBase):
    type: Literal["tool.started"] = "tool.started"
    call_id: str
    name: str
    arguments: str
    summary: str


class ToolOutput(EventBase):
    type: Literal["tool.output"] = "tool.output"
    call_id: str
    delta: str


class ToolCompleted(EventBase):
    """``result`` is exactly what the model is given; ``duration_ms`` counts from ``tool.started`` (0 if never)."""

    type: Literal["tool.completed"] = "tool.completed"
    call_id: str
    name: str
    status: ToolStatus
    result: str
    exit_code: int | None = None
    duration_ms: int = 0
    output_path: str | None = None


class UsageEvent(EventBase):
    type: Literal["usage"] = "usage"
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    cost: float | None = None
    estimated: bool = False


class ContextCompacted(EventBase):
    type: Literal["context.compacted"] = "context.compacted"
    before: int
    after: int
    covers: int


class Notice(EventBase):
    type: Literal["notice"] = "notice"
    level: Literal["info", "warning", "error"]
    text: str


class TurnCompleted(EventBase):
    type: Literal["turn.completed"] = "turn.completed"
    text: str


class TurnFailedEvent(EventBase):
    type: Literal["turn.failed"] = "turn.failed"
    code: FailureCode
    message: str
    retry_after: float | None = None

    @property
    def outcome(self) -> Literal["interrupted", "failed"]:
        """How every screen calls this ending, in one word."""
        return "interrupted" if self.code == "cancelled" else "failed"

    @property
    def reason(self) -> str:
        """The sentence that every screen shows with that word: for a failure its code goes before it."""
        return self.message if self.outcome == "interrupted" else f"{self.code}: {self.message}"


Event = (
    TurnStarted
    | MessageDelta
    | ReasoningDeltaEvent
    | MessageCompleted
    | PermissionRequested
    | PermissionResolved
    | ToolStarted
    | ToolOutput
    | ToolCompleted
    | UsageEvent
    | ContextCompacted
    | Notice
    | TurnCompleted
    | TurnFailedEvent
)

_ADAPTER: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])


def event_to_json(event: Event) -> str:
    """The event in the wire format: one line that UTF-8 can carry, lone halves of surrogate pairs as U+FFFD."""
    try:
        return event.__pydantic_serializer__.to_json(event).decode()
    except (PydanticSerializationError, UnicodeEncodeError):
        return json.dumps(_encodable(event.model_dump(by_alias=True)), ensure_ascii=False)


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {name: _encodable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value


def event_from_json(data: str | bytes) -> Event:
    """Read an event back; unknown fields are ignored. Raises pydantic's ValidationError for an unknown type."""
    return _ADAPTER.validate_json(data)


def event_from_object(data: dict[str, Any]) -> Event:
    """As ``event_from_json``, from a parsed object."""
    return _ADAPTER.validate_python(data)
