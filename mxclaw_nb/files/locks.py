"""A lock between processes, and between the threads of one, that is never waited for without a bound."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from .errors import FileError
from .folder import require_regular

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


_FLAGS = (
    os.O_RDWR
    | os.O_CREAT
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.05
_threads: dict[str, threading.Lock] = {}
_threads_guard = threading.Lock()


@contextlib.contextmanager
def locked(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold the lock file ``path`` (made with mode 0600, never removed); not reentrant.

    It excludes other processes and other threads, and is given back when the process dies. Waits at most
    ``timeout_s`` seconds, blocking the calling thread. Raises FileError when the time is over, else OSError.
    """
    deadline = time.monotonic() + timeout_s
    absolute = os.path.realpath(path)
    with _threads_guard:
        between_threads = _threads.setdefault(absolute, threading.Lock())
    if not between_threads.acquire(timeout=max(timeout_s, 0)):
        raise _busy(path, timeout_s)
    try:
        descriptor = os.open(absolute, _FLAGS, 0o600)
        try:
            require_regular(os.fstat(descriptor), path)
            pause = _SHORTEST_PAUSE_S
            while not _try_lock(descriptor):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise _busy(path, timeout_s)
                time.sleep(min(pause, left))
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            yield
        finally:
            os.close(descriptor)  # this gives the lock back
    finally:
        between_threads.release()


def _busy(path: Path, timeout_s: float) -> FileError:
    return FileError(f"{path} is held by another process or thread; gave up after {timeout_s:g} s. Try again.")
