"""The bridge for callers that cannot await: with and without a running loop, with real signals."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
import time

import pytest

from mxclaw_nb.notebook.bridge import current_caller, run_sync
from mxclaw_nb.notebook.failures import TurnInterrupted
from mxclaw_nb.protocol import UsageError
from tests.notebook.test_driver import interrupt_after


async def answer() -> int:
    await asyncio.sleep(0.01)
    return 42


async def refuse() -> None:
    raise UsageError("no")


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
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(time.monotonic())

    def call() -> None:
        run_sync(work())

    before = signal.getsignal(signal.SIGINT)
    interrupt_after(0.2)
    began = time.monotonic()
    with pytest.raises(TurnInterrupted):
        in_a_running_loop(call) if running else call()
    assert ended and time.monotonic() - began < 0.7
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
    async def work() -> None:
        caller = current_caller()
        assert caller is not None
        await caller.run(lambda: time.sleep(30))

    interrupt_after(0.2)
    began = time.monotonic()
    with pytest.raises(TurnInterrupted):
        in_a_running_loop(lambda: run_sync(work()))
    assert time.monotonic() - began < 2
    assert our_threads() == []


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
