"""SIGKILL at every statement that the store executes, and at random moments: what is left always makes sense."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

KILLS = Path(__file__).with_name("kills.py")


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory if possible: a killed process loses nothing that the system has, so the disk adds only time."""
    memory = Path("/dev/shm")
    made = tempfile.mkdtemp(prefix="mxclaw-kill-", dir=memory if os.access(memory, os.W_OK) else None)
    yield Path(made)
    shutil.rmtree(made)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("mode", "seconds"), [("statements", 150), ("random", 8)])
def test_a_process_killed_at_any_point_leaves_a_sound_store(folder: Path, mode: str, seconds: int) -> None:
    done = subprocess.run(
        [sys.executable, str(KILLS), str(folder), mode, str(seconds), "1"],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    *findings, summary = done.stdout.splitlines() or [done.stderr]
    assert findings == []
    words = dict(word.split("=") for word in summary.split()[1:])
    assert int(words["kills"]) >= (200 if mode == "statements" else 10)
    assert mode == "random" or words["complete"] == "True", "not every statement was reached"
