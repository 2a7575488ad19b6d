"""A store in a folder of its own, turns that number their events, and children that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mxclaw_nb.protocol import Detail, Event, PermissionRequested, TurnSignal, TurnWriter, now_iso
from mxclaw_nb.storage import LeaseTiming, SqliteStore

T = TypeVar("T")
QUICK = LeaseTiming(ttl_s=0.6, renew_s=0.2, poll_s=0.02)
CHILD = Path(__file__).with_name("child.py")


@dataclass
class Turn:
    """A turn with the signals that it got and a way to make its events."""

    writer: TurnWriter
    signals: list[TurnSignal] = field(default_factory=list)

    def event(self, kind: Callable[..., Event], **fields: Any) -> Any:
        return kind(
            sequence=self.writer.next_sequence(),
            session_id=self.writer.session_id,
            turn_id=self.writer.turn_id,
            timestamp=now_iso(),
            **fields,
        )

    def request(self, request_id: str, choices: tuple[str, ...] = ("allow_once", "allow_session", "deny")) -> Any:
        return self.event(
            PermissionRequested, request_id=request_id, call_id="c-1", name="run_command", summary="run make",
            detail=Detail(kind="command", text="make"), reason="mode ask", choices=choices,
        )  # fmt: skip


async def begin(store: SqliteStore, session_id: str, turn_id: str = "t-1") -> Turn:
    signals: list[TurnSignal] = []
    return Turn(await store.acquire(session_id, turn_id, on_signal=signals.append), signals)


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> float:
    """Wait until the condition holds; how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "it did not happen in time"
        await asyncio.sleep(0.002)
    return time.monotonic() - began


def with_store(home: Path, work: Callable[[SqliteStore], Awaitable[T]], **options: Any) -> T:
    """Run ``work`` with an open store on a fresh loop, and close the store whatever happens."""

    async def main() -> T:
        store = SqliteStore.open(home, **options)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(main())


class Child:
    """A second process that obeys lines and answers with lines."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def told(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def asked(self, line: str) -> str:
        self.told(line)
        return self.says()

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


@pytest.fixture
def child() -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def start(*arguments: object) -> Child:
        children.append(Child(*map(str, arguments)))
        return children[-1]

    yield start
    for one in children:
        one.end()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"
