"""How a turn ended, in the words of its last event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast, get_args

from mxclaw_nb.protocol import (
    FailureCode,
    ModelError,
    MxclawError,
    ProviderNotReady,
    SessionState,
    TurnCompleted,
    TurnFailedEvent,
)

from .arguments import clipped
from .emitter import Stamp

MESSAGES: Mapping[FailureCode, str] = {
    "cancelled": "The turn ended early; what was said and done until then is kept.",
    "lease_lost": "Another process took this session over; this turn stopped and wrote nothing more.",
    "timeout": "The turn ran out of its time limit.",
}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn ended: what the last event says and the state that the session is left in."""

    state: SessionState
    text: str = ""
    code: FailureCode | None = None
    retry_after: float | None = None


class Failed(Exception):
    """Ends the turn with a code and a sentence."""

    def __init__(self, code: FailureCode, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code: FailureCode = code
        self.retry_after = retry_after


def last_event(stamp: Stamp, ending: Ending) -> TurnCompleted | TurnFailedEvent:
    """The event that ends the turn."""
    if ending.code is None:
        return TurnCompleted(**stamp, text=ending.text)
    return TurnFailedEvent(**stamp, code=ending.code, message=ending.text, retry_after=ending.retry_after)


def in_words(error: Exception) -> str:
    """What an error says to a person; of a bug only its kind and beginning, the log has the rest."""
    if isinstance(error, MxclawError):
        return str(error)
    return f"Unexpected {type(error).__name__}: {clipped(str(error), 500)}. This is a bug in mxclaw; see its log."


def failure_code(error: MxclawError) -> FailureCode:
    """The code of ``turn.failed`` for an error that ended the turn."""
    if error.code in get_args(FailureCode):
        return cast(FailureCode, error.code)
    return "provider_error" if isinstance(error, ModelError | ProviderNotReady) else "error"
