"""``%load_ext mxclaw_nb``: what it puts into the shell, and how all of it goes away again.

Only the standard library and what IPython has loaded anyway: this runs in everybody's kernel, perhaps at every start.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext, MatcherResult
    from IPython.core.interactiveshell import InteractiveShell

_FIRST_LINE = re.compile(r"(?:[ \t]*(?:\r\n|\n|\r))*[ \t]*%%agent(?:[ \t]+([^\r\n]*))?(?:\r\n|\n|\r|\Z)")
_COMMAND_LINE = re.compile(r"\s*(%mxclaw|%%agent)[ \t]+(.*)\Z", re.DOTALL)
_FACE = "__import__('mxclaw_nb.notebook', fromlist=['notebook'])"


def split_cell(cell: str) -> tuple[str, str] | None:
    """The options and the body of a cell that begins with ``%%agent`` (blank lines aside), the body byte for byte.

    IPython ends every cell with a newline of its own; that one is taken off again.
    """
    found = _FIRST_LINE.match(cell)
    if found is None:
        return None
    return (found[1] or "").strip(), cell[found.end() :].removesuffix("\n")


class AgentCells:
    """The input transformer: a cell that begins with ``%%agent`` becomes an ``await`` of its turn.

    It must be the first one: those after it take ``>>>`` and indentation out of a body that is not Python. What it
    writes is one expression that needs no name of the user's and leaves none.
    """

    # Not for checking whether a cell is complete: a terminal would run the first line without waiting for a body.
    has_side_effects = True

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def __call__(self, lines: list[str]) -> list[str]:
        parts = split_cell("".join(lines))
        if parts is None:
            return lines
        line, body = parts
        function = "await " + _FACE + ".agent_cell" if self._can_await() else _FACE + ".agent_cell_sync"
        return [f"{function}({line!r}, {body!r})\n"]

    def _can_await(self) -> bool:
        """Whether this shell awaits on asyncio: ``%autoawait`` can be off, or set to another library."""
        from IPython.core.async_helpers import _asyncio_runner

        return bool(self._shell.autoawait) and self._shell.loop_runner is _asyncio_runner


def agent_magic(line: str, cell: str) -> None:
    """Run a turn of the agent. The cell below the first line is the prompt, taken exactly as it is.

    %%agent [--session ID | --new] [--model PROVIDER/MODEL] [--mode plan|ask|accept-edits|allow-all]
            [--max-iterations N] [--to NAME]

    --session   go on with this session; --new starts a new one. Without either a notebook keeps its own session.
    --model     the model, for this turn only
    --mode      the permission mode, for this turn only
    --to        store the final text in this variable

    A turn that fails raises, so that "Run all" stops there. The kernel's interrupt ends a turn.
    """
    agent_cell_sync(line, cell)


def mxclaw_magic(line: str) -> None:
    """Everything about the agent but the turn itself: %mxclaw alone says where you are and what you can type."""
    from .agent import run_command

    run_command(line)


async def agent_cell(line: str, body: str) -> None:
    """What a ``%%agent`` cell awaits. Raises TurnFailed, TurnInterrupted or what refused the turn, each in one line."""
    from .agent import run_cell

    await run_cell(line, body)


def agent_cell_sync(line: str, body: str) -> None:
    """The same for callers that cannot await."""
    from .agent import run_cell_sync

    run_cell_sync(line, body)


def complete_words(context: CompletionContext) -> MatcherResult:
    """A matcher for Tab after ``%mxclaw`` and ``%%agent``; nothing else is offered there."""
    from IPython.core.completer import SimpleCompletion

    from .agent import completions

    found = _COMMAND_LINE.match(context.text_until_cursor)
    if found is None or (found[1] == "%%agent" and split_cell(context.full_text) is None):
        return {"completions": []}
    typed = found[2]
    fragment = re.search(r"\S*\Z", typed)
    return {
        "completions": [SimpleCompletion(text=word, type="magic") for word in completions(found[1], typed)],
        "matched_fragment": fragment[0] if fragment else "",
        "suppress": True,
    }


def _ours(part: object) -> bool:
    return getattr(part, "__module__", "").startswith(__name__)


def load(shell: InteractiveShell) -> None:
    """Register the magics, the transformer and Tab. Calling it again changes nothing."""
    from IPython.core.completer import context_matcher
    from IPython.core.magic import no_var_expand

    transformers = shell.input_transformers_cleanup
    if any(_ours(transformer) for transformer in transformers):
        return
    transformers.insert(0, AgentCells(shell))
    # A prompt or a note may hold $ and braces: they are not for IPython to fill in.
    shell.register_magic_function(no_var_expand(agent_magic), "cell", "agent")
    shell.register_magic_function(no_var_expand(mxclaw_magic), "line", "mxclaw")
    completer: Any = shell.Completer
    if completer is not None:
        completer.custom_matchers.append(context_matcher()(complete_words))


def unload(shell: InteractiveShell) -> None:
    """Take everything out of the shell, close what was opened, and end our threads."""
    transformers = shell.input_transformers_cleanup
    transformers[:] = [transformer for transformer in transformers if not _ours(transformer)]
    for kind, name in (("cell", "agent"), ("line", "mxclaw")):
        magics = shell.magics_manager.magics[kind]
        if _ours(magics.get(name)):
            del magics[name]
    completer: Any = shell.Completer
    if completer is not None:
        completer.custom_matchers[:] = [matcher for matcher in completer.custom_matchers if not _ours(matcher)]
    if (agent := sys.modules.get(f"{__package__}.agent")) is not None:
        agent.shut_down()
