"""What is measured, against whom, and the bars."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from . import kernels
from .environments import OURS, python_of
from .harness import Bar, Measure, Place, Sample, Subject, measured, run_script
from .server import TEXT_CHUNKS_A_ROUND, WORDS
from .subjects.meter import Task

PACED_CHUNKS = 3_000
BURST_CHUNKS = 20_000
RATE = 1_000
ROUNDS = 8
TURNS = 5
LONG_REQUEST = 2_000
LONG_SESSION = 100_000
STORED_EVENTS = 100_000
GREP_FILES = 5_000
VOCABULARY = "the mean of column price is 3.14 and 平均值 rows with missing values were dropped before fitting"
OURS_NAME = "mxclaw"
PEER_SCRIPTS = {
    "openai": "openai_client",
    "pydantic-ai": "pydantic_ai_agent",
    "openai-agents": "openai_agents_agent",
    "langgraph": "langgraph_agent",
}


def streaming_paced(place: Place) -> Measure:
    """One long reply at 1,000 chunks a second, as a fast provider sends it."""
    return _streaming(
        place,
        "stream-paced",
        f"Streaming {PACED_CHUNKS:,} chunks at {RATE:,} a second",
        PACED_CHUNKS,
        RATE,
        (("openai", 0.65), ("pydantic-ai", 0.4)),
    )


def streaming_burst(place: Place) -> Measure:
    """One long reply, all of it at once."""
    title = f"Streaming {BURST_CHUNKS:,} chunks in a burst"
    return _streaming(place, "stream-burst", title, BURST_CHUNKS, 0, (("openai", 0.2),))


def _streaming(
    place: Place, name: str, title: str, chunks: int, rate: int, bars: tuple[tuple[str, float], ...]
) -> Measure:
    task = Task("stream", f"{place.url}/stream/{chunks}/{rate}/v1", f"{place.url}/stream/300/0/v1", count=chunks)

    def ours() -> Sample:
        folder = place.fresh()
        # A consumer that is late gets merged deltas: fewer, never other text.
        result = run_script("mxclaw_agent", replace(task, count=1, home=str(folder / "home"), folder=str(folder)))
        return kept_up(OURS_NAME, measured(result, chunks, characters=characters))

    def peer(peer_name: str) -> Callable[[], Sample]:
        def run() -> Sample:
            result = run_script(PEER_SCRIPTS[peer_name], task, peer_name)
            return kept_up(peer_name, measured(result, chunks, characters=characters))

        return run

    def kept_up(name: str, sample: Sample) -> Sample:
        if rate and sample["wall"] > 1.1 / rate:
            print(f"  {name} got a chunk only every {sample['wall'] * 1000:.2f} ms: the machine is too busy for this")
        return sample

    characters = sum(len(WORDS[index % len(WORDS)]) for index in range(chunks))
    return Measure(
        name,
        title,
        "a chunk",
        [Subject(OURS_NAME, ours), *(Subject(at, peer(at)) for at in ("openai", "pydantic-ai"))],
        [Bar("CPU a chunk", OURS_NAME, "cpu", limit, (at,)) for at, limit in bars],
    )


def rounds(place: Place) -> Measure:
    """Turns of 8 rounds with one tool call each and a last reply; every round streamed, our store in memory."""
    task = _rounds_task(place)
    units = TURNS * (ROUNDS + 1)
    peers = ("pydantic-ai", "openai-agents", "langgraph")

    def ours(*, memory: bool) -> Sample:
        home = place.fresh(memory=memory)
        return measured(run_script("mxclaw_agent", replace(task, home=str(home))), units, results=TURNS * ROUNDS)

    def peer(name: str) -> Callable[[], Sample]:
        chunks = units * TEXT_CHUNKS_A_ROUND
        return lambda: measured(run_script(PEER_SCRIPTS[name], task, name), units, chunks=chunks)

    return Measure(
        "rounds",
        f"{ROUNDS} rounds with one tool call each and a last reply",
        "a round",
        [
            Subject(OURS_NAME, lambda: ours(memory=True)),
            *(Subject(name, peer(name)) for name in peers),
            Subject(f"{OURS_NAME}, store on disk", lambda: ours(memory=False)),
        ],
        [
            Bar("CPU a round", OURS_NAME, "cpu", 1 / 3, peers),
            Bar("wall a round, store on tmpfs", OURS_NAME, "wall", 1 / 2, peers),
        ],
    )


def _rounds_task(place: Place) -> Task:
    folder = place.fresh()
    (folder / "notes").mkdir()
    for index in range(ROUNDS):
        lines = [f"line {line} of note {index}: 备注" for line in range(30)]
        (folder / "notes" / f"file_{index}.txt").write_text("\n".join(lines), encoding="utf-8")
    url = f"{place.url}/rounds/{ROUNDS}/v1"
    return Task("rounds", url, url, count=ROUNDS, repeats=TURNS, folder=str(folder))


def syncs_a_round(place: Place) -> float | None:
    """How often a round waits for the disk (fsync, fdatasync), by strace; None where strace is not installed."""
    if shutil.which("strace") is None:
        return None
    task = _rounds_task(place)
    counts = []
    for turns in (1, 3):
        home = place.fresh()
        log = home / "strace.txt"
        prefix = ("strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(log))
        run_script("mxclaw_agent", replace(task, repeats=turns, home=str(home / "home")), prefix=prefix)
        counts.append(sum("sync(" in line for line in log.read_text(encoding="utf-8").splitlines()))
    return (counts[1] - counts[0]) / (2 * (ROUNDS + 1))


def long_request(place: Place) -> Measure:
    """A request of 2,000 messages, the second time and later: two messages are new, the rest was sent before."""
    folder = place.fresh()
    (folder / "messages.json").write_text(json.dumps(_conversation(LONG_REQUEST)), encoding="utf-8")
    url = f"{place.url}/stream/1/0/v1"
    task = Task("request", url, url, repeats=5, folder=str(folder))
    sent = LONG_REQUEST + 2 * task.repeats

    def ours(kind: str) -> Callable[[], Sample]:
        def run() -> Sample:
            result = run_script("mxclaw_agent", replace(task, kind=kind, home=str(place.fresh())))
            return measured(result, task.repeats, messages=sent) if kind == "request" else measured(result, 1)

        return run

    def theirs() -> Sample:
        return measured(run_script("openai_client", task, "openai"), task.repeats, messages=sent)

    return Measure(
        "request",
        f"A request of {LONG_REQUEST:,} messages, encoded, sent and its one-word reply read",
        "a request",
        [
            Subject(OURS_NAME, ours("request")),
            Subject("openai", theirs),
            Subject(f"{OURS_NAME}, a whole turn", ours("long-turn")),
        ],
        [Bar("CPU a request", OURS_NAME, "cpu", 0.01, ("openai",))],
    )


def _conversation(count: int) -> list[dict[str, object]]:
    """A valid transcript of ``count`` messages: questions, calls, results and answers."""
    chance = random.Random(1)
    words = VOCABULARY.split()

    def text(low: int, high: int) -> str:
        return " ".join(chance.choices(words, k=chance.randint(low, high)))

    messages: list[dict[str, object]] = [{"role": "system", "content": text(200, 200)}]
    messages.append({"role": "user", "content": text(10, 40)})
    while len(messages) < count:
        identifier = f"call_{len(messages)}"
        function = {"name": "read_file", "arguments": json.dumps({"path": f"notes/file_{len(messages)}.txt"})}
        call = {"id": identifier, "type": "function", "function": function}
        messages.append({"role": "assistant", "content": text(5, 30), "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": identifier, "content": text(20, 100)})
    return messages


def opening(place: Place) -> Measure:
    """A session of 100,000 messages, in a process that has not opened the store: what a turn reads, or everything."""
    home = place.fresh() / "home"
    run_script("mxclaw_agent", Task("fill", count=LONG_SESSION, home=str(home), folder=str(home.parent)))
    task = Task("open-window", repeats=5, home=str(home), folder=str(home.parent))

    def everything() -> Sample:
        return measured(run_script("mxclaw_agent", replace(task, kind="open-all", repeats=1)), 1, messages=LONG_SESSION)

    return Measure(
        "opening",
        f"Opening a session of {LONG_SESSION:,} messages",
        "a session",
        [
            Subject(OURS_NAME, lambda: measured(run_script("mxclaw_agent", task), 1)),
            Subject("loading it all", everything),
        ],
        [Bar("wall to open a session", OURS_NAME, "wall", 0.01, ("loading it all",))],
    )


def load_extension(place: Place) -> Measure:
    """``%load_ext`` in a running kernel."""

    def load(python: Path, extension: str) -> Callable[[], Sample]:
        return lambda: kernels.load_extension(python, extension, place.fresh())

    peer = "jupyter-ai-magics"
    return Measure(
        "load-ext",
        "`%load_ext` in a running kernel",
        "a load",
        [
            Subject(OURS_NAME, load(OURS, "mxclaw_nb")),
            Subject(peer, lambda: load(python_of(peer), "jupyter_ai_magics")()),
        ],
        [
            Bar("wall to load", OURS_NAME, "wall", 0.010),
            Bar("wall to load", OURS_NAME, "wall", 1 / 200, (peer,)),
        ],
    )


def grep(place: Place, name: str, title: str, pattern: str) -> Measure | None:
    """The tool called in process against a child ``rg``; None where ripgrep is not installed."""
    if shutil.which("rg") is None:
        return None
    folder = place.fresh()
    _tree(folder)
    task = Task("grep", pattern, repeats=15, folder=str(folder.resolve()), home=str(place.fresh()))
    return Measure(
        name,
        title,
        "a search",
        [
            Subject(OURS_NAME, lambda: measured(run_script("mxclaw_agent", task), 1)),
            Subject("rg", lambda: measured(run_script("ripgrep", task), 1)),
        ],
        [Bar("wall a search", OURS_NAME, "wall", 1.2, ("rg",))],
        repetitions=7,
    )


def grep_few(place: Place) -> Measure | None:
    """A pattern that some ten lines of the tree match."""
    return grep(place, "grep-few", f"grep in {GREP_FILES:,} files, few matches", "needle_[0-9]+")


def grep_many(place: Place) -> Measure | None:
    """A pattern that every file matches often; the tool shows the first 100."""
    return grep(place, "grep-many", f"grep in {GREP_FILES:,} files, many matches", "column")


def _tree(folder: Path) -> None:
    chance = random.Random(2)
    words = VOCABULARY.split()
    for index in range(GREP_FILES):
        parent = folder / f"package_{index % 50:02d}" / f"module_{index % 7}"
        parent.mkdir(parents=True, exist_ok=True)
        lines = [" ".join(chance.choices(words, k=8)) for _ in range(100)]
        if index % 500 == 0:
            lines[50] = f"needle_{index} = 1"
        (parent / f"file_{index}.py").write_text("\n".join(lines) + "\n", encoding="utf-8")


def store(place: Place) -> Measure:
    """Deltas appended to the store as fast as they come, the end of the turn committed. For the record."""

    def run(*, memory: bool) -> Sample:
        home = place.fresh(memory=memory)
        task = Task("store", count=STORED_EVENTS, home=str(home / "home"), folder=str(home))
        return measured(run_script("mxclaw_agent", task), STORED_EVENTS, events=STORED_EVENTS)

    syncs = syncs_a_round(place)
    return Measure(
        "store",
        f"{STORED_EVENTS:,} events appended and committed",
        "an event",
        [
            Subject(f"{OURS_NAME}, store on disk", lambda: run(memory=False)),
            Subject(f"{OURS_NAME}, store on tmpfs", lambda: run(memory=True)),
        ],
        [],
        repetitions=3,
        notes={} if syncs is None else {"fsync and fdatasync calls a round (reply, one tool result)": syncs},
    )


MEASURES: dict[str, Callable[[Place], Measure | None]] = {
    "stream-paced": streaming_paced,
    "stream-burst": streaming_burst,
    "rounds": rounds,
    "request": long_request,
    "opening": opening,
    "load-ext": load_extension,
    "grep-few": grep_few,
    "grep-many": grep_many,
    "store": store,
}
