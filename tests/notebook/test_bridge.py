"""The bridge for callers that cannot await: with and without a running loop, with real signals."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from mxclaw_nb.notebook.bridge import current_caller, run_sync
from mxclaw_nb.notebook.failures import TurnInterrupted
from mxclaw_nb.protocol import UsageError
from tests.notebook.test_driver import Begun, senders


async def answer() -> int:
    await asyncio.sleep(0.01)
    return 42


async def refuse() -> None:
    raise UsageError("no")


@pytest.fixture(autouse=True)
def _a_late_interrupt_does_nothing() -> Iterator[None]:
    def nothing(_number: int, _frame: object) -> None: ...

    before = signal.signal(signal.SIGINT, nothing)
    yield
    while senders:
        senders.pop().join(10)
    assert signal.getsignal(signal.SIGINT) is nothing
    signal.signal(signal.SIGINT, before)


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("mxclaw")]


def in_a_running_loop(function: object) -> object:
    """Call a sync function as a cell does: on the main thread, inside the kernel's running loop."""

    async def cell() -> object:
        return function()  # type: ignore[operator]

    return asyncio.run(cell())


def test_without_a_running_loop_it_just_runs() -> None:
    assert run_sync(answer()) == 42
    with pytest.raises(UsageError):
        run_sync(refuse())


def test_inside_a_running_loop_it_runs_on_a_thread_that_ends() -> None:
    assert in_a_running_loop(lambda: run_sync(answer())) == 42
    with pytest.raises(UsageError):
        in_a_running_loop(lambda: run_sync(refuse()))
    assert our_threads() == []


def test_the_loops_own_tasks_do_not_run_meanwhile_and_go_on_after() -> None:
    ran: list[str] = []

    async def other() -> None:
        ran.append("other")

    async def cell() -> None:
        task = asyncio.ensure_future(other())
        run_sync(answer())
        assert ran == []
        await task

    asyncio.run(cell())
    assert ran == ["other"]


@pytest.mark.parametrize("running", [False, True])
def test_an_interrupt_ends_it_within_half_a_second(running: bool) -> None:
    ended, begun = [], Begun()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(time.monotonic())

    def call() -> None:
        run_sync(work())

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(TurnInterrupted):
        in_a_running_loop(call) if running else call()
    assert ended and ended[0] - begun.at < 0.5
    assert signal.getsignal(signal.SIGINT) is before
    assert our_threads() == []


def test_a_blocking_question_is_asked_on_the_callers_thread() -> None:
    threads = []

    def ask() -> str:
        threads.append(threading.current_thread())
        return "yes"

    async def work() -> str:
        caller = current_caller()
        assert caller is not None and threading.current_thread() is not threading.main_thread()
        return await caller.run(ask)

    assert in_a_running_loop(lambda: run_sync(work())) == "yes"
    assert threads == [threading.main_thread()]


def test_an_error_in_the_question_reaches_who_asked() -> None:
    def ask() -> str:
        raise EOFError

    async def work() -> str:
        caller = current_caller()
        assert caller is not None
        try:
            return await caller.run(ask)
        except EOFError:
            return "nobody"

    assert in_a_running_loop(lambda: run_sync(work())) == "nobody"


def test_an_interrupt_ends_a_question_and_the_work() -> None:
    begun = Begun()

    def block() -> None:
        begun.set()
        time.sleep(30)

    async def work() -> None:
        caller = current_caller()
        assert caller is not None
        await caller.run(block)

    with pytest.raises(TurnInterrupted):
        in_a_running_loop(lambda: run_sync(work()))
    assert time.monotonic() - begun.at < 2
    assert our_threads() == []


def test_a_question_that_is_answered_elsewhere_lets_the_caller_go() -> None:
    async def work() -> str:
        caller = current_caller()
        assert caller is not None
        asking = asyncio.ensure_future(caller.run(lambda: time.sleep(30)))
        await asyncio.sleep(0.2)
        asking.cancel()
        return await caller.run(lambda: "the next question")

    began = time.monotonic()
    assert in_a_running_loop(lambda: run_sync(work())) == "the next question"
    assert time.monotonic() - began < 2
    assert our_threads() == []


def test_a_question_that_ends_by_itself_just_then_is_no_interrupt() -> None:
    async def work() -> int:
        caller = current_caller()
        assert caller is not None
        for number in range(60):
            asking = asyncio.ensure_future(caller.run(lambda: time.sleep(0.002)))
            await asyncio.sleep(0.0015 + number * 0.00002)
            asking.cancel()
        return 7

    assert in_a_running_loop(lambda: run_sync(work())) == 7


def test_the_callers_context_goes_along() -> None:
    parent: contextvars.ContextVar[str] = contextvars.ContextVar("parent")

    async def work() -> str:
        return parent.get()

    def call() -> str:
        parent.set("this cell")
        return run_sync(work())

    assert in_a_running_loop(call) == "this cell"


def test_no_running_loop_means_no_caller() -> None:
    async def work() -> bool:
        return current_caller() is None

    assert run_sync(work())


def test_nested_runs_inside_the_loop_only_when_asked_to() -> None:
    """In a process of its own: nest_asyncio patches asyncio for good."""
    import subprocess
    import sys

    script = """
import asyncio
from mxclaw_nb.notebook.bridge import run_sync
async def where(): return asyncio.get_running_loop()
async def cell():
    mine = asyncio.get_running_loop()
    assert run_sync(where()) is not mine
    assert 'nest_asyncio' not in __import__('sys').modules
    assert run_sync(where(), nested=True) is mine
asyncio.run(cell())
print('fine')
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "fine\n", done.stderr
