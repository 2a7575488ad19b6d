"""When the process that runs a command dies, however it dies, the command and all its descendants are gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

OWNER = """
import asyncio, os, sys
from mxclaw_nb.process import run

async def main():
    options = {"cwd": sys.argv[1], "env": dict(os.environ), "timeout_s": float(sys.argv[2]), "output_cap": 1000}
    await asyncio.gather(*[run(["/bin/bash", "-c", text], **options) for text in sys.argv[3:]])

asyncio.run(main())
"""
STUBBORN = "trap '' TERM; setsid bash -c \"trap '' TERM; touch ready; sleep 60 & wait; sleep 60\" & sleep 60; true"


def start_owner(shell: Any, *commands: str, prelude: str = "", timeout_s: float = 60) -> subprocess.Popen[bytes]:
    owner = subprocess.Popen(
        [sys.executable, "-c", prelude + OWNER, str(shell.folder), str(timeout_s), *commands],
        env=os.environ | shell.env,
        start_new_session=True,
    )
    assert shell.wait_until((shell.folder / "ready").exists, 20)
    return owner


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGSEGV], ids=lambda n: n.name
)
@pytest.mark.parametrize(
    "command",
    ["touch ready; sleep 60", STUBBORN, "touch ready; yes > /dev/null", "touch ready; yes"],
    ids=["plain", "stubborn", "busy", "writing"],
)
def test_an_owner_that_dies_takes_the_command_along_within_a_second(shell: Any, number: int, command: str) -> None:
    """H16."""
    owner = start_owner(shell, command)
    os.kill(owner.pid, number)
    owner.wait(5)
    assert shell.gone_within(1)


def test_two_commands_of_a_dead_owner_do_not_keep_each_other_alive(shell: Any) -> None:
    owner = start_owner(shell, "sleep 60", "sleep 60 & sleep 60", "sleep 1; touch ready; sleep 60")
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait(5)
    assert shell.gone_within(1)


def test_a_forked_child_of_the_owner_does_not_keep_the_command_alive(shell: Any) -> None:
    """It holds copies of all our descriptors, as a multiprocessing worker does."""
    prelude = "import os, threading, time\nthreading.Timer(0.5, lambda: os.fork() or time.sleep(5)).start()\n"
    owner = start_owner(shell, "sleep 1.5; touch ready; sleep 60", prelude=prelude)
    workers = Path(f"/proc/{owner.pid}/task/{owner.pid}/children")
    before = shell.alive()
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait(5)
    deadline = time.monotonic() + 1
    forked = [pid for pid in before if pid != owner.pid and is_owner(pid)]
    try:
        assert forked and not workers.exists()
        while set(shell.alive()) - set(forked):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        for pid in forked:
            os.kill(pid, signal.SIGKILL)


def is_owner(pid: int) -> bool:
    try:
        return b"asyncio.gather" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_a_key_press_of_ctrl_c_does_not_reach_the_command(shell: Any) -> None:
    """SIGINT goes to the terminal's foreground group; the command is not in it, only the owner decides."""
    prelude = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    owner = start_owner(shell, "trap 'touch interrupted' INT; touch ready; sleep 0.7; touch finished", prelude=prelude)
    os.killpg(owner.pid, signal.SIGINT)
    assert owner.wait(10) == 0
    assert (shell.folder / "finished").exists() and not (shell.folder / "interrupted").exists()


def test_a_stopped_owner_does_not_stretch_the_time_limit(shell: Any) -> None:
    owner = start_owner(shell, "touch ready; setsid sleep 60 & sleep 60", timeout_s=1)
    try:
        os.kill(owner.pid, signal.SIGSTOP)
        assert len(shell.alive()) > 2
        assert shell.wait_until(lambda: shell.alive() == [owner.pid], 3)
    finally:
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait(5)
