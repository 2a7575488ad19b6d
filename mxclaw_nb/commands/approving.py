"""``approvals``, ``approve``, ``deny`` and ``stop``: answering and ending what runs, here or in another process."""

from __future__ import annotations

import click

from mxclaw_nb.protocol import Answer, Choice, NotFound, UsageError
from mxclaw_nb.text import one_line

from .place import Call
from .text import code, plain, table
from .tree import HelpfulCommand, with_call


@click.command("approvals", cls=HelpfulCommand)
@click.option("--all", "everywhere", is_flag=True, help="Of every session, not only this one's.")
@with_call
async def approvals(call: Call, everywhere: bool) -> int:
    """List the approvals that wait for an answer."""
    session = None if everywhere or not call.place.keeps_session else await call.current_session()
    waiting = await call.app.store.pending_approvals(session.id if session else None)
    if not waiting:
        call.frontend.say("No approval is waiting.")
        return 0
    rows = [
        (code(row.id), code(row.session_id), code(row.name), plain(one_line(row.summary, 60)), plain(row.reason))
        for row in waiting
    ]
    call.frontend.say_markdown(table(("approval", "session", "tool", "what", "why it is asked"), rows))
    call.frontend.say(f"Answer with `{call.place.prefix} approve ID` or `{call.place.prefix} deny ID`.")
    return 0


@click.command("approve", cls=HelpfulCommand)
@click.argument("request_id", metavar="ID")
@click.option("--session", "for_session", is_flag=True, help="Allow it for the rest of the session.")
@with_call
async def approve(call: Call, request_id: str, for_session: bool) -> int:
    """Allow a call that waits for approval."""
    return await _answer(call, request_id, Answer("allow_session" if for_session else "allow_once"))


@click.command("deny", cls=HelpfulCommand)
@click.argument("request_id", metavar="ID")
@click.argument("note", nargs=-1)
@with_call
async def deny(call: Call, request_id: str, note: tuple[str, ...]) -> int:
    """Deny a call that waits for approval; further words go to the model."""
    return await _answer(call, request_id, Answer("deny", " ".join(note)))


async def _answer(call: Call, request_id: str, answer: Answer) -> int:
    row = await call.app.store.approval(request_id)
    allowed: tuple[Choice | str, ...] = (*row.choices, "deny")
    if answer.choice not in allowed:
        raise UsageError(f"{row.id} can be allowed once only; leave out --session.")
    row = await call.app.core.answer(row.id, answer, "user" if call.place.keeps_session else "cli")
    verb = "Denied" if answer.choice == "deny" else "Allowed"
    call.frontend.say(f"{verb}: {one_line(row.summary, 90)}", level="success")
    return 0


@click.command("stop", cls=HelpfulCommand)
@click.argument("session_id", metavar="[SESSION]", required=False)
@with_call
async def stop(call: Call, session_id: str | None) -> int:
    """Stop the turn that runs in a session, in whatever process it runs."""
    session = await call.named_session(session_id)
    if not await call.app.core.stop(session.id, f"by {call.place.prefix} stop"):
        raise NotFound(f"No turn is running in session {session.id}.")
    call.frontend.say(f"The turn in session {session.id} was asked to stop.", level="success")
    return 0
