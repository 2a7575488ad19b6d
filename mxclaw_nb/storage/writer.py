"""The one thread that writes to the database: jobs in order, and batches of events a little later."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeVar

from mxclaw_nb.protocol import StoreError

from .database import Connection, Database
from .workers import IDLE_S, JOIN_S, refuse_after_fork, run_into, start_thread

T = TypeVar("T")
Job = Callable[[Connection], T]
Batch = Callable[[], None]
BATCH_S = 0.045


@dataclass(frozen=True, slots=True)
class _Later:
    batch: Batch
    delay: float


@dataclass(frozen=True, slots=True)
class _End:
    work: Callable[[], None]


class Writer:
    """Runs jobs one after another on a thread that starts when needed and ends when idle.

    A job gets the write connection and makes its own transaction; its errors go to whoever waits for it, never to
    the thread. Thread-safe.
    """

    def __init__(self, database: Database, connection: Connection, *, idle_s: float = IDLE_S) -> None:
        self._database, self._connection, self._idle_s = database, connection, idle_s
        self._queue: SimpleQueue[Callable[[], None] | _Later | _End] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._pid = os.getpid()

    def submit(self, job: Job[T]) -> Future[T]:
        """Do ``job`` as soon as those before it are done. Raises StoreError after ``close``."""
        future: Future[T] = Future()
        self._put(lambda: run_into(future, lambda: job(self.connection())))
        return future

    def soon(self, batch: Batch, delay: float = BATCH_S) -> None:
        """Run ``batch`` once, ``delay`` seconds from now, on the writer's thread. Raises StoreError after ``close``."""
        self._put(_Later(batch, delay))

    def close(self, last: Batch) -> Future[None]:
        """Run ``last`` when everything submitted is done, close the connection and end the thread. Once only."""
        future: Future[None] = Future()

        def end() -> None:
            try:
                last()
            finally:
                self._connection.close()

        with self._lock:
            self._closed = True
            self._queue.put(_End(lambda: run_into(future, end)))
            self._ensure_thread()
        return future

    def join(self) -> None:
        """Wait, bounded, until the thread has ended (after ``close``)."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_S)

    def _put(self, item: Callable[[], None] | _Later) -> None:
        refuse_after_fork(self._pid)
        with self._lock:
            if self._closed:
                raise StoreError("The session store is closed; open it again.")
            self._ensure_thread()
            self._queue.put(item)

    def _ensure_thread(self) -> None:
        if self._thread is None:
            self._thread = start_thread(self._run, "mxclaw-store-writer")

    def connection(self) -> Connection:
        """On the writer's thread: the connection, a new one if the file was set aside or removed."""
        if not self._connection.is_current():
            self._connection = self._database.reopened(self._connection)
        return self._connection

    def _run(self) -> None:
        due: dict[Batch, float] = {}
        while True:
            now = time.monotonic()
            for batch in [batch for batch, when in due.items() if when <= now]:
                del due[batch]
                self._run_batch(batch)
            try:
                item = self._queue.get(timeout=max(0.0, min(due.values()) - now) if due else self._idle_s)
            except Empty:
                with self._lock:
                    if not due and self._queue.empty():
                        self._thread = None
                        return
                continue
            if isinstance(item, _End):
                item.work()
                return
            if isinstance(item, _Later):
                due.setdefault(item.batch, time.monotonic() + item.delay)
            else:
                item()

    def _run_batch(self, batch: Batch) -> None:
        future: Future[None] = Future()
        run_into(future, batch)
        error = future.exception()
        if error is not None:
            self._database.warn(f"Events could not be stored: {error}")
