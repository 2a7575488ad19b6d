"""``mxclaw`` that dies: ``killed.py N before|after WORDS...`` sends itself SIGKILL at its N-th commit to the store.

Its ``run --json`` allows whatever is asked. A program of the tests only; the product has no such switches.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator

from mxclaw_nb.__main__ import main
from mxclaw_nb.commands import agent, place
from mxclaw_nb.protocol import Answer, Event, PermissionRequested, TurnHandle, TurnView
from mxclaw_nb.storage.database import Connection


def arm(number: int, moment: str) -> None:
    """Die just before, or just after, the COMMIT of the ``number``-th write transaction of this process."""
    whole = Connection.transaction
    count = itertools.count(1)

    @contextlib.contextmanager
    def transaction(self: Connection, *, durable: bool) -> Iterator[sqlite3.Connection]:
        fatal = next(count) == number
        with whole(self, durable=durable) as raw:
            yield raw
            if fatal and moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
        if fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    Connection.transaction = transaction  # type: ignore[method-assign]


class Willing(agent._JsonScreen):  # type: ignore[misc]
    """The screen of ``run --json``, with somebody who says yes."""

    def __init__(self, call: place.Call) -> None:
        super().__init__(call)
        self.can_answer = True

    def open_turn(self, handle: TurnHandle) -> TurnView:
        view = super().open_turn(handle)
        show = view.on_event

        def on_event(event: Event) -> None:
            show(event)
            if isinstance(event, PermissionRequested):
                handle.answer(event.request_id, Answer("allow_once"))

        view.on_event = on_event
        return view


if __name__ == "__main__":
    agent._JsonScreen = Willing  # type: ignore[misc]
    arm(int(sys.argv[1]), sys.argv[2])
    main(sys.argv[3:])
