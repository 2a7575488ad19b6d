"""Terminal IPython: ``%%agent`` shows the same turn and asks at the prompt."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminal.terminal import Terminal

QUESTION = "Allow?"


class Shell:
    """An interactive ``ipython`` with the extension loaded and a rehearsal session."""

    def __init__(self, folder: Path, *options: str) -> None:
        environment = {"IPYTHONDIR": str(folder / "ipython")}
        words = ["-m", "IPython", "--no-banner", "--no-confirm-exit", *options]
        self.terminal = Terminal.python(*words, cwd=str(folder), environment=environment, rows=50)
        self.count = 0
        self.next_prompt()
        self.run("%load_ext mxclaw_nb")
        self.run("%mxclaw rehearse")

    def next_prompt(self) -> None:
        self.count += 1
        self.terminal.wait_for(f"In [{self.count}]:")

    def run(self, line: str) -> None:
        self.terminal.press(line + "\r")
        self.next_prompt()

    def agent(self, prompt: str) -> None:
        """Type a ``%%agent`` cell; two blank lines end it."""
        continued = self.terminal.text().count("...:")
        for number, line in enumerate(("%%agent", prompt, "")):
            self.terminal.press(line + "\r")
            self.terminal.wait_for("...:", times=continued + number + 1)
        self.terminal.press("\r")


@pytest.fixture
def ipython(tmp_path: Path) -> Iterator[Callable[..., Shell]]:
    shells: list[Shell] = []

    def start(*options: str) -> Shell:
        shell = Shell(tmp_path, *options)
        shells.append(shell)
        return shell

    yield start
    for shell in shells:
        shell.terminal.close()


@pytest.mark.parametrize("options", [(), ("--no-autoindent", "--InteractiveShell.autoawait=False")])
def test_a_turn_asks_at_the_prompt_and_the_shell_goes_on(ipython: Callable[..., Shell], options: tuple[str]) -> None:
    shell = ipython(*options)
    shell.agent("run a command")
    shell.terminal.wait_for(QUESTION)
    shell.terminal.press("y")
    shell.next_prompt()
    shown = shell.terminal.text()
    assert "● run_command" in shown
    assert "│ 42" in shown
    assert QUESTION not in shown
    shell.run("6 * 7")
    assert "Out[4]: 42" in shell.terminal.text()
    shell.terminal.press("exit\r")
    assert shell.terminal.wait_for_end() == 0


def test_after_ctrl_c_nothing_goes_on_printing(ipython: Callable[..., Shell]) -> None:
    """J07: the coroutine of an interrupted cell went on in the background."""
    shell = ipython()
    shell.agent("long reply")
    shell.terminal.wait_for("Line 2 of 40")
    shell.terminal.press("\x03")
    started = time.monotonic()
    shell.next_prompt()
    assert time.monotonic() - started < 2
    shell.run("import time; time.sleep(1.5)")  # whatever still ran would print now
    shell.run("print('qu' + 'iet')")
    shown = shell.terminal.text()
    after = shown[shown.index("interrupted") :]
    assert "Line" not in after
    assert "quiet" in after
    assert "Traceback" not in shown


def test_ctrl_c_while_asking_gives_the_prompt_back(ipython: Callable[..., Shell]) -> None:
    shell = ipython()
    shell.agent("run a command")
    shell.terminal.wait_for(QUESTION)
    shell.terminal.press("\x03")
    shell.next_prompt()
    assert QUESTION not in shell.terminal.text()
    assert "Python 3" not in shell.terminal.text(), "the command did not run"
    shell.run("'typed' + ' and shown'")
    assert "typed and shown" in shell.terminal.text()


def test_a_failed_turn_is_one_line(ipython: Callable[..., Shell]) -> None:
    shell = ipython()
    shell.agent("look around this folder")
    shell.terminal.wait_for(QUESTION)
    shell.terminal.press("\x04")
    shell.next_prompt()
    shell.terminal.press("%%agent --max-iterations 1 --mode plan\r")
    shell.terminal.wait_for("%%agent --max-iterations 1 --mode plan")
    shell.terminal.press("look around this folder\r")
    shell.terminal.press("\r")
    shell.terminal.press("\r")
    shell.next_prompt()
    assert "max_iterations: " in shell.terminal.text()
    assert "Traceback" not in shell.terminal.text()
