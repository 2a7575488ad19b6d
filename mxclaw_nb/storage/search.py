"""Full-text search over what was said."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from mxclaw_nb.protocol import SearchHit

from .text import excerpt, match_expression
from .transcript import holders


def search(connection: sqlite3.Connection, query: str, limit: int) -> Sequence[SearchHit]:
    """Messages of existing sessions that hold all words of the query, the newest first. Any text is a valid query."""
    expression = match_expression(query)
    hits: list[SearchHit] = []
    if expression is None or limit <= 0:
        return hits
    rows = connection.execute(
        "SELECT m.id, m.owner, m.position, m.role, m.content, m.created_at FROM message_index i"
        " JOIN messages m ON m.no = i.rowid WHERE message_index MATCH ? ORDER BY i.rowid DESC",
        (expression,),
    )
    for message_id, owner, position, role, content, created_at in rows:
        for session_id, title in holders(connection, owner, position):
            hits.append(SearchHit(session_id, title, message_id, role, excerpt(content, query), created_at))
            break
        if len(hits) >= limit:
            break
    return hits
