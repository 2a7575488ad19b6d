"""The root of the command tree, and the two doors to it."""

from __future__ import annotations

import shlex

import click

from mxclaw_nb import __version__
from mxclaw_nb.protocol import UsageError

from .agent import run
from .approving import approvals, approve, deny, stop
from .place import Call
from .sessions import session_group, show_turn
from .settings import set_setting, settings
from .status import doctor, panel, rehearse, where
from .tree import HelpfulGroup, dispatch


@click.group("mxclaw", cls=HelpfulGroup, invoke_without_command=True)
@click.option("--version", is_flag=True, help="Say which version this is.")
@click.pass_context
def root(context: click.Context, version: bool) -> object:
    """An agent that lives in your kernel. Without a command: where you are and what you can type."""
    call: Call = context.obj
    if version:
        call.frontend.say(f"mxclaw {__version__}")
        context.exit(0)
    return where(call) if context.invoked_subcommand is None else None


for command in (
    run, rehearse, session_group, show_turn, panel, stop, approvals, approve, deny, set_setting, settings, doctor,
):  # fmt: skip
    root.add_command(command)


async def run_arguments(call: Call, arguments: list[str]) -> int:
    """Run the command of these words. Returns an exit status; raises MxclawError."""
    for warning in call.app.take_warnings():
        call.frontend.say(warning, level="warning")
    return await dispatch(root, call, arguments)


async def run_line(call: Call, line: str) -> int:
    """Run what was typed after ``%mxclaw``. Returns an exit status; raises MxclawError."""
    try:
        arguments = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"The command cannot be read: {error}.") from None
    return await run_arguments(call, arguments)
