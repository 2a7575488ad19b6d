"""Notebooks that nobody watches: nbconvert and papermill end by themselves, with a right status and a readable file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from mxclaw_nb.providers.rehearsal import call, fail, say, sequence
from tests.end_to_end.agents import Agent, ScriptedAgent, scripted

pytestmark = pytest.mark.timeout(180)
__all__ = ["scripted"]


def execute(program: str, agent: Agent, folder: Path, cells: list[str]) -> tuple[int, dict[str, Any], str]:
    """Run a notebook; returns the exit status, the executed notebook, and what was printed."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in [agent.setup, *cells]])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    source, target = folder / "in.ipynb", folder / "out.ipynb"
    nbformat.write(notebook, source)
    command = {
        "nbconvert": [
            "nbconvert",
            "--to",
            "notebook",
            "--execute",
            "--allow-errors",
            "--output",
            str(target),
            str(source),
        ],
        "nbconvert-strict": ["nbconvert", "--to", "notebook", "--execute", "--output", str(target), str(source)],
        "papermill": ["papermill", str(source), str(target)],
    }[program]
    environment = {**os.environ, "IPYTHONDIR": str(folder / "ipython"), "JPY_SESSION_NAME": str(folder / "outer.ipynb")}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    written = json.loads(target.read_text()) if target.exists() else {}
    return done.returncode, written, done.stdout + done.stderr


@pytest.mark.parametrize("program", ["nbconvert", "papermill"])
def test_a_question_that_nobody_can_answer_is_denied_and_the_turn_completes(
    scripted: ScriptedAgent, tmp_path: Path, program: str
) -> None:
    agent = scripted(sequence(call("write_file", path="made.txt", content="one\n"), say("It was **denied**.")))
    status, notebook, printed = execute(program, agent, tmp_path, ["%%agent\nWrite the file.", "print('after')"])
    assert status == 0, printed
    (output,) = notebook["cells"][1 if program == "nbconvert" else -2]["outputs"]
    assert set(output["data"]) == {"text/html", "text/markdown", "text/plain"}
    assert "nobody can be asked here" in "".join(output["data"]["text/plain"])
    assert "widgets" not in notebook["metadata"], "no widget was ever made"
    assert not (tmp_path / "made.txt").exists()


@pytest.mark.parametrize("program", ["nbconvert-strict", "papermill"])
def test_a_failed_turn_is_a_failed_run(scripted: ScriptedAgent, tmp_path: Path, program: str) -> None:
    agent = scripted(lambda _request: fail(400, "the model says no"))
    status, _, printed = execute(program, agent, tmp_path, ["%%agent\nWrite the file.", "print('never')"])
    assert status != 0
    assert "the model says no" in printed


def test_a_run_does_not_go_on_with_the_session_of_the_notebook_that_started_it(
    scripted: ScriptedAgent, tmp_path: Path
) -> None:
    agent = scripted(lambda _request: say("Hello."))
    for _ in range(2):
        status, _, printed = execute("nbconvert-strict", agent, tmp_path, ["%%agent\nTalk."])
        assert status == 0, printed
    assert [len(request.messages) for request in agent.server.requests] == [2, 2]


def test_an_executed_notebook_becomes_a_web_page_that_shows_the_turn(scripted: ScriptedAgent, tmp_path: Path) -> None:
    agent = scripted(sequence(call("list_dir", path="."), say("**Nothing** <script>alert(1)</script> but this.")))
    status, _, printed = execute("nbconvert-strict", agent, tmp_path, ["%%agent\nLook."])
    assert status == 0, printed
    for form, expected in (("html", "<strong>Nothing</strong> &lt;script&gt;"), ("markdown", "Nothing")):
        done = subprocess.run(
            [sys.executable, "-m", "nbconvert", "--to", form, str(tmp_path / "out.ipynb")],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        page = (tmp_path / f"out.{'md' if form == 'markdown' else form}").read_text()
        assert expected in page
        assert "<script>alert(1)</script>" not in page
