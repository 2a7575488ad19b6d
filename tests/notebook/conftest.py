"""A shell without a kernel: widgets work on both sides of nothing, and what is displayed is collected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from mxclaw_nb.protocol import Answer, TurnHandle


@dataclass
class Displays:
    """What was displayed: the bundles by display id, each the newest, and all in their order."""

    latest: dict[str, dict[str, Any]] = field(default_factory=dict)
    everything: list[dict[str, Any]] = field(default_factory=list)

    @property
    def last(self) -> dict[str, Any]:
        return self.everything[-1]


@pytest.fixture
def displays(monkeypatch: pytest.MonkeyPatch) -> Displays:
    """Collects what is displayed, by a shell that is not a kernel."""
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False, "hist_file": ":memory:"}}))
    seen = Displays()

    def publish(data: dict[str, Any], *, transient: dict[str, str] | None = None, **_rest: object) -> None:
        seen.everything.append(dict(data))
        if transient:
            seen.latest[transient["display_id"]] = dict(data)

    monkeypatch.setattr(shell.display_pub, "publish", publish)
    return seen


@dataclass
class Desk:
    """The other side of a view: remembers what it was asked to do."""

    answers: list[tuple[str, Answer]] = field(default_factory=list)
    stops: int = 0

    def handle(self, prompt: str = "Look around") -> TurnHandle:
        def stop() -> None:
            self.stops += 1

        return TurnHandle(
            session_id="s-1234567890",
            prompt=prompt,
            answer=lambda request, answer: self.answers.append((request, answer)),
            stop=stop,
            max_iterations=8,
        )


@pytest.fixture
def desk() -> Desk:
    return Desk()
