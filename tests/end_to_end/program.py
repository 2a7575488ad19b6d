"""``mxclaw`` as a process of its own, against a model whose script the test writes; and what the model may be sent."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxclaw_nb.protocol import Event, Message, Session, ToolCall, event_to_json
from mxclaw_nb.providers.rehearsal import ChatRequest, RehearsalServer, Script
from mxclaw_nb.storage import SqliteStore

WAIT_S = 30.0
PROGRAM = (sys.executable, "-m", "mxclaw_nb")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

JsonObject = dict[str, Any]


@dataclass
class Done:
    """How a process ended and what it said."""

    status: int
    out: bytes
    err: bytes

    @property
    def events(self) -> list[JsonObject]:
        return [json.loads(line) for line in self.out.decode().splitlines()]

    @property
    def last(self) -> JsonObject:
        return self.events[-1]

    @property
    def errors(self) -> str:
        return self.err.decode("utf-8", "replace")

    def of(self, kind: str) -> list[JsonObject]:
        return [event for event in self.events if event["type"] == kind]


class Running:
    """A process that is still running. Its output is read as it comes, so that no pipe fills."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.events: list[JsonObject] = []
        self._out: list[bytes] = []
        self._err: list[bytes] = []
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._threads = [
            threading.Thread(target=self._read_out, daemon=True),
            threading.Thread(target=self._read_err, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for(self, kind: str, **fields: object) -> JsonObject:
        """The next event of that type with those fields."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {kind} within {WAIT_S:.0f} s; {self._errors()}") from None
            if line is None:
                raise AssertionError(f"the process ended without {kind}; {self._errors()}")
            event: JsonObject = json.loads(line)
            self.events.append(event)
            if event["type"] == kind and all(event.get(name) == value for name, value in fields.items()):
                return event

    def wait(self, timeout: float = WAIT_S) -> Done:
        """The end of the process."""
        try:
            self.process.wait(timeout)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait(WAIT_S)
            for thread in self._threads:
                thread.join(WAIT_S)
        return Done(self.process.returncode, b"".join(self._out), b"".join(self._err))

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._out.append(line)
            self._lines.put(line)
        self._lines.put(None)

    def _read_err(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._err.append(line)

    def _errors(self) -> str:
        return f"standard error: {b''.join(self._err).decode('utf-8', 'replace')[-2000:]}"


@dataclass(frozen=True)
class Stored:
    """A session on disk."""

    session: Session
    messages: list[Message]
    events: list[JsonObject]

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def calls(self) -> list[ToolCall]:
        return [call for message in self.messages for call in message.tool_calls]

    @property
    def results(self) -> list[Message]:
        return [message for message in self.messages if message.role == "tool"]


@dataclass
class Mxclaw:
    """One home, one workspace, one model, and ``mxclaw`` in processes of its own."""

    server: RehearsalServer
    home: Path
    workspace: Path
    environment: dict[str, str]
    started: list[Running] = field(default_factory=list)

    def run(
        self,
        *words: str | bytes,
        program: Sequence[str] = PROGRAM,
        stdin: bytes | None = None,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        timeout: float = 60.0,
    ) -> Done:
        """Run it to its end."""
        given: dict[str, Any] = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
        done = subprocess.run(
            [*program, *words],
            **given, cwd=cwd or self.workspace, env=self._env(env), capture_output=True, timeout=timeout, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def start(
        self, *words: str, program: Sequence[str] = PROGRAM, env: Mapping[str, str | None] | None = None
    ) -> Running:
        """Start it, in a session of its own, so that signals to it reach nobody else."""
        process = subprocess.Popen(
            [*program, *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.workspace,
            env=self._env(env), start_new_session=True,
        )  # fmt: skip
        running = Running(process)
        self.started.append(running)
        return running

    def stored(self) -> Stored | None:
        """The only session as it lies on disk, read by this process; None if there is none."""

        async def read() -> Stored | None:
            store = SqliteStore.open(self.home)
            try:
                sessions = await store.sessions()
                if not sessions:
                    return None
                [session] = sessions
                events: list[Event] = []
                while page := await store.events(session.id, after=events[-1].sequence if events else 0):
                    events.extend(page)
                return Stored(
                    session,
                    list(await store.messages(session.id)),
                    [json.loads(event_to_json(event)) for event in events],
                )
            finally:
                await store.close()

        return asyncio.run(read())

    def session(self) -> Stored:
        """As ``stored``, where there must be one."""
        stored = self.stored()
        assert stored is not None
        return stored

    @property
    def requests(self) -> list[ChatRequest]:
        return list(self.server.requests)

    def _env(self, changes: Mapping[str, str | None] | None) -> dict[str, str]:
        wanted: dict[str, str | None] = {**self.environment, **(changes or {})}
        return {name: value for name, value in wanted.items() if value is not None}


def configure(home: Path, base_url: str) -> None:
    """Write a config.json whose current provider is ``scripted`` at that address."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    provider = {
        "name": "scripted", "kind": "custom", "baseURL": base_url, "model": "script", "models": ["script"],
        "requiresApiKey": True, "configured": True, "apiKey": "",
    }  # fmt: skip
    config = {"version": 1, "activeProvider": "scripted", "providers": {"scripted": provider}}
    (home / "config.json").write_text(json.dumps(config))


@contextmanager
def mxclaw_with(script: Script, tmp_path: Path) -> Iterator[Mxclaw]:
    """A fresh home and workspace below ``tmp_path``, with a model that plays this script."""
    with RehearsalServer(script) as server:
        home, workspace, user = tmp_path / "mx-home", tmp_path / "workspace", tmp_path / "user"
        for folder in (workspace, user):
            folder.mkdir(exist_ok=True)
        configure(home, server.base_url)
        environment = {
            **os.environ, "MX_CLAW_HOME": str(home), "MX_CLAW_API_KEY": server.token, "HOME": str(user),
        }  # fmt: skip
        made = Mxclaw(server, home, workspace, environment)
        try:
            yield made
        finally:
            for running in made.started:
                running.process.kill()
                running.wait()


def until(condition: Callable[[], bool], what: str, *, timeout: float = WAIT_S) -> None:
    """Wait until something about the world outside is so."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s: {what}"
        time.sleep(0.01)


# -- what a model may be sent


def assert_wire_valid(request: ChatRequest) -> None:
    """The rules of the wire: strict UTF-8 JSON; every call answered exactly once, at once and in order; unique ids."""
    body = json.loads(request.raw.decode("utf-8"))
    messages: list[JsonObject] = body["messages"]
    json.dumps(body, ensure_ascii=False).encode()  # no half of a surrogate pair hides in an escape
    assert messages[0]["role"] == "system"
    assert all(message["role"] != "system" for message in messages[1:])
    assert messages[-1]["role"] in ("user", "tool")
    seen: set[str] = set()
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        assert message["role"] != "tool", "a result that answers no call"
        if message["role"] != "assistant":
            assert isinstance(message["content"], str) and message["content"].strip()
            continue
        calls = message.get("tool_calls")
        assert calls != []
        assert calls or (message["content"] or "").strip(), "an empty reply"
        for call in calls or ():
            assert call["id"] and call["id"] not in seen
            seen.add(call["id"])
            assert NAME.fullmatch(call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            assert place < len(messages), "a call without a result"
            answer = messages[place]
            assert (answer["role"], answer["tool_call_id"]) == ("tool", call["id"])
            assert isinstance(answer["content"], str)
            place += 1


def prefix_of(request: ChatRequest) -> bytes:
    """The bytes of a request up to the end of its messages, which every later request of the session begins with."""
    return request.raw[: request.raw.index(b'],"tools":')]


def assert_prefix_stable(requests: Sequence[ChatRequest]) -> None:
    """Each request begins with the bytes of the one before, so that a provider's cache of it can be used."""
    for earlier, later in itertools.pairwise(requests):
        assert later.raw.startswith(prefix_of(earlier))


def assert_events_sound(events: Sequence[JsonObject]) -> None:
    """Of whole turns: numbers rise; every call that was announced ends once; each turn has one beginning and end."""
    numbers = [event["sequence"] for event in events]
    assert numbers == sorted(set(numbers))
    turns: dict[str, list[JsonObject]] = {}
    for event in events:
        turns.setdefault(event["turnId"], []).append(event)
    for turn in turns.values():
        assert turn[0]["type"] == "turn.started"
        assert [event["type"] for event in turn if event["type"] in ("turn.completed", "turn.failed")] == [
            turn[-1]["type"]
        ]
        called = [call["id"] for event in turn if event["type"] == "message.completed" for call in event["toolCalls"]]
        ended = [event["callId"] for event in turn if event["type"] == "tool.completed"]
        assert sorted(called) == sorted(ended)
        assert len(set(called)) == len(called)
        asked = [event["requestId"] for event in turn if event["type"] == "permission.requested"]
        answered = [event["requestId"] for event in turn if event["type"] == "permission.resolved"]
        assert asked == answered
