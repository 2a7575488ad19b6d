"""Waiting that a cancellation cannot leave half-known, and that a stubborn tool cannot draw out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from mxclaw_nb.protocol import ToolFailure

T = TypeVar("T")
_log = logging.getLogger(__name__)
PATIENCE_S = 5.0
"""How long cancelled work may take to end; tools promise one second."""


async def finish(task: asyncio.Future[None]) -> None:
    """Await ``task`` to its end even while this task is being cancelled; then pass the cancellation on.

    For work that must not be left half-known, and that has a bound of its own. An error of the work comes first: who
    gets a CancelledError knows that the work was done.
    """
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            cancelled = True
        except BaseException:  # noqa: BLE001 - the task's own error, raised below
            break
    task.result()
    if cancelled:
        raise asyncio.CancelledError


async def cancelled_soon(tasks: Iterable[asyncio.Future[Any]], patience_s: float) -> bool:
    """Cancel the tasks and wait until they have ended, whatever cancels us meanwhile. False if they do not in time."""
    pending = {task for task in tasks if not task.done()}
    for task in pending:
        task.cancel()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while pending and (left := deadline - loop.time()) > 0:
        try:
            _, pending = await asyncio.wait(pending, timeout=left)
        except asyncio.CancelledError:
            pending = {task for task in pending if not task.done()}  # one cancellation is enough
    return not pending


async def in_time(work: Coroutine[Any, Any, T], what: str) -> T:
    """Await a tool's work. When we are cancelled, so is the work; it is waited for, but not longer than it may take.

    What it still returns then comes too late: the call's outcome is decided, so it is only logged. Raises ToolFailure
    if the work cancelled itself, which is not the end of the turn.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        if not await cancelled_soon([task], PATIENCE_S):
            _log.error("%s did not end within %g s of being cancelled and was left to itself", what, PATIENCE_S)
        task.add_done_callback(lambda late: _note_late(late, what))
        raise
    if task.cancelled():
        raise ToolFailure(f"{what} was cancelled from within. Its outcome is unknown: check before you repeat it.")
    return task.result()


def _note_late(task: asyncio.Future[Any], what: str) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        _log.info("%s failed after it was cancelled: %s", what, type(error).__name__)
    else:
        _log.info("%s returned after it was cancelled; the result was not used", what)
