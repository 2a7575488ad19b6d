"""The whole machine with no key and no network: ``mxclaw run`` against the rehearsal, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MODEL = "rehearsal/quickstart"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text("# Rain in Ghent\n\nDaily since 1833.\n")
    (tmp_path / "data.csv").write_text("day,mm\n1,4\n")
    return tmp_path


def run(workspace: Path, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit status, events and standard error of ``mxclaw run --json`` with the rehearsal's model."""
    command = [sys.executable, "-m", "mxclaw_nb", "run", "--json", "--model", MODEL, "--workspace", str(workspace)]
    done = subprocess.run(
        [*command, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, cwd=workspace
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def results(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["name"], event["status"]) for event in events if event["type"] == "tool.completed"]


def test_a_whole_demonstration_with_real_tools(workspace: Path) -> None:
    status, events, errors = run(workspace, "--mode", "allow-all", "look around this folder")
    assert status == 0, errors
    tools = ["list_dir", "read_file", "write_file", "run_command"]
    assert results(events) == [(name, "ok") for name in tools]
    notes = (workspace / "rehearsal-notes.md").read_text()
    assert "data.csv" in notes and "Rain in Ghent" in notes
    final = events[-1]
    assert final["type"] == "turn.completed" and "rehearsal" in final["text"]
    assert f"{len(notes.splitlines())} rehearsal-notes.md" in final["text"], "what the command really printed"
    assert len([event for event in events if event["type"] == "message.delta"]) > 100
    assert not list(Path(os.environ["MX_CLAW_HOME"]).glob("config.json")), "the rehearsal is never configured"


def test_where_nobody_can_be_asked_it_says_what_was_denied(workspace: Path) -> None:
    status, events, errors = run(workspace, "看看这个文件夹")
    assert status == 0, errors
    assert results(events) == [("list_dir", "ok"), ("read_file", "ok"), ("write_file", "denied")]
    assert "已被拒绝" in events[-1]["text"] and not (workspace / "rehearsal-notes.md").exists()


def test_a_spent_budget_can_be_continued(workspace: Path) -> None:
    status, events, errors = run(workspace, "--mode", "allow-all", "--max-iterations", "2", "look around")
    assert status == 3 and events[-1]["code"] == "max_iterations", errors
    session = events[0]["sessionId"]
    status, events, errors = run(workspace, "--session", session, "--mode", "allow-all", "continue")
    assert status == 0, errors
    assert results(events) == [("write_file", "ok"), ("run_command", "ok")]
