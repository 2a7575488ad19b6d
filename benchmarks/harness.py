"""Runs subjects, each in a process of its own and all of them in turn, and compares what they took."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

from .environments import CACHE, OURS, ROOT, python_of
from .subjects.meter import Task

SUBJECTS = Path(__file__).with_name("subjects")
TIMEOUT_S = 120
Quantity = Literal["cpu", "wall"]
Sample = Mapping[str, float]


@dataclass(frozen=True)
class Subject:
    """Something measured: ``run`` does the work once and gives ``cpu`` and ``wall`` in seconds a unit."""

    name: str
    run: Callable[[], Sample]


@dataclass(frozen=True)
class Bar:
    """What must hold: ``ours`` takes at most ``limit`` of the best of ``peers``, or ``limit`` seconds without peers."""

    text: str
    ours: str
    quantity: Quantity
    limit: float
    peers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measure:
    """Subjects that do the same work, and the bars over them. ``unit`` is what the seconds are for: ``a chunk``."""

    name: str
    title: str
    unit: str
    subjects: Sequence[Subject]
    bars: Sequence[Bar]
    repetitions: int = 5
    notes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where a run works: the server's address, a folder on disk and one in memory, all removed afterwards."""

    url: str
    disk: Path
    memory: Path

    def fresh(self, *, memory: bool = False) -> Path:
        """A new empty folder."""
        return Path(tempfile.mkdtemp(dir=self.memory if memory else self.disk))


@contextmanager
def place() -> Iterator[Place]:
    """Start the server and make the folders. ``/dev/shm`` is memory where it exists, else the disk stands in."""
    CACHE.mkdir(parents=True, exist_ok=True)
    shared = Path("/dev/shm")
    disk = Path(tempfile.mkdtemp(prefix="run-", dir=CACHE))
    memory = Path(tempfile.mkdtemp(prefix="mxclaw-bench-", dir=shared if shared.is_dir() else disk))
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.server"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None and server.stdout is not None
    try:
        yield Place(f"http://127.0.0.1:{int(server.stdout.readline())}", disk, memory)
    finally:
        server.stdin.close()
        try:
            server.wait(timeout=5)
        except subprocess.TimeoutExpired:
            server.kill()
        server.stdout.close()
        shutil.rmtree(disk, ignore_errors=True)
        shutil.rmtree(memory, ignore_errors=True)


def run_script(script: str, task: Task, peer: str | None = None, prefix: Sequence[str] = ()) -> dict[str, float]:
    """Run a subject once, in ours or a peer's environment; what it reported. Raises RuntimeError if it failed."""
    python = OURS if peer is None else python_of(peer)
    home = Path(task.home or task.folder or CACHE)
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(home), "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [*prefix, str(python), str(SUBJECTS / f"{script}.py"), task.to_json()],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{script} ({task.kind}) failed with {done.returncode}:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measured(result: Mapping[str, float], units: int, **expected: int) -> Sample:
    """Seconds a unit, after a look at whether the work was done. Raises RuntimeError if it was not."""
    for name, value in expected.items():
        if result[name] != value:
            raise RuntimeError(f"{name} is {result[name]}, expected {value}: the subject did not do the same work")
    return {"cpu": result["cpu"] / units, "wall": result["wall"] / units}


@dataclass(frozen=True)
class Outcome:
    """A bar and what was seen: medians in seconds, their ratio, and the range of ratios within a repetition."""

    bar: Bar
    ours: float
    peer: str | None
    theirs: float | None
    ratio: float
    low: float
    high: float

    @property
    def held(self) -> bool:
        return self.ratio <= self.bar.limit


def run_measure(measure: Measure, repetitions: int | None = None) -> dict[str, list[Sample]]:
    """All subjects once, then all again, ``repetitions`` times (default: the measure's own).

    So whatever else the machine does hits all alike.
    """
    samples: dict[str, list[Sample]] = {subject.name: [] for subject in measure.subjects}
    for _ in range(repetitions or measure.repetitions):
        for subject in measure.subjects:
            samples[subject.name].append(subject.run())
    return samples


def judge(bar: Bar, samples: Mapping[str, Sequence[Sample]]) -> Outcome:
    """A bar against the samples."""

    def series(name: str) -> list[float]:
        return [sample[bar.quantity] for sample in samples[name]]

    ours = series(bar.ours)
    if not bar.peers:
        return Outcome(bar, median(ours), None, None, median(ours), min(ours), max(ours))
    best = min(bar.peers, key=lambda peer: median(series(peer)))
    theirs = series(best)
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return Outcome(bar, median(ours), best, median(theirs), median(ours) / median(theirs), min(ratios), max(ratios))
