"""``run`` and the options of ``%%agent``: the same words, the same turn."""

from __future__ import annotations

import keyword
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from mxclaw_nb.files import run_in_thread
from mxclaw_nb.protocol import MODES, Event, Mode, TurnHandle, TurnView, UsageError, event_to_json
from mxclaw_nb.text import one_line

from .place import Call
from .tree import HelpfulCommand, HelpWanted, with_call
from .turns import TurnRequest, run_turn

_PROMPT_LIMIT = 4 << 20
_COMMON = [
    click.Option(["--session"], metavar="ID", help="Go on with this session."),
    click.Option(["--new"], is_flag=True, help="Start a new session."),
    click.Option(["--model"], metavar="PROVIDER/MODEL", help="The model, for this turn only."),
    click.Option(["--mode"], type=click.Choice(MODES), help="The permission mode, for this turn only."),
    click.Option(["--max-iterations"], type=click.IntRange(1, 1000), metavar="N", help="Rounds at most."),
]
AGENT_COMMAND = HelpfulCommand(
    "%%agent",
    params=[*_COMMON, click.Option(["--to"], metavar="NAME", help="Store the final text in this variable.")],
    help="Run a turn. The rest of the cell is the prompt, taken as it is.",
    callback=lambda **values: values,
)


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The options of one ``%%agent`` cell. ``to`` is the name of the variable for the final text."""

    session: str | None = None
    new: bool = False
    model: str | None = None
    mode: Mode | None = None
    max_iterations: int | None = None
    to: str | None = None

    def request(self, text: str) -> TurnRequest:
        return TurnRequest(
            text=text,
            session=self.session,
            new=self.new,
            model=self.model,
            mode=self.mode,
            max_iterations=self.max_iterations,
        )


class AgentHelp(Exception):
    """``%%agent --help``: ``str()`` is the text to show."""


def parse_agent_line(line: str) -> AgentOptions:
    """The options after ``%%agent``. Raises UsageError, or AgentHelp for ``--help``."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"The options of %%agent cannot be read: {error}.") from None
    try:
        values: dict[str, Any] = AGENT_COMMAND.main(words, prog_name="%%agent", standalone_mode=False)
    except HelpWanted as wanted:
        raise AgentHelp(str(wanted)) from None
    except click.ClickException as error:
        hint = " The prompt goes on the lines below." if "unexpected extra argument" in error.format_message() else ""
        raise UsageError(f"{error.format_message()}{hint} See `%%agent --help`.") from None
    options = AgentOptions(**values)
    if options.session and options.new:
        raise UsageError("--session and --new exclude each other.")
    if options.to is not None and (
        not options.to.isidentifier() or keyword.iskeyword(options.to) or options.to.startswith("__")
    ):
        raise UsageError(f"--to needs the name of a variable, and {options.to!r} is none.")
    return options


@click.command("run", cls=HelpfulCommand)
@click.argument("prompt", required=False)
@click.option("--workspace", metavar="DIR", help="Where the agent may work.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Seconds at most."
)
@click.option("--max-cost", type=click.FloatRange(min=0), metavar="X", help="US dollars at most.")
@click.option("--json", "as_json", is_flag=True, help="Print one event a line and nothing else.")
@with_call
async def run(
    call: Call,
    prompt: str | None,
    session: str | None,
    new: bool,
    model: str | None,
    mode: Mode | None,
    max_iterations: int | None,
    workspace: str | None,
    timeout_s: float | None,
    max_cost: float | None,
    as_json: bool,
) -> int:
    """Run one turn with PROMPT (or - for standard input) and exit by how it went."""
    if session and new:
        raise UsageError("--session and --new exclude each other.")
    text = await _prompt(prompt)
    request = TurnRequest(
        text=text,
        session=session,
        new=new,
        model=model,
        mode=mode,
        max_iterations=max_iterations,
        workspace=_folder(workspace),
        timeout_s=timeout_s,
        max_cost=max_cost,
    )
    if as_json:
        screen = Call(call.app, _JsonScreen(call), call.place)
        outcome = await run_turn(screen, request)
    else:
        outcome = await run_turn(call, request)
    if outcome.failure is not None:
        call.frontend.say(f"{outcome.failure.code}: {one_line(str(outcome.failure), 2000)}", level="error")
    return outcome.exit_status


run.params.extend(_COMMON)


async def _prompt(prompt: str | None) -> str:
    if prompt is None or prompt == "-":
        if prompt is None and sys.stdin is not None and sys.stdin.isatty():
            raise UsageError(
                'Write a prompt: mxclaw run "look around this folder" (or - to read it from standard input).'
            )
        try:
            # Beside the loop: whoever writes the other end may take its time, and a signal must still end us.
            data = await run_in_thread(_standard_input, grace_s=0.0)
        except OSError as error:
            raise UsageError(f"The prompt cannot be read from standard input: {error.strerror or error}.") from None
        if len(data) > _PROMPT_LIMIT:
            raise UsageError(f"The prompt on standard input is longer than {_PROMPT_LIMIT >> 20} MiB.")
        prompt = data.decode("utf-8", "replace").removeprefix("\ufeff")
    if not prompt.strip():
        raise UsageError("The prompt is empty. Write what the agent should do.")
    return prompt


def _standard_input() -> bytes:
    """What is on standard input, up to just past the limit; by its descriptor, so that no lock is held meanwhile."""
    if sys.stdin is None:
        return b""
    descriptor, data = sys.stdin.fileno(), bytearray()
    while len(data) <= _PROMPT_LIMIT and (piece := os.read(descriptor, 65_536)):
        data += piece
    return bytes(data)


def _folder(workspace: str | None) -> Path | None:
    if workspace is None:
        return None
    if not workspace:  # an unset variable in a script, most likely
        raise UsageError("--workspace is empty. Name a folder.")
    try:
        resolved = Path(workspace).expanduser().resolve()
        if not resolved.is_dir():
            raise UsageError(f"--workspace {workspace} is not a folder.")
        os.listdir(resolved)
    except (OSError, RuntimeError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise UsageError(f"--workspace {workspace} cannot be used: {reason}.") from None
    return resolved


class _JsonScreen:
    """The screen of ``run --json``: every event on a line of standard output, and nothing else there."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.can_answer = False
        self.say_markdown = call.frontend.say_markdown
        self.say = call.frontend.say
        self.write = call.frontend.write
        self.ask = call.frontend.ask
        self.confirm = call.frontend.confirm
        self.choose = call.frontend.choose
        self.read_secret = call.frontend.read_secret
        self.show_record = call.frontend.show_record
        self.show_panel = call.frontend.show_panel

    def open_turn(self, handle: TurnHandle) -> TurnView:
        return _JsonView(self._call, handle)


class _JsonView:
    """Writes events as they come; when nobody reads them any more, stops the turn."""

    def __init__(self, call: Call, handle: TurnHandle) -> None:
        self._write = call.frontend.write
        self._stop = handle.stop
        self._broken = False

    def on_event(self, event: Event) -> None:
        if self._broken:
            return
        try:
            self._write(event_to_json(event) + "\n")
        except BrokenPipeError:
            self._broken = True
            self._stop()

    async def close(self) -> None:
        return None
