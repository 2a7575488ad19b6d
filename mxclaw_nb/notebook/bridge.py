"""Run a coroutine for a caller that cannot ``await``: ``%autoawait off``, ``run_cell_magic``, a line magic, a function.

What it costs. Without a running loop nothing but ``asyncio.run``. Inside a running loop (every cell of a kernel) the
coroutine runs on a private loop on a thread of its own, while the caller's thread waits: the cell is then busy, not
suspended, so no click on a widget can reach the kernel (questions are asked by ``input()`` on the caller's thread) and
objects that belong to the kernel's own loop cannot be used. Starting and ending the thread takes about 1 ms. The
thread ends with the coroutine; nothing stays behind.

``nest_asyncio`` would let the coroutine run inside the caller's loop instead. Applied to a kernel of today it loses the
cells queued behind the running one, and ``finally`` blocks do not run on interrupt. So it is for one case only: a
user's own asynchronous tool that is bound to the running loop and called from sync code (``run_sync(...,
nested=True)``, never on its own accord).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import queue
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, TypeVar

from .breaking import BlockingCall, CallBroken, is_ours
from .driver import Interrupt, drive
from .failures import TurnInterrupted

T = TypeVar("T")

_POLL_S = 0.05
_END_S = 10.0


class Caller:
    """The thread that waits for a bridged coroutine, and can do things for it meanwhile."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    async def run(self, function: Callable[[], T]) -> T:
        """Call a blocking function on the caller's thread and await its result. Cancelling ends the call."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        call = BlockingCall()

        def tell(what: Callable[[], object]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for it any more
                loop.call_soon_threadsafe(lambda: None if future.done() else what())

        def work() -> None:
            try:
                result = call.run(function)
            except CallBroken:
                tell(future.cancel)
            except KeyboardInterrupt:  # on a future it would tear down the loop
                tell(future.cancel)
                raise
            except BaseException as error:  # noqa: BLE001 - given to who asked
                tell(functools.partial(future.set_exception, error))
            else:
                tell(functools.partial(future.set_result, result))

        self._work.put(work)
        try:
            return await future
        finally:
            if not future.done() or future.cancelled():
                call.end()

    def serve(self, ended: threading.Event) -> None:
        """Do what is asked until the coroutine has ended. The waits are short: a signal must get through."""
        while not ended.is_set():
            try:
                work = self._work.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if work is not None:
                work()

    def wake(self) -> None:
        self._work.put(None)


_caller: contextvars.ContextVar[Caller | None] = contextvars.ContextVar("mxclaw_bridge_caller", default=None)


def current_caller() -> Caller | None:
    """The waiting thread, if this code runs behind the bridge."""
    return _caller.get()


def run_sync(coroutine: Coroutine[Any, Any, T], *, nested: bool = False) -> T:
    """Run a coroutine to its end and give its result; interrupts reach it as in ``driver.drive``.

    Raises what the coroutine raises, and TurnInterrupted. ``nested`` runs it inside the running loop, at the price
    that the module's docstring names.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return _outcome(asyncio.run(_interruptible(coroutine)))
    if nested:
        import nest_asyncio

        nest_asyncio.apply(loop)
        return _outcome(loop.run_until_complete(_interruptible(coroutine)))
    return _on_private_loop(coroutine)


async def _interruptible(coroutine: Coroutine[Any, Any, T]) -> list[T]:
    """The result in a list, or nothing if it was interrupted: a KeyboardInterrupt must not leave a task."""
    try:
        return [await drive(coroutine)]
    except TurnInterrupted:
        return []


def _outcome(result: list[T]) -> T:
    if not result:
        raise TurnInterrupted
    return result[0]


def _on_private_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    caller, ended, begun = Caller(), threading.Event(), threading.Event()
    outcome: list[T] = []
    errors: list[BaseException] = []
    interrupts: list[Interrupt] = []

    async def main() -> T:
        task = asyncio.ensure_future(coroutine)
        interrupts.append(Interrupt(asyncio.get_running_loop(), task))
        begun.set()
        return await task

    def work() -> None:
        _caller.set(caller)
        try:
            outcome.append(asyncio.run(main()))
        except BaseException as error:  # noqa: BLE001 - raised again on the caller's thread
            errors.append(error)
        finally:
            begun.set()
            ended.set()
            caller.wake()

    # The thread shares the caller's context, so that what it prints and displays lands in the caller's cell.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="mxclaw-bridge", daemon=True)
    thread.start()
    begun.wait()
    with _sigint_to(interrupts):
        while not ended.is_set():
            try:
                caller.serve(ended)
            except KeyboardInterrupt:
                continue  # the handler has passed it on; the coroutine ends by it
        thread.join(_END_S)
    if errors:
        if interrupts and interrupts[0].count:
            raise TurnInterrupted from None
        raise errors[0]
    return outcome[0]


@contextlib.contextmanager
def _sigint_to(interrupts: list[Interrupt]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or not interrupts:
        yield
        return

    def on_sigint(_number: int, _frame: FrameType | None) -> None:
        if not is_ours():
            interrupts[0]()
        raise KeyboardInterrupt  # ends an input() that the caller's thread may be in

    previous = signal.signal(signal.SIGINT, on_sigint)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler if previous is None else previous)
