"""The output never blocks its caller, loses nothing, and knows when nobody reads any more."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import threading
import time

from mxclaw_nb.terminal.output import Output


def test_everything_arrives_in_order() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as reader, os.fdopen(writing, "w", encoding="utf-8") as writer:
        output = Output(writer)
        pieces = [f"{number} 你好\n" for number in range(5000)]
        for piece in pieces:
            output.write(piece)
        received: list[str] = []
        thread = threading.Thread(target=lambda: received.extend(reader.readline() for _ in pieces))
        thread.start()
        output.settle()
        thread.join(10)
        assert received == pieces


def test_a_reader_that_does_not_read_does_not_stop_the_loop() -> None:
    reading, writing = os.pipe()
    big = "x" * 1_000_000

    async def scene() -> int:
        with os.fdopen(writing, "w") as writer:
            output = Output(writer)
            output.write(big)
            started = time.monotonic()
            await asyncio.sleep(0.05)  # the loop turns
            assert time.monotonic() - started < 1
            drained = asyncio.ensure_future(output.drain())
            done, _ = await asyncio.wait({drained}, timeout=0.05)
            assert not done
            received = await asyncio.to_thread(_read, reading, len(big))
            await asyncio.wait_for(drained, 10)
            return received

    assert asyncio.run(scene()) == len(big)
    os.close(reading)


def _read(descriptor: int, size: int) -> int:
    received = 0
    while received < size:
        received += len(os.read(descriptor, 65536))
    return received


def test_a_closed_reader_is_told_once_and_the_rest_is_dropped() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    told: list[int] = []
    with os.fdopen(writing, "w") as writer:
        output = Output(writer, on_broken=lambda: told.append(1))
        output.write("lost")
        output.settle()
        output.write("lost too")
        output.settle()
        assert output.broken
        assert told == [1]


def test_the_thread_ends_by_itself() -> None:
    stream = io.StringIO()
    output = Output(stream)
    output.write("hello")
    output.settle()
    deadline = time.monotonic() + 5
    while any(thread.name == "mxclaw-terminal-output" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    output.write(" again")
    output.settle()
    assert stream.getvalue() == "hello again"


def test_a_program_that_drains_loses_nothing() -> None:
    script = (
        "import asyncio; from mxclaw_nb.terminal import TerminalFrontend\n"
        "f = TerminalFrontend()\n"
        "for i in range(200_000): f.write(f'{i}\\n')\n"
        "asyncio.run(f.drain())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    received, _ = process.communicate(timeout=60)
    assert received.splitlines()[-1] == b"199999"
    assert process.returncode == 0


def test_patience_has_an_end() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as writer:
        output = Output(writer)
        output.write("x" * 1_000_000)
        started = time.monotonic()
        asyncio.run(output.drain(0.2))
        assert time.monotonic() - started < 5
        os.close(reading)  # sets the thread free
        output.settle()
        assert output.broken
