"""``mxclaw`` that dies: ``killed.py N before|after WORDS...`` sends itself SIGKILL at its N-th commit to the store.

A program of the tests only; the product has no such switch.
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


if __name__ == "__main__":
    arm(int(sys.argv[1]), sys.argv[2])
    main(sys.argv[3:])
