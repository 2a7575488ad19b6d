"""The command tree's frame: click parses, our errors and our screen do the talking."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar, cast

import click

from mxclaw_nb.process import inside_agent_command
from mxclaw_nb.protocol import NotForAgents, UsageError

from .place import Call

Handler = Callable[..., Awaitable[int]]
F = TypeVar("F", bound=Callable[..., Any])


class HelpWanted(Exception):
    """``--help`` was given; ``str()`` is the text."""


class HelpfulCommand(click.Command):
    """A command whose ``--help`` reaches the person through our screen."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _raise_help
        return option


class HelpfulGroup(HelpfulCommand, click.Group):
    """A group of commands; a slip of the fingers is answered with what was probably meant."""

    command_class = HelpfulCommand
    group_class = type

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f" Did you mean `{near[0]}`?" if near else f" There are: {', '.join(self.list_commands(ctx))}."
            raise click.UsageError(f"There is no command `{args[0]}`.{hint}", ctx) from error


def _raise_help(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        raise HelpWanted(ctx.get_help())


def with_call(function: F) -> F:
    """Give a handler the Call as its first argument; refuse it where an agent's command asks.

    A model could else answer its own approvals, change what it is allowed, or wipe its tracks.
    """

    @functools.wraps(function)
    def handler(call: Call, *arguments: Any, **values: Any) -> Any:
        if inside_agent_command():
            raise NotForAgents("A command that the agent runs cannot use mxclaw: that is for the person alone.")
        return function(call, *arguments, **values)

    return cast(F, click.pass_obj(handler))


async def dispatch(group: click.Group, call: Call, arguments: list[str]) -> int:
    """Run the command that ``arguments`` name. Returns an exit status; raises MxclawError (usage included)."""
    try:
        handler = group.main(arguments, prog_name=call.place.prefix, standalone_mode=False, obj=call)
    except HelpWanted as wanted:
        call.frontend.say(str(wanted))
        return 0
    except click.ClickException as error:
        _usage(error)
    except click.exceptions.Exit as end:
        return end.exit_code
    if handler is None or isinstance(handler, int):
        return handler or 0
    return int(await handler)


def _usage(error: click.ClickException) -> NoReturn:
    context = getattr(error, "ctx", None)
    text = error.format_message().rstrip()
    if not text.endswith((".", "?", "!")):
        text += "."
    if context is not None:
        text += f" See `{context.command_path} --help`."
    raise UsageError(text) from None
