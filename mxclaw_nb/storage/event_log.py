"""Events on disk: runs of wire lines, and what follows from some of them (usage, finished calls)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from mxclaw_nb.protocol import (
    Event,
    MessageCompleted,
    MessageDelta,
    ReasoningDeltaEvent,
    ToolCompleted,
    ToolOutput,
    UsageEvent,
    event_from_json,
    event_to_json,
)
from mxclaw_nb.text import encodable

RUN_EVENTS, RUN_CHARACTERS = 256, 128 * 1024
PIECE_ROWS = 2_000


_DELTAS = frozenset({MessageDelta, ReasoningDeltaEvent, ToolOutput})
Run = tuple[int, int, bool, str]
"""A row's content: first and last number, whether it holds nothing but deltas (which may be dropped), the lines."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch, ready to be written: its runs, its events that are no deltas, and what its deltas belong to."""

    runs: list[Run] = field(default_factory=list)
    facts: list[Event] = field(default_factory=list)
    streamed: set[str] = field(default_factory=set)


def source_of_delta(event: Event) -> str | None:
    """The message or call that the event is a delta of; None if it is no delta."""
    if isinstance(event, MessageDelta | ReasoningDeltaEvent):
        return event.message_id
    return event.call_id if isinstance(event, ToolOutput) else None


def source_finished_by(event: Event) -> str | None:
    """The message or call whose deltas this event makes superfluous."""
    if isinstance(event, MessageCompleted):
        return event.message_id
    return event.call_id if isinstance(event, ToolCompleted) else None


def encode(events: Iterable[Event]) -> Encoded:
    """Encode events that are in order of their numbers: neighbouring deltas share a row, others have their own."""
    encoded = Encoded()
    lines: list[str] = []
    first = last = size = 0

    def end_run() -> None:
        nonlocal lines, size
        if lines:
            encoded.runs.append((first, last, True, "\n".join(lines)))
            lines, size = [], 0

    for event in events:
        line = event_to_json(event)
        source = source_of_delta(event) if type(event) in _DELTAS else None
        if source is None:
            end_run()
            encoded.runs.append((event.sequence, event.sequence, False, line))
            encoded.facts.append(event)
            continue
        encoded.streamed.add(source)
        if not lines:
            first = event.sequence
        last = event.sequence
        lines.append(line)
        size += len(line)
        if len(lines) >= RUN_EVENTS or size >= RUN_CHARACTERS:
            end_run()
    end_run()
    return encoded


def add(connection: sqlite3.Connection, no: int, encoded: Sequence[Run]) -> None:
    """Write runs of the session."""
    connection.executemany(
        "INSERT INTO events (session, first, last, deltas, body) VALUES (?, ?, ?, ?, ?)",
        [(no, *run) for run in encoded],
    )


def record(connection: sqlite3.Connection, no: int, event: Event, model: str | None) -> None:
    """What an event means beside being read: a row of the usage ledger, a finished call."""
    if isinstance(event, ToolCompleted):
        connection.execute(
            "INSERT OR REPLACE INTO finished_calls (session, turn_id, call_id, body) VALUES (?, ?, ?, ?)",
            (no, encodable(event.turn_id), encodable(event.call_id), event_to_json(event)),
        )
    elif isinstance(event, UsageEvent):
        added = connection.execute(
            "INSERT OR IGNORE INTO usage (session, sequence, turn_id, model, input_tokens, output_tokens,"
            " cached_tokens, cost, estimated, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                no, event.sequence, encodable(event.turn_id), model, event.input_tokens, event.output_tokens,
                event.cached_tokens, event.cost, event.estimated, encodable(event.timestamp),
            ),
        )  # fmt: skip
        if added.rowcount:
            connection.execute(
                "UPDATE sessions SET input_tokens = input_tokens + ?, output_tokens = output_tokens + ?,"
                " cached_tokens = cached_tokens + ?, cost = cost + ? WHERE no = ?",
                (event.input_tokens, event.output_tokens, event.cached_tokens, event.cost, no),
            )


def read(
    connection: sqlite3.Connection, no: int, *, after: int, limit: int, turn_id: str | None = None
) -> tuple[Event, ...]:
    """Events numbered greater than ``after``, in order; of one turn only, if it is given.

    What a newer version wrote and this one does not know is left out.
    """
    found: list[Event] = []
    for low, high in _ranges(connection, no, turn_id):
        rows = connection.execute(
            "SELECT body FROM events WHERE session = ? AND last > ? AND last < ? ORDER BY last",
            (no, max(after, low - 1), high),
        )
        for (body,) in rows:
            for line in body.split("\n"):
                if len(found) >= limit:
                    return tuple(found)
                try:
                    event = event_from_json(line)
                except ValidationError:
                    continue
                if event.sequence > after:
                    found.append(event)
    return tuple(found)


def _ranges(connection: sqlite3.Connection, no: int, turn_id: str | None) -> list[tuple[int, int]]:
    """Where a turn's numbers lie: from its first to that of the next turn."""
    if turn_id is None:
        return [(0, 2**63 - 1)]
    return connection.execute(
        "SELECT first_sequence, coalesce((SELECT min(n.first_sequence) FROM turns n"
        " WHERE n.session = t.session AND n.first_sequence > t.first_sequence), ?)"
        " FROM turns t WHERE session = ? AND turn_id = ? ORDER BY first_sequence",
        (2**63 - 1, no, encodable(turn_id)),
    ).fetchall()


def last_turn(connection: sqlite3.Connection, no: int) -> str | None:
    """The latest turn that has left an event."""
    row = connection.execute(
        "SELECT turn_id FROM turns t WHERE session = ? AND EXISTS (SELECT 1 FROM events e"
        " WHERE e.session = t.session AND e.last >= t.first_sequence) ORDER BY first_sequence DESC LIMIT 1",
        (no,),
    ).fetchone()
    return row[0] if row else None


def finished_calls(connection: sqlite3.Connection, no: int) -> dict[tuple[str, str], ToolCompleted]:
    """The tool.completed events, by turn and call, of calls without a tool message."""
    rows = connection.execute("SELECT turn_id, call_id, body FROM finished_calls WHERE session = ?", (no,))
    return {(turn_id, call_id): ToolCompleted.model_validate_json(body) for turn_id, call_id, body in rows}


def drop_deltas(connection: sqlite3.Connection, no: int, since: int, keep: frozenset[str]) -> None:
    """Drop the deltas from number ``since`` on, except those of the messages and calls in ``keep``."""
    if not keep:
        connection.execute("DELETE FROM events WHERE session = ? AND last >= ? AND deltas", (no, since))
        return
    rows = connection.execute("SELECT no, body FROM events WHERE session = ? AND last >= ? AND deltas", (no, since))
    for row, body in rows.fetchall():
        lines = body.split("\n")
        kept = [line for line in lines if source_of_delta(event_from_json(line)) in keep]
        if not kept:
            connection.execute("DELETE FROM events WHERE no = ?", (row,))
        elif len(kept) < len(lines):
            connection.execute("UPDATE events SET body = ? WHERE no = ?", ("\n".join(kept), row))


def remove(connection: sqlite3.Connection, no: int) -> int:
    """Delete a piece of the session's events; how many rows."""
    return connection.execute(
        "DELETE FROM events WHERE no IN (SELECT no FROM events WHERE session = ? LIMIT ?)", (no, PIECE_ROWS)
    ).rowcount
