"""Running a child to its end, from any running asyncio loop.

The child is started and killed by a launcher (launcher.py), a small process between us and it; our side of the run
(child.py) reads.
"""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .child import GRACE_S, Child
from .result import ProcessResult, StartFailed


async def run(
    argv: Sequence[str],
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    timeout_s: float,
    output_cap: int,
    on_output: Callable[[bytes], None] | None = None,
    stdin: bytes | None = None,
    merge_stderr: bool = True,
    grace_s: float = GRACE_S,
) -> ProcessResult:
    """Run a program in a session of its own and return when it and everything it started are gone.

    ``env`` is the child's whole environment, but for an id of the run. ``stdin`` is what it may read (nothing, if
    None); it need not read it.
    The child is stopped (TERM, ``grace_s``, KILL) after ``timeout_s`` seconds, at ``output_cap`` bytes of both
    streams together, when this coroutine is cancelled (which then takes less than 1 s), and when our process dies.
    ``on_output`` is called on the loop with each piece of standard output as it comes; if it raises, the child is
    stopped and the error comes out of here. Raises StartFailed.
    """
    if sys.platform == "win32":
        raise StartFailed("Running commands needs Linux or macOS.", stage="launch", errno=errno.ENOSYS)
    child = Child(output_cap, on_output or (lambda _piece: None))
    try:
        child.launch(list(argv), str(cwd), dict(env), stdin, timeout_s, grace_s, merge_stderr=merge_stderr)
        while not child.finished:
            await child.activity()
            child.listen()
            child.read()
            child.insist()
        child.drain()
        await child.reap()
        return child.result()
    except GeneratorExit:  # nothing may be awaited any more; the launcher finishes the work
        raise
    except BaseException:
        await _uninterrupted(child.end())
        raise
    finally:
        child.close()


async def _uninterrupted(work: Coroutine[None, None, None]) -> None:
    """Await bounded work to its end, whoever cancels us meanwhile (our caller raises CancelledError anyway)."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
