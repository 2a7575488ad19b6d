"""The tool ``run_command``: one shell command, from its preview to what the model reads of it."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from ..files import run_in_thread
from ..process import ProcessResult, StartFailed, command_environment, run
from ..protocol import CallPreview, Risk, ToolContext, ToolFailure, ToolResult
from ..text import escape_invisible, one_line
from .output import OUTPUT_LIMIT, Presented, present, save_output
from .terminal_text import LiveText, mostly_no_text, terminal_text

OUTPUT_CAP = 1024 * 1024
"""Bytes of output at which a command is stopped."""

LONGEST_COMMAND = 120_000
"""Bytes; Linux takes 131,071 in one argument."""

_BASH = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")  # where it is if PATH does not say
_STRANGE_LIMIT = 1_000  # characters shown of output that is no text
_LIVE_INTERVAL_S = 0.1
_LIVE_PIECE = 4_000  # characters of one update
_LIVE_TOTAL = 60_000


class RunCommandArguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    command: str = Field(description="The command, for bash.")
    timeout_s: float | None = Field(
        default=None, ge=1, le=3600, description="Seconds after which it is stopped; 120 unless set otherwise."
    )


class RunCommand:
    """Runs a command in a bash of its own that starts in the workspace; everything it started is gone afterwards."""

    name = "run_command"
    description = (
        "Run a command with bash. Each command starts in the workspace folder: cd and variables do not carry over to "
        "the next. Standard input is empty and there is no terminal, so nothing may ask. Standard output and error "
        "come back together; of long output the head and the tail, and the path of a file with all of it. "
        "Nothing is left running: processes in the background are killed when the command ends."
    )
    risk: Risk = "execute"
    concurrency_safe = False
    arguments: type[BaseModel] = RunCommandArguments

    async def preview(self, arguments: RunCommandArguments, context: ToolContext) -> CallPreview:
        command = _checked(arguments.command)
        return CallPreview(
            summary=one_line(command),
            detail=escape_invisible(command),
            detail_kind="command",
            command=command,
        )

    async def run(self, arguments: RunCommandArguments, context: ToolContext, preview: CallPreview) -> ToolResult:
        command = _checked(arguments.command)
        timeout_s = float(arguments.timeout_s or context.settings.command_timeout_s)
        live = _LiveOutput(context.emit)
        try:
            shell, result = await _run_in_shell(command, timeout_s, context, live.feed)
            live.finish()
        finally:
            live.close()
        result = replace(result, output=_redacted(result.output, context))
        shown = await run_in_thread(lambda: _presented(result, context))
        notes = list(_notes(command, shell, result, timeout_s, context))
        content = shown.content or "(no output)"
        if notes:
            content = "\n".join([content.removesuffix("\n"), *notes])
        failed = result.exit_code != 0 or result.timed_out or result.capped
        return ToolResult(content, "error" if failed else "ok", result.exit_code, shown.path, result.timed_out)


def _checked(command: str) -> str:
    """The command, if a shell can be given it. Raises ToolFailure."""
    if not command.strip():
        raise ToolFailure("The command is empty. Give the command to run.")
    if "\0" in command:
        raise ToolFailure("The command holds a NUL character, which no shell takes. Write \\0 with printf instead.")
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        raise ToolFailure("The command holds half a surrogate pair, which is no character. Write it out.") from None
    if size > LONGEST_COMMAND:
        raise ToolFailure(
            f"The command is {size:,} bytes long; {LONGEST_COMMAND:,} is the most. Write it to a file and run that."
        )
    return command


async def _run_in_shell(
    command: str, timeout_s: float, context: ToolContext, on_output: Callable[[bytes], None]
) -> tuple[str, ProcessResult]:
    """Run it with the first shell that can be started: bash, or else sh."""
    environment = command_environment(added=context.settings.command_environment)
    shells = list(_shells(environment["PATH"]))
    for shell in shells:
        try:
            result = await run(
                [shell, "-c", "--", command],
                cwd=context.workspace,
                env=environment | {"SHELL": shell},
                timeout_s=timeout_s,
                output_cap=OUTPUT_CAP,
                on_output=on_output,
            )
        except StartFailed as failure:
            if failure.stage != "exec" or shell == shells[-1]:
                raise
        else:
            return shell, result
    raise ToolFailure("There is no shell: neither bash nor /bin/sh can be found. Install bash.")


def _shells(path: str) -> Iterator[str]:
    """Shells by preference, each once. What SHELL says is not asked: it may be anything."""
    candidates = [shutil.which("bash", path=path), *_BASH, "/bin/sh"]
    yield from dict.fromkeys(shell for shell in candidates if shell and Path(shell).exists())


def _redacted(output: bytes, context: ToolContext) -> bytes:
    """The output without the keys: a program of the same user can read our own environment."""
    return context.redact(output.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _presented(result: ProcessResult, context: ToolContext) -> Presented:
    """The output for the model. What reached the cap, or is no text, is kept in a file even if little is shown."""
    strange = mostly_no_text(result.output)
    limit = _STRANGE_LIMIT if strange else OUTPUT_LIMIT
    shown = present(terminal_text(result.output), context, full=result.output, limit=limit)
    content, path = shown.content, shown.path
    if path is None and (strange or result.capped):
        with suppress(OSError):
            path = str(save_output(context.outputs, context.call_id, result.output))
            content = f"{content}\n[Full output: {path}]".lstrip("\n")
    if strange:
        content += f"\n[Most of the {len(result.output):,} bytes of output are no UTF-8 text.]"
    return Presented(content, path)


def _notes(command: str, shell: str, result: ProcessResult, timeout_s: float, context: ToolContext) -> Iterator[str]:
    """What the model must know besides the output, a line each."""
    if result.timed_out:
        yield f"[Timed out: stopped after {timeout_s:g} s. timeout_s may be at most 3600.]"
    elif result.capped:
        yield f"[Stopped: the output reached its limit of {OUTPUT_CAP:,} bytes (1 MiB). Write to a file, or filter it.]"
    elif result.launcher_lost:
        yield "[Killed together with the process that watches over it: by the command itself, or for lack of memory.]"
    elif result.signal is not None:
        yield f"[Killed by signal {result.signal} ({_signal_name(result.signal)}).]"
    elif result.exit_code:
        yield f"[Exit code {result.exit_code}{_signal_hint(result.exit_code)}.]"
    if result.straggler_count:
        names = ", ".join(result.stragglers) + (", ..." if result.straggler_count > len(result.stragglers) else "")
        many = result.straggler_count > 1
        yield (
            f"[{result.straggler_count} background process{'es' if many else ''} still ran when the command ended and "
            f"{'were' if many else 'was'} killed: {names}.]"
        )
    if result.survivors:
        yield f"[These processes could not be killed and may still run: {', '.join(result.survivors)}.]"
    if Path(shell).name != "bash":
        yield f"[There is no bash here: {shell} ran the command.]"
    if not context.workspace.is_dir():
        yield f"[The workspace folder {context.workspace} no longer exists. Nothing can run until it is made again.]"
    elif re.fullmatch(r"\s*(cd|pushd)\b[^\n;&|]*", command):
        yield f"[The next command starts in {context.workspace} again: cd does not carry over.]"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a signal without a name"


def _signal_hint(exit_code: int) -> str:
    """Shells report a process killed by signal n as 128 + n."""
    known = {item.value for item in signal.Signals}
    return f": a process was killed by {_signal_name(exit_code - 128)}" if exit_code - 128 in known else ""


class _LiveOutput:
    """Output for the screen while it comes: plain, at most ten times a second, and not without end."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._text = LiveText()
        self._waiting: list[str] = []
        self._room = _LIVE_TOTAL
        self._next = 0.0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, data: bytes) -> None:
        if self._room <= 0:
            return
        self._waiting.append(self._text.feed(data))
        if self._timer is None:
            self._timer = self._loop.call_at(max(self._next, self._loop.time()), self._flush)

    def finish(self) -> None:
        """Show the rest at once."""
        if self._room > 0:
            self._waiting.append(self._text.finish())
            self._flush()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _flush(self) -> None:
        self.close()
        self._timer = None
        self._next = self._loop.time() + _LIVE_INTERVAL_S
        text = "".join(self._waiting)
        self._waiting.clear()
        if not text:
            return
        if len(text) > _LIVE_PIECE:
            text = f"\n[... {len(text) - _LIVE_PIECE:,} characters not shown live ...]\n{text[-_LIVE_PIECE:]}"
        self._room -= len(text)
        if self._room <= 0:
            text += "\n[... no more is shown live; the result has head and tail ...]\n"
        self._emit(text)
