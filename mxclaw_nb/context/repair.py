"""Transcript repair: whatever was stored, the model is sent a transcript that its wire format allows.

The wire demands that every assistant tool call is followed by exactly one result with its id, that no result
stands alone, and that ids are unique. Crashes, cancelled turns and sloppy servers leave histories that break
this. ``build_view`` mends the view and leaves the rows alone. It is a pure function: a valid transcript comes
back unchanged (the same objects), twice is the same as once, and equal input gives equal bytes, so that the
prompt prefix stays cached; ids and texts it makes up are derived from what stands before them, never random.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from pydantic_core import from_json

from mxclaw_nb.protocol import Message, ToolCall, ToolCompleted, ToolStatus

INTERRUPTED = (
    "Tool execution was interrupted before a result was recorded. The call must be retried if it is still needed."
)
OUTCOME_UNKNOWN = " Its outcome is unknown: it may have taken effect. Check before you repeat it."
_UNSAFE_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_SAFE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# A message is encoded once for each object, so that a long attachment must not become a new object each round.
_rendered: WeakKeyDictionary[Message, Message] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class View:
    """What the model is sent, and one sentence for each thing that was left out of it."""

    messages: tuple[Message, ...]
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Call:
    """One occurrence of a tool call in the transcript, and the result that was found for it."""

    call: ToolCall
    turn_id: str
    result: Message | None = None


@dataclass(slots=True)
class _Entry:
    """A message that stays in the view, with the calls it makes."""

    message: Message
    calls: list[_Call] = field(default_factory=list)


def build_view(
    messages: Sequence[Message],
    *,
    finished: Mapping[tuple[str, str], ToolCompleted] | None = None,
    has_side_effects: Callable[[str], bool] = lambda _name: True,
) -> View:
    """The model's view of ``messages`` (a whole session or a window of it, in stored order).

    ``finished`` are the results of calls that completed although no tool message was written, by (turn id, call
    id): the real result is used instead of a stand-in. ``has_side_effects`` says of a tool's name whether an
    interrupted call may have changed something (unknown tools: assume so).
    """
    messages = [_render_attachments(message) if message.attachments else message for message in messages]
    if _is_valid(messages):
        return View(tuple(messages))
    entries, warnings = _match(messages)
    used: set[str] = set()
    view: list[Message] = []
    for entry in entries:
        if not entry.calls:
            view.append(entry.message)
            continue
        sent_calls = []
        results = []
        for index, occurrence in enumerate(entry.calls):
            sent = _sendable(occurrence.call, used)
            sent_calls.append(sent)
            results.append(_result_for(occurrence, sent, entry.message, index, finished or {}, has_side_effects))
        view.append(_with_calls(entry.message, tuple(sent_calls)))
        view.extend(results)
    return View(tuple(view), tuple(warnings))


def _is_valid(messages: Sequence[Message]) -> bool:
    """Whether nothing needs mending: the usual case, looked at once each round, so it must cost little."""
    seen: set[str] = set()
    awaited: tuple[ToolCall, ...] = ()
    answered = 0
    opening = True
    for message in messages:
        role = message.role
        if answered < len(awaited):
            if role != "tool" or message.tool_call_id != awaited[answered].id:
                return False
            answered += 1
        elif role == "assistant":
            awaited, answered, opening = message.tool_calls, 0, False
            if not awaited and not message.content.strip():
                return False
            if awaited and message.incomplete and message.finish_reason != "length":
                return False
            for call in awaited:
                if call.id in seen or not _is_sendable(call):
                    return False
                seen.add(call.id)
        elif role == "user":
            opening = False
        elif role == "tool" or not opening:
            return False
    return answered == len(awaited)


def _match(messages: Sequence[Message]) -> tuple[list[_Entry], list[str]]:
    """Pair results with calls, drop what has no place, and put system messages first."""
    system: list[_Entry] = []
    entries: list[_Entry] = []
    open_now: dict[str, list[_Call]] = {}  # calls since the last user message, by id, in order
    earlier: dict[str, list[_Call]] = {}  # calls before it
    warnings: list[str] = []
    for message in messages:
        if message.role == "tool":
            occurrence = _claim(open_now, earlier, message.tool_call_id or "")
            if occurrence is None:
                warnings.append(f"A result of {message.name or 'a tool'} that belongs to no open call was left out.")
            else:
                occurrence.result = message
        elif message.role == "assistant":
            message = _without_half_calls(message)
            if not message.content.strip() and not message.tool_calls:
                continue  # an empty reply: some providers refuse it, and it says nothing
            calls = [_Call(call, message.turn_id) for call in message.tool_calls]
            entries.append(_Entry(message, calls))
            for occurrence in calls:
                open_now.setdefault(occurrence.call.id, []).append(occurrence)
        elif message.role == "system":
            system.append(_Entry(message))
        else:
            entries.append(_Entry(message))
            for call_id, occurrences in open_now.items():
                earlier.setdefault(call_id, []).extend(occurrences)
            open_now = {}
    return system + entries, warnings


def _claim(open_now: dict[str, list[_Call]], earlier: dict[str, list[_Call]], call_id: str) -> _Call | None:
    """The call that a result belongs to: the first open one of this segment, else the latest open one before it."""
    candidates = open_now.get(call_id)
    if candidates is None:
        candidates = earlier.get(call_id, [])[::-1]
    return next((occurrence for occurrence in candidates if occurrence.result is None), None)


def _without_half_calls(message: Message) -> Message:
    """A reply that was broken off ran none of its calls; one that hit the output limit had them refused."""
    if message.incomplete and message.tool_calls and message.finish_reason != "length":
        return replace(message, tool_calls=())
    return message


def _sendable(call: ToolCall, used: set[str]) -> ToolCall:
    """The call with an id of its own, a name that the wire allows and arguments that are a JSON object."""
    call_id = base = call.id or "call"
    number = 1
    while call_id in used or not call_id:
        number += 1
        call_id = f"{base}-{number}"
    used.add(call_id)
    if call_id == call.id and _is_sendable(call):
        return call
    name = _UNSAFE_NAME.sub("_", call.name)[:64] or "unknown"
    arguments = call.arguments if _is_json_object(call.arguments) else "{}"
    return ToolCall(call_id, name, arguments)


def _is_sendable(call: ToolCall) -> bool:
    return bool(call.id) and bool(_SAFE_NAME.fullmatch(call.name)) and _is_json_object(call.arguments)


def _is_json_object(text: str) -> bool:
    try:
        value: Any = from_json(text)
    except ValueError:
        return False
    return isinstance(value, dict)


def _with_calls(message: Message, calls: tuple[ToolCall, ...]) -> Message:
    if all(new is old for new, old in zip(calls, message.tool_calls, strict=True)):
        return message
    return replace(message, tool_calls=calls)


def _result_for(
    occurrence: _Call,
    sent: ToolCall,
    message: Message,
    index: int,
    finished: Mapping[tuple[str, str], ToolCompleted],
    has_side_effects: Callable[[str], bool],
) -> Message:
    """The one result of a call: the stored one, the one its completed event holds, or a stand-in."""
    stored = occurrence.result
    if stored is not None:
        return stored if stored.tool_call_id == sent.id else replace(stored, tool_call_id=sent.id)
    completed = finished.get((occurrence.turn_id, occurrence.call.id))
    status: ToolStatus = "interrupted"
    if completed is not None:
        text, status = completed.result, completed.status
    else:
        text = INTERRUPTED + (OUTCOME_UNKNOWN if has_side_effects(occurrence.call.name) else "")
    return Message(
        role="tool",
        content=text,
        id=f"{message.id}/{index}",
        turn_id=message.turn_id,
        tool_call_id=sent.id,
        name=sent.name,
        status=status,
        created_at=message.created_at,
    )


def _render_attachments(message: Message) -> Message:
    """The user's words and what was mentioned in them as one text. The same object every time: see ``_rendered``."""
    if message.role != "user":
        return message
    found = _rendered.get(message)
    if found is None:
        parts = [message.content]
        parts += [f'<attachment name="{item.name}">\n{item.text}\n</attachment>' for item in message.attachments]
        found = replace(message, content="\n\n".join(part for part in parts if part), attachments=())
        _rendered[message] = found
    return found
