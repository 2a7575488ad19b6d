"""Read connections, lent to one thread at a time and kept for the next."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from .database import Connection, Database
from .workers import ThreadPool

T = TypeVar("T")
THREADS = 3


class Readers:
    """Reads on threads of their own. They never wait for the writer (with WAL), nor it for them."""

    def __init__(self, database: Database, *, idle_s: float) -> None:
        self._database = database
        self._pool = ThreadPool("mxclaw-store-reader", THREADS, idle_s=idle_s)
        self._lock = threading.Lock()
        self._free: list[Connection] = []
        self._closed = False

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Run ``work`` in a read transaction on one of the threads."""

        def read() -> T:
            with self.lent() as connection, connection.snapshot() as snapshot:
                return work(snapshot)

        return self._pool.submit(read)

    @contextlib.contextmanager
    def lent(self) -> Iterator[Connection]:
        """A connection for the calling thread, as long as the context lasts. Raises StoreError."""
        with self._lock:
            connection = self._free.pop() if self._free else None
        if connection is not None and not connection.is_current():
            connection.close()
            connection = None
        connection = connection or self._database.reader()
        try:
            yield connection
        finally:
            with self._lock:
                keep = not self._closed and len(self._free) < THREADS + 1
                if keep:
                    self._free.append(connection)
            if not keep:
                connection.close()

    def close(self) -> None:
        """End the threads and close the connections. Blocks, bounded."""
        self._pool.close()
        with self._lock:
            self._closed = True
            connections, self._free = self._free, []
        for connection in connections:
            connection.close()
