"""``mxclaw run`` as a person and as a script meet it: a real terminal, real pipes, real signals, real exit statuses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mxclaw_nb.providers.rehearsal import RehearsalServer, Script, call, fail, say, sequence
from tests.terminal.terminal import Terminal

PROGRAM = ["-m", "mxclaw_nb"]
REHEARSE = ["--model", "rehearsal/quickstart"]
QUESTION = "Allow?"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "项目"
    folder.mkdir()
    (folder / "README.md").write_text("# A project\n")
    return folder


@pytest.fixture
def run(workspace: Path) -> Iterator[Callable[..., Terminal]]:
    """``run("prompt", ...)`` is ``mxclaw run`` in a terminal of its own, in the workspace."""
    terminals: list[Terminal] = []

    def start(*arguments: str, rehearse: bool = True) -> Terminal:
        words = [*PROGRAM, "run", *(REHEARSE if rehearse else []), *arguments]
        terminal = Terminal.python(*words, cwd=str(workspace), rows=60)
        terminals.append(terminal)
        return terminal

    yield start
    for terminal in terminals:
        terminal.close()


@contextmanager
def scripted(script: Script, monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[RehearsalServer]:
    """A configured provider that plays this script."""
    with RehearsalServer(script) as server:
        provider = {
            "name": "scripted", "kind": "custom", "baseURL": server.base_url, "model": "script", "models": ["script"],
            "requiresApiKey": True, "configured": True,
        }  # fmt: skip
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        configuration = {"version": 1, "activeProvider": "scripted", "providers": {"scripted": provider}}
        (home / "config.json").write_text(json.dumps(configuration))
        monkeypatch.setenv("MX_CLAW_API_KEY", server.token)
        yield server


def mxclaw(
    *arguments: str, cwd: Path | None = None, stdin: str | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """The command in pipes."""
    given = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, *PROGRAM, *arguments],
        **given, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def waiting_approval() -> str:
    """The id of the approval that waits, as ``mxclaw approvals`` tells it to anybody."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if found := re.search(r"`(a-[0-9a-f]+)`", mxclaw("approvals", "--all").stdout):
            return found[1]
    raise AssertionError("no approval waits")


# -- at a terminal


def test_a_turn_with_approvals_by_key_does_what_was_allowed(run: Callable[..., Terminal], workspace: Path) -> None:
    terminal = run("look around this folder")
    terminal.wait_for(QUESTION)
    assert "+# Rehearsal notes" in terminal.text()
    terminal.press("y")
    terminal.wait_for("wc -l rehearsal-notes.md")
    terminal.wait_for(QUESTION)
    terminal.press("y")
    assert terminal.wait_for_end() == 0
    assert (workspace / "rehearsal-notes.md").read_text().startswith("# Rehearsal notes")
    assert "✓ allowed once" in terminal.text()
    assert "● run_command" in terminal.text()
    assert QUESTION not in terminal.text()


def test_a_denied_turn_goes_on_without(run: Callable[..., Terminal], workspace: Path) -> None:
    terminal = run("write a file")
    terminal.wait_for(QUESTION)
    terminal.press("m")
    terminal.wait_for("Tell the model")
    terminal.press("not here\r")
    assert terminal.wait_for_end() == 0
    assert "✗ denied" in terminal.text()
    assert "not here" in terminal.text()
    assert not (workspace / "rehearsal-notes.md").exists()


def test_an_allowed_session_is_not_asked_again(
    run: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch, mx_claw_home: Path
) -> None:
    script = sequence(
        call("write_file", path="a.txt", content="a"), call("write_file", path="b.txt", content="b"), say("Both.")
    )
    with scripted(script, monkeypatch, mx_claw_home):
        terminal = run("write both", rehearse=False)
        terminal.wait_for(QUESTION)
        terminal.press("s")
        assert terminal.wait_for_end() == 0
    assert "Both." in terminal.text()
    assert terminal.text().count("wants to run") == 1


def test_ctrl_c_while_streaming_ends_the_turn(run: Callable[..., Terminal]) -> None:
    terminal = run("long reply")
    terminal.wait_for("Line 2 of 40")
    terminal.press("\x03")
    started = time.monotonic()
    assert terminal.wait_for_end() == 130
    assert time.monotonic() - started < 5
    assert "Traceback" not in terminal.text()


def test_ctrl_c_while_asking_runs_nothing(run: Callable[..., Terminal], workspace: Path) -> None:
    terminal = run("write a file")
    terminal.wait_for(QUESTION)
    terminal.press("\x03")
    assert terminal.wait_for_end() == 130
    assert QUESTION not in terminal.text()
    assert "Traceback" not in terminal.text()
    assert not (workspace / "rehearsal-notes.md").exists()


def test_ctrl_c_while_a_command_runs_ends_the_command(
    run: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch, mx_claw_home: Path, workspace: Path
) -> None:
    command = "echo $$ > pid; echo started; sleep 300"
    with scripted(sequence(call("run_command", command=command), say("Done.")), monkeypatch, mx_claw_home):
        terminal = run("sleep", rehearse=False)
        terminal.wait_for(QUESTION)
        terminal.press("y")
        terminal.wait_for("│ started")
        pid = int((workspace / "pid").read_text())
        terminal.press("\x03")
        assert terminal.wait_for_end() == 130
    assert "interrupted" in terminal.text()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(("command", "shown"), [("approve", "✓ allowed once"), ("deny", "✗ denied")])
def test_an_approval_may_be_answered_in_another_terminal(
    run: Callable[..., Terminal], command: str, shown: str
) -> None:
    terminal = run("run a command")
    terminal.wait_for(QUESTION)
    request = waiting_approval()
    answered = mxclaw(command, request)
    assert answered.returncode == 0, answered.stderr
    terminal.wait_for(f"{shown} (answered from another terminal)")
    assert terminal.wait_for_end() == 0
    assert QUESTION not in terminal.text()
    late = mxclaw(command, request)
    assert late.returncode == 1
    assert late.stderr.startswith("already_answered: ")


def test_a_turn_may_be_stopped_from_another_terminal(run: Callable[..., Terminal]) -> None:
    terminal = run("run a command")
    terminal.wait_for(QUESTION)
    session = json.loads(mxclaw("session", "list", "--json").stdout)[0]["id"]
    assert mxclaw("stop", session).returncode == 0
    assert terminal.wait_for_end() == 130
    assert QUESTION not in terminal.text()


def test_a_command_reads_no_key_of_the_person(
    run: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch, mx_claw_home: Path
) -> None:
    """A tool's child must not share the terminal's input: it would eat the answer to the next question."""
    script = sequence(
        call("run_command", command="head -c 1 | wc -c"), call("run_command", command="echo two"), say("Done.")
    )
    with scripted(script, monkeypatch, mx_claw_home):
        terminal = run("read", rehearse=False)
        terminal.wait_for(QUESTION)
        terminal.press("y")
        terminal.wait_for("echo two")
        terminal.wait_for(QUESTION)
        terminal.press("y")
        assert terminal.wait_for_end() == 0
    assert "│ 0" in terminal.text()


@pytest.fixture
def shell(workspace: Path) -> Iterator[Terminal]:
    """An interactive bash with job control, in the workspace."""
    words = ["bash", "--norc", "--noprofile", "-i"]
    terminal = Terminal(words, cwd=str(workspace), rows=60, environment={"PS1": "shell> "})
    terminal.wait_for("shell>")
    yield terminal
    terminal.close()


COMMAND = f"{sys.executable} -m mxclaw_nb run --model rehearsal/quickstart 'run a command'"


def test_a_question_survives_ctrl_z_and_fg(shell: Terminal) -> None:
    shell.press(f"{COMMAND}\r")
    shell.wait_for(QUESTION)
    shell.press("\x1a")
    shell.wait_for("Stopped")
    shell.press("echo mi''ne\r")
    shell.wait_for("mine")
    shell.press("fg\r")
    shell.wait_for(QUESTION, times=2)
    shell.press("y")
    shell.wait_for("✓ allowed once")
    shell.press("\recho status $?\r")
    shell.wait_for("status 0")


def test_in_the_background_it_waits_to_be_brought_back_and_reads_nothing(shell: Terminal) -> None:
    shell.press(f"{COMMAND} &\r")
    shell.wait_for("wants to run")
    shell.press("echo mi''ne\r")
    shell.wait_for("mine")
    assert QUESTION not in shell.text()
    assert "Stopped" not in shell.text()
    shell.press("fg\r")
    shell.wait_for(QUESTION)
    shell.press("n")
    shell.wait_for("✗ denied")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_are_no_disaster(workspace: Path, closed: str) -> None:
    command = f"exec {sys.executable} -m mxclaw_nb run --model rehearsal/quickstart 'show a table' {closed}"
    done = subprocess.run(["bash", "-c", command], cwd=workspace, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    if ">&-" not in closed.replace("2>&-", ""):
        assert b"| tool |" in done.stdout


def test_a_terminal_that_is_closed_ends_the_turn(run: Callable[..., Terminal]) -> None:
    terminal = run("run a command")
    terminal.wait_for(QUESTION)
    os.close(terminal.process.child_fd)
    pid, status = _wait_for_child(terminal.process.pid)
    assert pid == terminal.process.pid
    assert os.waitstatus_to_exitcode(status) == 143
    terminal.process.closed = True


def _wait_for_child(pid: int) -> tuple[int, int]:
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return ended, status
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the program outlives its terminal")


# -- in pipes


def test_in_a_pipe_the_final_text_alone_is_on_standard_output(workspace: Path) -> None:
    done = mxclaw("run", *REHEARSE, "look around this folder", cwd=workspace)
    assert done.returncode == 0
    assert done.stdout.startswith("## What this rehearsal did\n")
    assert "● list_dir" in done.stderr
    assert "nobody can be asked here" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (workspace / "rehearsal-notes.md").exists()


def test_the_prompt_may_come_from_standard_input(workspace: Path) -> None:
    done = mxclaw("run", *REHEARSE, "-", cwd=workspace, stdin="显示一个表格\n")
    assert done.returncode == 0
    assert "| 工具 |" in done.stdout


def test_json_is_one_event_a_line_and_nothing_else(workspace: Path) -> None:
    done = mxclaw("run", *REHEARSE, "--json", "run a command", cwd=workspace)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert done.stderr == ""
    assert events[0]["type"] == "turn.started"
    assert events[-1]["type"] == "turn.completed"
    numbers = [event["sequence"] for event in events]
    assert numbers == sorted(set(numbers))
    assert {event["answer"] for event in events if event["type"] == "permission.resolved"} == {"deny"}


def test_a_json_reader_that_leaves_ends_the_turn_quietly(workspace: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, *PROGRAM, "run", *REHEARSE, "--json", "long reply"],
        cwd=workspace, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    assert json.loads(process.stdout.readline())["type"] == "turn.started"
    process.stdout.close()
    started = time.monotonic()
    assert process.wait(20) == 130
    assert time.monotonic() - started < 5, "it does not play its whole reply to nobody"
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()


def test_a_slow_json_reader_can_still_be_terminated(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, mx_claw_home: Path
) -> None:
    """A full pipe must not stop the loop, and with it SIGTERM."""
    with scripted(sequence(say("x" * 400_000)), monkeypatch, mx_claw_home):
        process = subprocess.Popen(
            [sys.executable, *PROGRAM, "run", "--json", "talk"],
            cwd=workspace, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["type"] == "turn.started"
        time.sleep(1.5)  # the pipe fills up; nothing tells when it is full
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(10) in (143, -signal.SIGTERM)
        finally:
            process.kill()
            process.communicate(timeout=10)


# -- exit statuses


def test_status_1_when_the_provider_refuses(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, mx_claw_home: Path
) -> None:
    with scripted(sequence(fail(400, "no such thing")), monkeypatch, mx_claw_home):
        done = mxclaw("run", "hello", cwd=workspace)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("provider_error: ")


def test_status_2_when_no_provider_is_ready(workspace: Path) -> None:
    done = mxclaw("run", "hello", cwd=workspace)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("provider_not_ready: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [("--no-such",), ("--mode", "bold", "x"), ("--max-iterations", "0", "x"), ("",), ("--new", "--session", "s", "x")],
)
def test_status_2_for_wrong_words(words: tuple[str, ...], workspace: Path) -> None:
    done = mxclaw("run", *words, cwd=workspace)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


def test_status_3_when_the_rounds_are_used_up(workspace: Path) -> None:
    done = mxclaw("run", *REHEARSE, "--max-iterations", "1", "look around this folder", cwd=workspace)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("max_iterations: ")


def test_status_4_when_another_process_runs_the_session(run: Callable[..., Terminal], workspace: Path) -> None:
    terminal = run("run a command")
    terminal.wait_for(QUESTION)
    session = json.loads(mxclaw("session", "list", "--json").stdout)[0]["id"]
    second = mxclaw("run", *REHEARSE, "--session", session, "long reply", cwd=workspace)
    assert second.returncode == 4
    assert second.stderr.startswith("lease_held: ")
    terminal.press("n")
    assert terminal.wait_for_end() == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_a_signal_ends_the_turn_with_its_status(workspace: Path, number: signal.Signals, status: int) -> None:
    process = subprocess.Popen(
        [sys.executable, *PROGRAM, "run", *REHEARSE, "--json", "long reply"],
        cwd=workspace, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    while b"message.delta" not in process.stdout.readline():
        pass
    process.send_signal(number)
    rest, errors = process.communicate(timeout=20)
    assert process.returncode == status
    last = json.loads(rest.splitlines()[-1])
    assert (last["type"], last["code"]) == ("turn.failed", "cancelled")
    assert b"Traceback" not in errors
