"""Run a coroutine so that the kernel's interrupt reaches it at once, and end it cleanly.

An interrupt does not wake a cell that is suspended in ``await``: the kernel only schedules a callback, and nothing
wakes the selector that would run it. So for as long as the coroutine runs, SIGINT is ours and cancels it, and a ticker
keeps the loop awake.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, TypeVar

from .breaking import BlockingCall, is_ours
from .failures import TurnInterrupted

T = TypeVar("T")

TICK_S = 0.05
"""How often the loop is woken, in seconds: an interrupt waits no longer than this."""
DRAIN_S = 10.0
"""How long a cancelled coroutine may take for its ``finally`` blocks, in seconds."""


class Interrupt:
    """What an interrupt does to the coroutine that is being driven."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        self.count = 0
        self._loop = loop
        self._task = task

    def __call__(self) -> None:
        """May be called on any thread, and in a signal handler."""
        self.count += 1
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is left to interrupt
            self._loop.call_soon_threadsafe(self._task.cancel)


@contextlib.contextmanager
def _owning_sigint(interrupt: Interrupt) -> Iterator[None]:
    """SIGINT is the interrupt's inside, and whoever's it was before outside; off the main thread nothing happens.

    In a blocking call KeyboardInterrupt is raised as well: ``input()`` holds the loop, and nothing else would end it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_sigint(_number: int, _frame: FrameType | None) -> None:
        if not is_ours():
            interrupt()
        if BlockingCall.current is not None:
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, on_sigint)
    try:
        yield
    finally:
        # None: the handler was not installed from Python, and cannot be put back by Python either.
        signal.signal(signal.SIGINT, signal.default_int_handler if previous is None else previous)


async def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await the coroutine under our own interrupt, and give its result.

    Raises TurnInterrupted if the coroutine ended by an interrupt. Any other cancellation of the caller reaches the
    coroutine and is raised as it is. However it ends, nothing of it runs any more and SIGINT is whose it was.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(coroutine)
    interrupt = Interrupt(loop, task)
    try:
        with _owning_sigint(interrupt):
            try:
                while not task.done():
                    await asyncio.wait({task}, timeout=TICK_S)
                return task.result()
            finally:
                await _drain(task)
    except (asyncio.CancelledError, KeyboardInterrupt):
        if interrupt.count or not _cancelled_from_outside():
            raise TurnInterrupted from None
        raise


def _cancelled_from_outside() -> bool:
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


async def _drain(task: asyncio.Task[Any]) -> None:
    """End a task that still runs, ``DRAIN_S`` at most, also while being cancelled or interrupted again."""
    deadline = asyncio.get_running_loop().time() + DRAIN_S
    if not task.done():
        task.cancel()
    while not task.done() and (left := deadline - asyncio.get_running_loop().time()) > 0:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=min(left, TICK_S))
    if task.done() and not task.cancelled():
        task.exception()  # looked at: it is either raised by the caller or hidden by the interrupt


def call_blocking(function: Callable[[], T], *, limit_s: float) -> T:
    """Call what blocks the loop's own thread (``input()``). An interrupt ends it at once, as a cancellation.

    Raises CallBroken after ``limit_s`` seconds. A KeyboardInterrupt must not leave a task: asyncio would let it tear
    down the loop, which is the kernel's.
    """
    try:
        return BlockingCall().run(function, limit_s=limit_s)
    except KeyboardInterrupt:
        raise asyncio.CancelledError from None
