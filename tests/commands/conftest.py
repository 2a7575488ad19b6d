"""A screen that remembers what it was told, and a place to type commands in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mxclaw_nb.app import App
from mxclaw_nb.commands import Call, Place
from mxclaw_nb.protocol import Event, Level, TurnHandle


@dataclass
class Screen:
    """A Frontend for tests: everything said is kept; ``answers`` are given in turn."""

    can_answer: bool = False
    said: list[tuple[str, str]] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    answers: list[bool] = field(default_factory=list)
    records: list[Sequence[Event]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    handles: list[TurnHandle] = field(default_factory=list)
    closed: int = 0

    def say(self, text: str, *, level: Level = "info") -> None:
        self.said.append((level, text))

    def say_markdown(self, markdown: str) -> None:
        self.said.append(("markdown", markdown))

    def write(self, text: str) -> None:
        self.written.append(text)

    async def ask(self, prompt: str, *, default: str = "") -> str:
        return default

    async def confirm(self, prompt: str) -> bool:
        self.said.append(("confirm", prompt))
        return self.answers.pop(0)

    async def choose(self, prompt: str, options: Sequence[str], *, default: str | None = None) -> str:
        return default or options[0]

    async def read_secret(self, prompt: str) -> str:
        return ""

    def open_turn(self, handle: TurnHandle) -> Screen:
        self.handles.append(handle)
        return self

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    async def close(self) -> None:
        self.closed += 1

    def show_record(self, events: Sequence[Event]) -> None:
        self.records.append(events)

    def show_panel(self) -> bool:
        return False

    @property
    def text(self) -> str:
        return "\n".join(text for _, text in self.said)


Scenario = Callable[[Call, Screen], Awaitable[None]]
Typed = Callable[[Scenario], None]


@pytest.fixture
def typed(mx_claw_home: Path, tmp_path: Path) -> Typed:
    """Run a scenario in a notebook-like place of a fresh home."""

    def run(scenario: Scenario) -> None:
        async def whole() -> None:
            app = App.open()
            screen = Screen()
            workspace = tmp_path / "ws"
            workspace.mkdir(exist_ok=True)
            call = Call(app, screen, Place(workspace, notebook="nb:/x.ipynb", prefix="%mxclaw"))
            try:
                async with asyncio.timeout(60):
                    await scenario(call, screen)
            finally:
                await app.aclose()

        asyncio.run(whole())

    return run
