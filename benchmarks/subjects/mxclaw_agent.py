"""This project, whole: ``App`` from a home directory, ``AgentCore.submit_turn`` with the store on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from meter import PROMPT, Meter, Task, read_task, report

from mxclaw_nb.app import App
from mxclaw_nb.core import TurnOptions
from mxclaw_nb.protocol import (
    Message,
    MessageDelta,
    ModelId,
    ModelRequest,
    TextDelta,
    ToolCall,
    ToolCompleted,
    TurnCompleted,
    UserInput,
    now_iso,
)
from mxclaw_nb.storage import SqliteStore


def open_app(task: Task) -> App:
    """An app whose home has two providers: what is measured, and the short form of it."""
    home = Path(task.home)
    home.mkdir(parents=True, exist_ok=True)
    urls = {"bench": task.base_url, "warm": task.warm_up_url}
    providers = {
        name: {"name": name, "kind": "custom", "baseURL": url, "model": "mock", "models": ["mock"]}
        | {"requiresApiKey": False, "configured": True, "apiKey": ""}
        for name, url in urls.items()
    }
    config = {"version": 1, "activeProvider": "bench", "providers": providers}
    (home / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return App.open(home)


async def turn(app: App, task: Task, provider: str) -> tuple[int, int, int]:
    """One turn in a new session: how many text chunks, characters and tool results it had."""
    session = await app.store.create_session(workspace=task.folder)
    options = TurnOptions(model=ModelId(provider, "mock"), max_iterations=max(2, task.count + 1), can_answer=False)
    chunks, results, parts, event = 0, 0, [], None
    async for event in app.core.submit_turn(session.id, UserInput(PROMPT), options):
        if isinstance(event, MessageDelta):
            chunks += 1
            parts.append(event.delta)
        elif isinstance(event, ToolCompleted):
            assert event.status == "ok", event
            results += 1
    assert isinstance(event, TurnCompleted), event
    return chunks, len("".join(parts)), results


async def measure_turns(task: Task) -> None:
    """``stream`` and ``rounds``: whole turns, from the prompt to the session being idle and on disk."""
    app = open_app(task)
    await turn(app, task, "warm")
    if task.kind == "rounds":
        await turn(app, task, "bench")
    chunks = characters = results = 0
    with Meter() as meter:
        for _ in range(task.repeats):
            got = await turn(app, task, "bench")
            chunks, characters, results = chunks + got[0], characters + got[1], results + got[2]
    await app.aclose()
    report(meter, chunks=chunks, characters=characters, results=results)


def read_messages(path: Path) -> list[Message]:
    """The messages that the peer sends, as ours."""
    found = []
    for at, item in enumerate(json.loads(path.read_text(encoding="utf-8")), 1):
        calls = tuple(
            ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in item.get("tool_calls", ())
        )
        found.append(
            Message(
                role=item["role"],
                content=item["content"],
                tool_calls=calls,
                tool_call_id=item.get("tool_call_id"),
                position=at,
            )
        )
    return found


async def measure_request(task: Task) -> None:
    """Long requests, each longer than the one before by one call and its result."""
    app = open_app(task)
    messages = read_messages(Path(task.folder, "messages.json"))
    meter, chunks = Meter(), 0

    async def ask() -> int:
        return sum(
            [
                isinstance(item, TextDelta)
                async for item in app.provider.stream(ModelRequest(ModelId("bench", "mock"), messages))
            ]
        )

    await ask()
    for _ in range(task.repeats):
        messages += _copies(messages[-2:])
        with meter:
            chunks += await ask()
    await app.aclose()
    report(meter, messages=len(messages), chunks=chunks)


async def measure_long_turn(task: Task) -> None:
    """As ``request``, but a whole turn in a session that long: store, repair, request, reply, commits."""
    app = open_app(task)
    app.settings.change("context_window_messages", 100_000)
    session = await app.store.create_session(workspace=task.folder)
    await write_messages(app.store, session.id, read_messages(Path(task.folder, "messages.json")))
    meter = Meter()
    options = TurnOptions(model=ModelId("bench", "mock"), can_answer=False, max_iterations=task.count + 1)
    async for _ in app.core.submit_turn(session.id, UserInput(PROMPT), options):
        pass
    with meter:
        events = [event async for event in app.core.submit_turn(session.id, UserInput(PROMPT), options)]
    assert isinstance(events[-1], TurnCompleted), events[-1]
    await app.aclose()
    report(meter)


def _copies(messages: Sequence[Message]) -> list[Message]:
    return [
        Message(role=old.role, content=old.content, tool_calls=old.tool_calls, tool_call_id=old.tool_call_id)
        for old in messages
    ]


async def write_messages(store: SqliteStore, session_id: str, messages: Sequence[Message]) -> None:
    writer = await store.acquire(session_id, "t-bench", on_signal=lambda _signal: None)
    for start in range(0, len(messages), 1000):
        await writer.commit(messages=messages[start : start + 1000])
    await writer.release(state="idle")


async def fill(task: Task) -> None:
    """Make a session of ``count`` messages in ``home``."""
    store = SqliteStore.open(Path(task.home))
    session = await store.create_session(workspace=task.folder, title="bench")
    messages = []
    for index in range(task.count):
        text = f"Message {index}: the mean of column 'price' is {index % 97}.{index % 10}, 平均值. " * 3
        messages.append(Message(role="user" if index % 2 == 0 else "assistant", content=text))
    await write_messages(store, session.id, messages)
    await store.close()
    session_file(task).write_text(session.id, encoding="utf-8")
    report(Meter(), messages=task.count)


async def measure_opening(task: Task, *, everything: bool) -> None:
    """What a turn reads of a session, or all of it, by a store that has read nothing yet: its connections are cold."""
    warm = SqliteStore.open(Path(task.home).parent / "warm")  # imports and first calls are not what is measured
    other = await warm.create_session(workspace=task.folder)
    await warm.window(other.id, limit=800)
    await warm.messages(other.id)
    session_id = session_file(task).read_text(encoding="utf-8")
    meters = []
    for _ in range(task.repeats):
        store = SqliteStore.open(Path(task.home))
        with Meter() as meter:
            if everything:
                read = len(await store.messages(session_id))
            else:
                await store.session(session_id)
                read = len((await store.window(session_id, limit=800)).messages)
        meters.append(meter)
        await store.close()
    await warm.close()
    report(sorted(meters, key=lambda meter: meter.wall)[task.repeats // 2], messages=read)


def session_file(task: Task) -> Path:
    """Where ``fill`` leaves the id of the session that it made."""
    return Path(task.folder) / "session.txt"


async def measure_store(task: Task) -> None:
    """``count`` deltas appended as fast as they come, and the end of the turn committed."""
    store = SqliteStore.open(Path(task.home))
    session = await store.create_session(workspace=task.folder)
    writer = await store.acquire(session.id, "t-bench", on_signal=lambda _signal: None)
    events = [
        MessageDelta(
            sequence=writer.next_sequence(),
            session_id=session.id,
            turn_id="t-bench",
            timestamp=now_iso(),
            message_id="m-bench",
            delta=" token",
        )
        for _ in range(task.count)
    ]
    with Meter() as meter:
        for at, event in enumerate(events):
            writer.append(event)
            if at % 100 == 0:
                await asyncio.sleep(0)
        await writer.release(state="idle")
    await store.close()
    report(meter, events=task.count)


async def measure_grep(task: Task) -> None:
    """The ``grep`` tool called in process, as a turn calls it. ``base_url`` is the pattern here."""
    from mxclaw_nb.protocol import ToolContext
    from mxclaw_nb.tools import builtin_tools

    tool = next(tool for tool in builtin_tools() if tool.name == "grep")
    home = Path(task.home)
    arguments = tool.arguments.model_validate({"pattern": task.base_url})
    context = ToolContext("s", "t", "c", Path(task.folder), home / "outputs", home)
    took = []
    for _ in range(task.repeats + 1):
        start = time.perf_counter()
        result = await tool.run(arguments, context, await tool.preview(arguments, context))
        took.append(time.perf_counter() - start)
    assert result.status == "ok", result
    meter = Meter()
    meter.wall = median(took[1:])
    report(meter, lines=result.content.count("\n") + 1)


async def main() -> None:
    task = read_task()
    kinds = {
        "stream": measure_turns,
        "rounds": measure_turns,
        "request": measure_request,
        "long-turn": measure_long_turn,
        "fill": fill,
        "open-window": lambda task: measure_opening(task, everything=False),
        "open-all": lambda task: measure_opening(task, everything=True),
        "store": measure_store,
        "grep": measure_grep,
    }
    await kinds[task.kind](task)


asyncio.run(main())
