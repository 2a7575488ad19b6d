"""What a turn may be told, and what AgentCore is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mxclaw_nb.protocol import Mode, ModelId, ModelProvider, SessionStore, Settings, Tool


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """Options of one turn; None takes the session's value or the setting.

    ``timeout_s`` and ``max_cost`` (US dollars) bound the whole turn. ``can_answer`` is false where nobody can be asked:
    then every ask is a denial at once.
    """

    model: ModelId | None = None
    mode: Mode | None = None
    max_iterations: int | None = None
    timeout_s: float | None = None
    max_cost: float | None = None
    can_answer: bool = True


@dataclass(frozen=True, slots=True)
class Services:
    """The parts that core is wired to.

    ``resolve_model`` turns a session's stored model (or None) into an id; ``ready`` says in one sentence what is
    missing before a model can be asked, or None. ``redact`` takes the keys out of what a tool brought to light.
    """

    store: SessionStore
    provider: ModelProvider
    tools: Mapping[str, Tool]
    settings: Callable[[], Settings]
    resolve_model: Callable[[str | None], ModelId]
    ready: Callable[[ModelId], str | None]
    home: Path
    redact: Callable[[str], str] = lambda text: text
