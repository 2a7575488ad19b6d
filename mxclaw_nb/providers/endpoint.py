"""Where a model is asked and how: everything about an endpoint but its key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens; ``cached`` is the price of cached input (None: as other input)."""

    input: float
    output: float
    cached: float | None = None


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What an endpoint wants spelled its own way.

    ``replay_reasoning``: send earlier reasoning back as ``reasoning_content``.
    ``empty_content``: what stands for the text of a message that only calls tools.
    ``include_usage``: ask for usage with ``stream_options``; some servers refuse the field.
    """

    replay_reasoning: bool = False
    empty_content: Literal["null", "empty"] = "null"
    include_usage: bool = True
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    headers: Mapping[str, str] = field(default_factory=dict)
    temperature: float | None = None
    reasoning_effort: str | None = None
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A provider as it can be asked. ``direct`` endpoints are reached without any proxy of the environment."""

    name: str
    base_url: str
    requires_key: bool = True
    profile: ModelProfile = field(default_factory=ModelProfile)
    direct: bool = False
