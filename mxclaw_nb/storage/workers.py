"""Threads that work for event loops: started on first need, gone about a second after the last piece of work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from mxclaw_nb.protocol import StoreError

T = TypeVar("T")
IDLE_S = 1.0
JOIN_S = 5.0


def run_into(future: Future[T], work: Callable[[], T]) -> None:
    """Run ``work`` and put what comes of it, whatever it is, into ``future``: a worker outlives every error."""
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - it is delivered to whoever waits
        future.set_exception(error)
    else:
        future.set_result(result)


async def settled(future: Future[T]) -> T:
    """Await a worker's result on any event loop. Cancelling the wait does not stop the work."""
    await _woken_by(future)
    return future.result()


async def carried_through(future: Future[T]) -> T:
    """As ``settled``, but a cancel that comes meanwhile is delivered only when the work is done.

    So whoever is cancelled knows that the write has either happened or failed. The work must be bounded.
    """
    waiter = _woken_by(future)
    cancelled: asyncio.CancelledError | None = None
    while not waiter.done():
        try:
            await asyncio.wait({waiter})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()  # seen
        raise cancelled
    return future.result()


def _woken_by(future: Future[T]) -> asyncio.Future[None]:
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def wake(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
            loop.call_soon_threadsafe(finish)

    future.add_done_callback(wake)
    return waiter


def start_thread(target: Callable[[], None], name: str) -> threading.Thread:
    """Start a daemon thread. Raises StoreError where no thread can be started (limits, interpreter exit)."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise StoreError(
            f"The session store cannot start a thread ({error}); end some programs and try again."
        ) from error
    return thread


def refuse_after_fork(pid: int) -> None:
    """Raise StoreError in a forked child: SQLite's connections and our threads belong to the parent ``pid``."""
    if os.getpid() != pid:
        raise StoreError("The session store was opened before this process was forked; open it again in the child.")


class ThreadPool:
    """A few threads for reads. Thread-safe; usable from several event loops at once."""

    def __init__(self, name: str, size: int, *, idle_s: float = IDLE_S) -> None:
        self._name, self._size, self._idle_s = name, size, idle_s
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._outstanding = 0
        self._closed = False
        self._pid = os.getpid()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have one of the threads do ``work``. Raises StoreError after ``close`` or if no thread can be started."""
        refuse_after_fork(self._pid)
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise StoreError("The session store is closed; open it again.")
            self._outstanding += 1
            if self._outstanding > len(self._threads) and len(self._threads) < self._size:
                try:
                    self._threads.add(start_thread(self._run, self._name))
                except StoreError:
                    self._outstanding -= 1
                    raise
            self._queue.put(lambda: run_into(future, work))
        return future

    def close(self) -> None:
        """Finish what was submitted and end the threads. Blocks, bounded."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            thread.join(JOIN_S)

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            try:
                work = self._queue.get(timeout=self._idle_s)
            except Empty:
                with self._lock:
                    if self._queue.empty():
                        self._threads.discard(me)
                        return
                continue
            if work is None:
                with self._lock:
                    self._threads.discard(me)
                return
            work()
            with self._lock:
                self._outstanding -= 1
