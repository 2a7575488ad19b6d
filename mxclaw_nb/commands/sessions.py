"""``session list|new|use|show|search|rename|fork|delete`` and ``show``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import click
from pydantic.alias_generators import to_camel

from mxclaw_nb.protocol import Event, Message, NotFound, Session, SessionChanges, UsageError
from mxclaw_nb.text import one_line

from .place import Call
from .text import code, plain, table
from .tree import HelpfulCommand, HelpfulGroup, with_call

_PAGE = 1000


@click.group("session", cls=HelpfulGroup, invoke_without_command=True)
@click.pass_context
def session_group(context: click.Context) -> object:
    """List, choose and look after sessions."""
    if context.invoked_subcommand is None:
        return context.invoke(list_sessions, limit=20, as_json=False)
    return None


@session_group.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array for programs.")
@with_call
async def list_sessions(call: Call, limit: int, as_json: bool) -> int:
    """List the sessions, the newest first."""
    sessions = await call.app.store.sessions(limit=limit)
    if as_json:
        call.frontend.write(_json([_session(session) for session in sessions]))
        return 0
    if not sessions:
        call.frontend.say("There are no sessions yet. A turn starts one.")
        return 0
    current = await call.current_session()
    rows = [
        (
            ("→ " if current is not None and session.id == current.id else "") + code(session.id),
            plain(one_line(session.title or "(untitled)", 48)),
            code(session.model or "default"),
            session.state,
            str(session.message_count),
            plain(session.updated_at[:16].replace("T", " ")),
        )
        for session in sessions
    ]
    call.frontend.say_markdown(table(("session", "title", "model", "state", "messages", "last used (UTC)"), rows))
    return 0


@session_group.command("new")
@click.argument("title", nargs=-1)
@with_call
async def new_session(call: Call, title: tuple[str, ...]) -> int:
    """Start a new session here."""
    session = await call.new_session(title=" ".join(title))
    call.frontend.say(f"Session {session.id} is new and empty.", level="success")
    return 0


@session_group.command("use")
@click.argument("session_id", metavar="ID")
@with_call
async def use_session(call: Call, session_id: str) -> int:
    """Go on with another session here."""
    if not call.place.keeps_session:
        raise UsageError(f"There is no place here that keeps a session. Use: mxclaw run --session {session_id} ...")
    session = await call.app.store.session(session_id)
    await call.use_session(session)
    call.frontend.say(f"This is now session {session.id}: {one_line(session.title or 'untitled', 60)}", level="success")
    return 0


@session_group.command("show")
@click.argument("session_id", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object: session, messages, events.")
@with_call
async def show_session(call: Call, session_id: str | None, as_json: bool) -> int:
    """Show what was said in a session."""
    session = await call.named_session(session_id)
    messages = await call.app.store.messages(session.id)
    if as_json:
        events = [event async for event in _all_events(call, session.id)]
        call.frontend.write(
            _json(
                {
                    "session": _session(session),
                    "messages": [_message(message) for message in messages],
                    "events": [event.model_dump(mode="json") for event in events],
                }
            )
        )
        return 0
    call.frontend.say_markdown(_summary(session))
    for message in messages[-40:]:
        if message.role in {"user", "assistant"} and message.content.strip():
            who = "You" if message.role == "user" else "Agent"
            call.frontend.say_markdown(f"**{who}:**")
            if message.role == "user":
                call.frontend.say(message.content)
            else:
                call.frontend.say_markdown(message.content)
        for tool_call in message.tool_calls:
            call.frontend.say(f"  {tool_call.name} {one_line(tool_call.arguments, 90)}")
    if len(messages) > 40:
        call.frontend.say(
            f"({len(messages) - 40} earlier messages: `{call.place.prefix} session show {session.id} --json`)"
        )
    return 0


@session_group.command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at most.")
@with_call
async def search(call: Call, words: tuple[str, ...], limit: int) -> int:
    """Find messages that hold all the words, in every session."""
    hits = await call.app.store.search(" ".join(words), limit=limit)
    if not hits:
        call.frontend.say("Nothing was found.")
        return 0
    rows = [
        (code(hit.session_id), plain(one_line(hit.title or "(untitled)", 30)), hit.role, plain(hit.excerpt))
        for hit in hits
    ]
    call.frontend.say_markdown(table(("session", "title", "who", "text"), rows))
    return 0


@session_group.command("rename")
@click.argument("words", nargs=-1, required=True, metavar="[ID] TITLE")
@with_call
async def rename(call: Call, words: tuple[str, ...]) -> int:
    """Give a session another title (the current one, unless an ID comes first)."""
    session = None
    if len(words) > 1 and words[0].startswith("s-"):
        session = await call.app.store.session(words[0])
        words = words[1:]
    session = session or await call.named_session(None)
    title = one_line(" ".join(words), 120)
    await call.app.store.update_session(session.id, SessionChanges(title=title))
    call.frontend.say(f"Session {session.id} is now called: {title}", level="success")
    return 0


@session_group.command("fork")
@click.argument("session_id", metavar="[ID]", required=False)
@click.option("--title", default="", help="A title for the new one.")
@with_call
async def fork(call: Call, session_id: str | None, title: str) -> int:
    """Start a new session from all that was said in one so far."""
    session = await call.named_session(session_id)
    forked = await call.app.store.fork_session(session.id, title=title)
    if call.place.keeps_session:
        await call.use_session(forked)
    call.frontend.say(f"Session {forked.id} goes on from {session.id}.", level="success")
    return 0


@session_group.command("delete")
@click.argument("session_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_call
async def delete(call: Call, session_id: str, yes: bool) -> int:
    """Delete a session with its messages and outputs."""
    session = await call.app.store.session(session_id)
    what = f"{session.id} ({one_line(session.title or 'untitled', 50)}, {session.message_count} messages)"
    if not yes:
        if not call.frontend.can_answer:
            raise UsageError(f"Nobody can be asked here. To delete {session.id}, add --yes.")
        if not await call.frontend.confirm(f"Delete session {what} for good?"):
            call.frontend.say("Nothing was deleted.")
            return 1
    await call.app.store.delete_session(session.id)
    if call.place.session_id == session.id:
        call.place.session_id = None
    call.frontend.say(f"Session {what} was deleted.", level="success")
    return 0


@click.command("show", cls=HelpfulCommand)
@click.argument("turn_id", metavar="[TURN]", required=False)
@click.option("--session", "session_id", metavar="ID", help="A turn of this session.")
@with_call
async def show_turn(call: Call, turn_id: str | None, session_id: str | None) -> int:
    """Show a turn of this session again, from the store (the last one, unless named)."""
    if turn_id and turn_id.startswith("s-"):
        session_id, turn_id = turn_id, None
    session = await call.named_session(session_id)
    turn_id = turn_id or await call.app.store.last_turn_id(session.id)
    events = [event async for event in _all_events(call, session.id, turn_id)] if turn_id else []
    if not events:
        raise NotFound(f"Session {session.id} has no turn {turn_id}." if turn_id else "This session has no turn yet.")
    call.frontend.show_record(events)
    return 0


async def _all_events(call: Call, session_id: str, turn_id: str | None = None):  # type: ignore[no-untyped-def]
    after = 0
    while True:
        page: Sequence[Event] = await call.app.store.events(session_id, after=after, limit=_PAGE, turn_id=turn_id)
        for event in page:
            yield event
        if len(page) < _PAGE:
            return
        after = page[-1].sequence


def _summary(session: Session) -> str:
    cost = "" if not session.cost else f", ${session.cost:.4f}"
    return (
        f"**{plain(session.title or 'Untitled session')}** {code(session.id)}: {session.message_count} messages, "
        f"{session.input_tokens + session.output_tokens} tokens{cost}, model {code(session.model or 'default')}, "
        f"mode {code(session.mode)}, {session.state}"
    )


def _session(session: Session) -> dict[str, object]:
    """As the events have it: camelCase outside."""
    return {to_camel(name): value for name, value in asdict(session).items()}


def _message(message: Message) -> dict[str, object]:
    return {
        "id": message.id,
        "role": message.role,
        "content": message.content,
        "turnId": message.turn_id,
        "position": message.position,
        "toolCalls": [asdict(tool_call) for tool_call in message.tool_calls],
        "toolCallId": message.tool_call_id,
        "name": message.name,
        "reasoning": message.reasoning,
        "status": message.status,
        "finishReason": message.finish_reason,
        "incomplete": message.incomplete,
        "createdAt": message.created_at,
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
