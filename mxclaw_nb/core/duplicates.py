"""Duplicate calls within one turn: what is refused, and what only looks like a repetition."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

_SAME_RESULT_LIMIT = 3
REPEATED = "Duplicate tool call rejected: this call was already made in this turn. Use the previous result instead."
STUCK = (
    "Duplicate tool call rejected: it has returned the same result three times in this turn. "
    "Do something else, or say what is in the way."
)


def call_key(name: str, arguments: Any) -> str:
    """What makes two calls the same: the name and the parsed arguments, whatever their order and spacing."""
    return f"{name}\0{to_json(_sorted(arguments)).decode()}"


@dataclass(slots=True)
class DuplicateGuard:
    """Sees every call of one turn.

    A repetition is refused, unless a different call with side effects ran in between (test, edit, test again), and
    from the fourth time on when three times it returned the same. Calls that were denied, interrupted or timed out
    do not count as made.
    """

    _clock: int = 0
    _made: dict[str, int] = field(default_factory=dict)
    _effects: dict[str, int] = field(default_factory=dict)
    _results: dict[str, dict[str, int]] = field(default_factory=dict)

    def refusal(self, key: str) -> str | None:
        """Why this call is refused now, or None."""
        if max(self._results.get(key, {}).values(), default=0) >= _SAME_RESULT_LIMIT:
            return STUCK
        made = self._made.get(key)
        if made is None:
            return None
        changed = any(when > made for other, when in self._effects.items() if other != key)
        return None if changed else REPEATED

    def begin(self, key: str) -> None:
        """The call is about to run."""
        self._clock += 1
        self._made[key] = self._clock

    def forget(self, key: str) -> None:
        """The call was denied, interrupted or timed out: it may be made again."""
        self._made.pop(key, None)

    def finished(self, key: str, result: str, *, side_effects: bool) -> None:
        """The call ran, well or not, and returned ``result``."""
        self._clock += 1
        if side_effects:
            self._effects[key] = self._clock
        digest = hashlib.sha256(result.encode("utf-8", "replace")).hexdigest()
        counts = self._results.setdefault(key, {})
        counts[digest] = counts.get(digest, 0) + 1


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return value
