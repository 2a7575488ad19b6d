"""Blocking work beside the event loop, on a thread that ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_in_thread(
    work: Callable[[], T], *, on_cancel: Callable[[], None] | None = None, grace_s: float = 0.8
) -> T:
    """Run ``work`` on a thread of its own and give its result; the thread is gone afterwards.

    Unlike the loop's own pool it leaves no idle thread in the user's kernel. When the caller is cancelled,
    ``on_cancel`` is called (it must be quick: set an event, kill a child), the work gets ``grace_s`` seconds to end,
    and the cancellation goes on. Raises what ``work`` raises.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]
        else:
            done.set_exception(error)

    def run() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - handed to the caller, whatever it is
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(settle, result, failure)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="mxclaw-work", daemon=True)
    thread.start()
    try:
        await asyncio.wait({done})
    except asyncio.CancelledError:
        if on_cancel is not None:
            on_cancel()
        done.add_done_callback(_forget)
        await asyncio.wait({done}, timeout=grace_s)
        raise
    thread.join(0.1)
    return done.result()


def _forget(done: asyncio.Future[T]) -> None:
    if not done.cancelled():
        done.exception()  # nobody is left to be told
