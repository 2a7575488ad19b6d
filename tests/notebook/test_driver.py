"""Interrupts while a coroutine is driven: with real signals, on the main thread of this process."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from mxclaw_nb.notebook.breaking import CallBroken
from mxclaw_nb.notebook.driver import call_blocking, drive
from mxclaw_nb.notebook.failures import TurnInterrupted, in_one_line
from mxclaw_nb.protocol import TurnFailed

senders: list[threading.Thread] = []


@pytest.fixture(autouse=True)
def _sigint_is_given_back() -> Iterator[None]:
    """Outside of what is driven an interrupt does nothing here: one that comes late must not end the tests."""

    def nothing(_number: int, _frame: object) -> None: ...

    before = signal.signal(signal.SIGINT, nothing)
    yield
    while senders:
        senders.pop().join(10)
    assert signal.getsignal(signal.SIGINT) is nothing
    signal.signal(signal.SIGINT, before)


class Begun(threading.Event):
    """Set by the work that is to be interrupted: from then on the signals are sent, really, from another thread.

    Nothing wakes the loop for them, as in a kernel.
    """

    def __init__(self, *, times: int = 1, every_s: float = 0.1) -> None:
        super().__init__()
        self.at = 0.0
        sender = threading.Thread(target=self._send, args=(times, every_s), daemon=True)
        sender.start()
        senders.append(sender)

    def _send(self, times: int, every_s: float) -> None:
        self.wait(10)
        for _ in range(times):
            time.sleep(every_s)
            self.at = self.at or time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)


def test_the_result_is_given() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 41

    assert asyncio.run(drive(work())) == 41


def test_an_error_is_raised_as_it_is() -> None:
    async def work() -> None:
        raise TurnFailed("max_iterations", "too many rounds")

    with pytest.raises(TurnFailed, match="too many rounds"):
        asyncio.run(drive(work()))


def test_an_interrupt_wakes_an_idle_coroutine_and_runs_its_finally() -> None:
    ended, begun = [], Begun()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            ended.append(time.monotonic())

    with pytest.raises(TurnInterrupted):
        asyncio.run(drive(work()))
    assert ended and ended[0] - begun.at < 0.5


@pytest.mark.parametrize("times", [2, 5])
def test_further_interrupts_do_not_cut_the_end_short(times: int) -> None:
    ended, begun = [], Begun(times=times)

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(20):
                try:
                    await asyncio.sleep(0.02)
                except asyncio.CancelledError:
                    continue  # as a careful turn does: a second interrupt changes nothing
            ended.append(True)

    with pytest.raises(TurnInterrupted):
        asyncio.run(drive(work()))
    assert ended


def test_a_coroutine_that_finishes_in_spite_of_an_interrupt_gives_its_result() -> None:
    begun = Begun()

    async def work() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "ended well"
        return "never"

    assert asyncio.run(drive(work())) == "ended well"


def test_an_error_on_the_way_out_of_an_interrupt_is_not_lost() -> None:
    begun = Begun()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise TurnFailed("lease_lost", "another process took over")

    with pytest.raises(TurnFailed, match="another process"):
        asyncio.run(drive(work()))


def test_a_cancellation_from_outside_stays_a_cancellation() -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def main() -> None:
        task = asyncio.ensure_future(drive(work()))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended


def test_the_handler_of_whoever_was_there_is_put_back() -> None:
    calls: list[int] = []

    def theirs(number: int, _frame: object) -> None:
        calls.append(number)

    before = signal.signal(signal.SIGINT, theirs)
    try:

        async def work() -> None:
            await asyncio.sleep(0.01)

        asyncio.run(drive(work()))
        assert signal.getsignal(signal.SIGINT) is theirs
        os.kill(os.getpid(), signal.SIGINT)
        assert calls == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_off_the_main_thread_it_leaves_signals_alone() -> None:
    results = []

    async def work() -> int:
        await asyncio.sleep(0.01)
        return 1

    thread = threading.Thread(target=lambda: results.append(asyncio.run(drive(work()))))
    thread.start()
    thread.join(5)
    assert results == [1]


def test_an_interrupt_ends_a_blocking_call_on_the_loop_itself() -> None:
    begun = Begun()

    def block() -> None:
        begun.set()
        time.sleep(20)

    async def work() -> None:
        call_blocking(block, limit_s=20)

    with pytest.raises(TurnInterrupted):
        asyncio.run(drive(work()))
    assert time.monotonic() - begun.at < 2


def test_a_blocking_call_that_nobody_answers_ends_at_its_limit_and_is_no_interrupt() -> None:
    async def work() -> str:
        with pytest.raises(CallBroken):
            call_blocking(lambda: time.sleep(10), limit_s=0.1)
        await asyncio.sleep(0.1)
        return "goes on"

    assert asyncio.run(drive(work())) == "goes on"


def test_an_interrupted_turn_and_a_failed_one_are_shown_in_one_line() -> None:
    interrupted = TurnInterrupted()
    assert isinstance(interrupted, KeyboardInterrupt)
    failed = in_one_line(TurnFailed("max_iterations", "The turn used\nits 8 rounds."))
    for error in (interrupted, failed):
        lines = error._render_traceback_()  # type: ignore[attr-defined]
        assert len(lines) == 1 and "\n" not in lines[0]
    assert "max_iterations" in failed._render_traceback_()[0]  # type: ignore[attr-defined]
