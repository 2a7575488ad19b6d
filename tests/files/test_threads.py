"""Work beside the loop that leaves no thread behind."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from mxclaw_nb.files import run_in_thread


def test_the_result_comes_back_and_the_thread_is_gone() -> None:
    async def main() -> None:
        before = threading.active_count()
        assert await run_in_thread(lambda: threading.current_thread().name) == "mxclaw-work"
        assert threading.active_count() == before

    asyncio.run(main())


def test_an_error_of_the_work_is_raised_to_the_caller() -> None:
    def fail() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        asyncio.run(run_in_thread(fail))


def test_the_loop_turns_while_the_work_blocks() -> None:
    async def main() -> int:
        release, ticks = threading.Event(), 0
        task = asyncio.create_task(run_in_thread(lambda: release.wait(30)))
        while ticks < 20:
            await asyncio.sleep(0)
            ticks += 1
        release.set()
        assert await task
        return ticks

    assert asyncio.run(main()) == 20


def test_cancelling_tells_the_work_and_waits_for_its_end() -> None:
    async def main() -> None:
        started, stop, ended = asyncio.Event(), threading.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def work() -> None:
            loop.call_soon_threadsafe(started.set)
            assert stop.wait(30)
            ended.set()

        task = asyncio.create_task(run_in_thread(work, on_cancel=stop.set))
        await asyncio.wait_for(started.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(main())


def test_work_that_does_not_end_holds_a_cancel_for_the_grace_only() -> None:
    release = threading.Event()

    async def main() -> float:
        task = asyncio.create_task(run_in_thread(lambda: release.wait(30), grace_s=0.1))
        await asyncio.sleep(0)
        start = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - start

    try:
        assert 0.05 < asyncio.run(main()) < 2
    finally:
        release.set()
