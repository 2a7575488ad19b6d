"""A way to run shell text and to see every process that it started, wherever that went."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mxclaw_nb.process import ProcessResult, run


class Shell:
    """Runs bash with a token in the environment, which everything that it starts inherits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = uuid.uuid4().hex
        self.env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TEST_TOKEN": self.token, "HOME": str(folder)}

    async def run(self, text: str, **options: Any) -> ProcessResult:
        chosen = {"cwd": self.folder, "env": self.env, "timeout_s": 20, "output_cap": 1 << 20, **options}
        return await run(["/bin/bash", "-c", text], **chosen)

    def alive(self) -> list[int]:
        """Living processes with the token, the launcher among them."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                environment = Path("/proc", entry, "environ").read_bytes()
            except OSError:
                continue
            if self.token.encode() in environment:
                found.append(int(entry))
        return found

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def gone_within(self, seconds: float) -> bool:
        return self.wait_until(lambda: not self.alive(), seconds)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture(autouse=True)
def _nothing_of_ours_is_left(shell: Shell) -> Any:
    """No descriptor, no child and no process of the test outlives it."""
    descriptors = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    before = set(children()) if descriptors else set()
    yield
    if descriptors:
        assert shell.gone_within(2), "a process was left running"
        assert {fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")} <= descriptors
        assert set(children()) <= before


def children() -> list[str]:
    """Our children, zombies too."""
    return [
        pid
        for task in os.listdir("/proc/self/task")
        for pid in Path("/proc/self/task", task, "children").read_text().split()
    ]
