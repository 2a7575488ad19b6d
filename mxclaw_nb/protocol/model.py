"""Between core and a model provider: the request, what streams back, and the port that a provider fills."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from .messages import Message, ToolCall
from .tools import ToolSpec


@dataclass(frozen=True, slots=True)
class ModelId:
    """``provider/model``: which provider is asked, and for which of its models."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question to a model. ``messages`` must already be valid for the wire (see ``context.build_view``)."""

    model: ModelId
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    max_output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request. ``cost`` is in US dollars, None where the price is not known (never 0 for unknown).

    ``cached_tokens`` are part of ``input_tokens``.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    cost: float | None = None
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole reply, folded from its deltas. ``tool_calls`` have unique, non-empty ids."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    incomplete: bool = False
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ProviderNotice:
    """Something the person should know and no failure: a retry, a skipped frame."""

    text: str
    level: Literal["info", "warning"] = "info"


StreamItem = TextDelta | ReasoningDelta | ProviderNotice | Completion


class ModelProvider(Protocol):
    """The port to a model. The last item of a stream is always one ``Completion``; else it raises ``ModelError``."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        """Ask, and yield deltas as they arrive, then the folded ``Completion``.

        Retries happen inside and only before the first delta was yielded. Cancelling the task, or closing the
        iterator, ends the request at once. Raises ProviderNotReady, ContextOverflow, StreamInterrupted (with
        the partial completion), EmptyStream or ModelError.
        """
        ...

    def price_known(self, model: ModelId) -> bool:
        """Whether the cost of a request to that model can be computed."""
        ...
