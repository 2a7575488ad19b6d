"""Approvals: one row each, answered once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mxclaw_nb.protocol import Answer, Approval, Choice, NotFound, PermissionRequested, UsageError, now_iso
from mxclaw_nb.text import encodable

from .sessions import by_prefix

CANCELLED = "cancelled"
_COLUMNS = (
    "a.session, a.token, a.answer, a.note, a.answered_by, a.id, s.id, a.turn_id, a.call_id, a.name, a.summary,"
    " a.detail_kind, a.detail, a.reason, a.choices, a.created_at"
)
HoldsLease = Callable[[int, str], bool]
"""Whether the turn with this session number and token still runs."""


@dataclass(frozen=True, slots=True)
class StoredApproval:
    """An approval as it stands in its row, and whose it is."""

    session: int
    token: str
    approval: Approval

    def as_seen(self, holds: HoldsLease) -> Approval:
        """What waits for a turn that no longer runs counts as cancelled."""
        if self.approval.answer is not None or holds(self.session, self.token):
            return self.approval
        return replace(self.approval, answer=Answer("deny"), by=CANCELLED)


def open_request(connection: sqlite3.Connection, no: int, token: str, request: PermissionRequested) -> None:
    """Store a request that waits for its answer."""
    connection.execute(
        "INSERT INTO approvals (id, session, token, turn_id, call_id, name, summary, detail_kind, detail, reason,"
        " choices, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            encodable(request.request_id), no, token, encodable(request.turn_id), encodable(request.call_id),
            encodable(request.name), encodable(request.summary), request.detail.kind,
            encodable(request.detail.text), encodable(request.reason),
            json.dumps(request.choices), encodable(request.timestamp),
        ),
    )  # fmt: skip


def find(connection: sqlite3.Connection, text: str) -> StoredApproval:
    """By id, or by a prefix that only one has. Raises NotFound or UsageError."""
    text = encodable(text).strip()
    rows = _select(connection, "WHERE a.id = ?", (text,))
    if not rows:
        found = by_prefix(connection, "approvals", text, "p-")
        if len(found) > 1:
            raise UsageError(f"{text!r} fits several approvals ({', '.join(found[:5])}); give more of the id.")
        rows = _select(connection, "WHERE a.id = ?", (found[0],)) if found else []
    if not rows:
        raise NotFound(f"There is no approval {text[:80]!r}; `mxclaw approvals` lists those that wait.")
    return rows[0]


def waiting(connection: sqlite3.Connection, no: int | None, holds: HoldsLease) -> Sequence[Approval]:
    """Unanswered approvals of turns that still run, the oldest first; of one session, if it is given."""
    where = "JOIN leases l ON l.session = a.session AND l.token = a.token WHERE a.answer IS NULL"
    rows = _select(connection, where + (" AND a.session = ?" if no is not None else ""), () if no is None else (no,))
    return tuple(row.approval for row in rows if holds(row.session, row.token))


def answered(connection: sqlite3.Connection, no: int, token: str) -> Sequence[Approval]:
    """The approvals of a turn that have an answer."""
    rows = _select(connection, "WHERE a.session = ? AND a.token = ? AND a.answer IS NOT NULL", (no, token))
    return tuple(row.approval for row in rows)


def answer(connection: sqlite3.Connection, stored: StoredApproval, given: Answer, by: str) -> bool:
    """Compare and set: write the answer if there is none yet. Every try is noted in the audit; True if it counted.

    Raises UsageError for an answer that this approval does not offer.
    """
    if given.choice != "deny" and given.choice not in stored.approval.choices:
        offered = ", ".join(stored.approval.choices)
        raise UsageError(f"Approval {stored.approval.id} does not offer {given.choice!r}; it offers {offered}.")
    note, by, now = encodable(given.note), encodable(by), now_iso()
    won = connection.execute(
        "UPDATE approvals SET answer = ?, note = ?, answered_by = ?, answered_at = ? WHERE id = ? AND answer IS NULL",
        (given.choice, note, by, now, stored.approval.id),
    ).rowcount
    connection.execute(
        "INSERT INTO approval_audit (session, request_id, answer, note, answered_by, answered_at, accepted)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (stored.session, stored.approval.id, given.choice, note, by, now, won),
    )
    return bool(won)


def cancel_waiting(connection: sqlite3.Connection, no: int) -> None:
    """Deny everything in the session that still waits: its turn is over."""
    waiting_rows = _select(connection, "WHERE a.session = ? AND a.answer IS NULL", (no,))
    for row in waiting_rows:
        answer(connection, row, Answer("deny"), CANCELLED)


def _select(connection: sqlite3.Connection, where: str, parameters: tuple[object, ...]) -> list[StoredApproval]:
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM approvals a JOIN sessions s ON s.no = a.session {where} ORDER BY a.rowid", parameters
    )
    return [_stored(*row) for row in rows]


def _stored(session: int, token: str, choice: Choice | None, note: str, by: str | None, *row: str) -> StoredApproval:
    request_id, session_id, turn_id, call_id, name, summary, detail_kind, detail, reason, choices, created_at = row
    return StoredApproval(
        session,
        token,
        Approval(
            id=request_id,
            session_id=session_id,
            turn_id=turn_id,
            call_id=call_id,
            name=name,
            summary=summary,
            detail_kind=detail_kind,
            detail=detail,
            reason=reason,
            choices=tuple(json.loads(choices)),
            created_at=created_at,
            answer=None if choice is None else Answer(choice, note),
            by=by,
        ),
    )
