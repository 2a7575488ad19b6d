"""From a magic to a command: the app and the place of this kernel, one turn or command, and how its end is shown."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mxclaw_nb.app import close_current_app, current_app
from mxclaw_nb.commands import (
    AgentHelp,
    Call,
    Place,
    complete,
    complete_agent,
    parse_agent_line,
    run_line,
    run_turn,
)
from mxclaw_nb.protocol import Frontend, MxclawError, TurnFailed, UsageError

from .bridge import run_sync
from .driver import drive
from .failures import below_its_record, in_one_line
from .place import locate

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_EMPTY = (
    "There is nothing below %%agent. Write what the agent should do on the lines below it, such as: "
    "Look around this folder and tell me what is in it."
)

_place: Place | None = None
_closing_at_exit = False


async def run_cell(line: str, body: str) -> None:
    """Run the turn of a ``%%agent`` cell under the kernel's interrupt. Raises what ended it, shown in one line."""
    try:
        await drive(_turn(line, body))
    except MxclawError as error:
        raise _as_ended(error) from None


def run_cell_sync(line: str, body: str) -> None:
    """The same where nothing can be awaited: see the bridge for what that costs."""
    try:
        run_sync(_turn(line, body))
    except MxclawError as error:
        raise _as_ended(error) from None


def run_command(line: str) -> None:
    """Run what was typed after ``%mxclaw``. Raises what refused it, or a plain failure, each shown in one line."""
    try:
        status = run_sync(_command(line))
    except MxclawError as error:
        raise in_one_line(error) from None
    if status:
        raise in_one_line(MxclawError(f"%mxclaw {line.strip()} ended with status {status}."))


def completions(magic: str, typed: str) -> list[str]:
    """What Tab offers after ``typed``; nothing if it cannot be found out quickly and quietly."""
    try:
        call = _call()
        return complete_agent(call, typed) if magic == "%%agent" else complete(call, typed)
    except MxclawError:
        return []


def shut_down() -> None:
    """Close the app, its threads, and every widget that is still open. The next use starts afresh."""
    global _place, _closing_at_exit
    _place = None
    panel = sys.modules.get(f"{__package__}.panel")
    if panel is not None:
        panel.TURNS.unload()
    if _closing_at_exit:
        atexit.unregister(shut_down)
        _closing_at_exit = False
    run_sync(close_current_app())


def _as_ended(error: MxclawError) -> BaseException:
    """In a page the record above has said why a turn failed; a terminal, a log and a refusal say it here."""
    shell = _shell()
    if isinstance(error, TurnFailed) and hasattr(shell, "kernel") and _frontend(shell).can_answer:
        return below_its_record(error)
    return in_one_line(error)


async def _turn(line: str, body: str) -> None:
    shell = _shell()
    frontend = _frontend(shell)
    try:
        options = parse_agent_line(line)
    except AgentHelp as wanted:
        frontend.say(str(wanted))
        return
    if not body.strip():
        raise UsageError(_EMPTY)
    outcome = await run_turn(_call(frontend), options.request(body))
    if outcome.failure is not None:
        raise outcome.failure
    if options.to is not None:
        shell.push({options.to: outcome.text})


async def _command(line: str) -> int:
    return await run_line(_call(), line)


def _call(frontend: Frontend | None = None) -> Call:
    """The app and place of this process, opened on first use."""
    global _place, _closing_at_exit
    shell = _shell()
    frontend = frontend or _frontend(shell)
    if not _closing_at_exit:
        atexit.register(shut_down)
        _closing_at_exit = True
    if _place is None:
        headless = hasattr(shell, "kernel") and not frontend.can_answer
        found = locate(shell.user_ns, os.environ, headless=headless, cwd=Path.cwd())
        _place = Place(workspace=found.workspace, notebook=found.key, title=found.title, prefix="%mxclaw")
    return Call(current_app(), frontend, _place)


def _shell() -> InteractiveShell:
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None:
        raise UsageError(
            "This needs IPython: a notebook, or a terminal that runs ipython. In a shell use `mxclaw run`."
        )
    return shell


def _frontend(shell: InteractiveShell) -> Frontend:
    if hasattr(shell, "kernel"):
        from .frontend import JupyterFrontend

        return JupyterFrontend(shell)
    from mxclaw_nb.terminal import TerminalFrontend

    return TerminalFrontend()
