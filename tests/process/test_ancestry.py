"""A process knows that an agent's command started it, whatever the command does to hide that."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from mxclaw_nb.process import MARKER, inside_agent_command

ASK = f"{sys.executable} -c 'from mxclaw_nb.process import inside_agent_command as f; print(f())'"


def test_outside_of_a_command_it_is_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MARKER, raising=False)
    assert not inside_agent_command()


def test_the_variable_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARKER, "1")
    assert inside_agent_command()


@pytest.mark.parametrize(
    "text",
    [
        ASK,
        f"env -i {ASK}",
        f"unset {MARKER}; {ASK}",
        f"{MARKER}= {ASK}",
        f"env -i setsid -w {ASK}",
        f"env -i bash -c 'bash -c \"bash -c true\"; exec {ASK.replace(chr(39), chr(34))}'",
        f"(env -i setsid {ASK} >answer &); for i in $(seq 500); do [ -s answer ] && break; sleep .02; done; cat answer",
    ],
)
def test_inside_a_command_it_is_true_also_without_the_variable(shell: Any, text: str) -> None:
    result = asyncio.run(shell.run(text, timeout_s=30))
    assert result.output == b"True\n"


def test_a_process_beside_a_command_is_not_inside_it(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MARKER, raising=False)

    async def main() -> None:
        command = asyncio.ensure_future(shell.run("sleep 60"))
        while len(shell.alive()) < 2:  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.01)
        beside = await asyncio.to_thread(subprocess.run, ["bash", "-c", ASK], capture_output=True, check=True)
        assert beside.stdout == b"False\n"
        command.cancel()
        await asyncio.wait({command})

    asyncio.run(main())
