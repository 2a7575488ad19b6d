"""What every subject shares: its task, the meter, and the line that it prints. Standard library only."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Task:
    """What a subject is to do; the harness passes it as JSON in the first argument.

    ``base_url`` plays what is measured, ``warm_up_url`` a short form of it. ``count`` is chunks, rounds or requests;
    ``repeats`` how often the measured part is done in the same process.
    """

    kind: str
    base_url: str = ""
    warm_up_url: str = ""
    count: int = 0
    repeats: int = 1
    folder: str = ""
    home: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def read_task() -> Task:
    """The task from the command line."""
    return Task(**json.loads(sys.argv[1]))


class Meter:
    """CPU of the whole process (all its threads, not its children) and wall time, in seconds, while it is entered."""

    cpu = 0.0
    wall = 0.0

    def __enter__(self) -> Meter:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu += time.process_time() - self._cpu
        self.wall += time.perf_counter() - self._wall


def report(meter: Meter, **checks: int) -> None:
    """Print the result: what the meter saw, and counts by which the harness sees that the work was done."""
    print(json.dumps({"cpu": meter.cpu, "wall": meter.wall, **checks}), flush=True)


def numbered(folder: str, path: str) -> str:
    """What the peers' ``read_file`` gives back: the file with numbered lines, as ours does."""
    lines = (Path(folder) / path).read_text(encoding="utf-8").splitlines()
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, 1))


PROMPT = "Read my notes one by one and tell me what is in them."
SYSTEM = "You help with the notes in this folder."
