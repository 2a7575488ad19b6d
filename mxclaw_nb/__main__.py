"""``mxclaw`` and ``python -m mxclaw_nb``: the command tree in a terminal or a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from mxclaw_nb import __version__
from mxclaw_nb.protocol import EXIT_CANCELLED, EXIT_TERMINATED, MxclawError

_PATIENCE_S = 1.0
"""How long a reader that does not read is waited for once the command was interrupted or failed."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit by its status. Errors go to standard error as ``code: sentence``."""
    _fill_standard_descriptors()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        print(f"mxclaw {__version__}")
        return
    terminated: list[int] = []
    try:
        status = asyncio.run(_run(words, terminated))
    except MxclawError as error:
        print(f"{error.code}: {error}", file=sys.stderr or open(os.devnull, "w"))  # noqa: SIM115  # we are leaving
        status = error.exit_status
    except (KeyboardInterrupt, asyncio.CancelledError):
        status = EXIT_TERMINATED if terminated else EXIT_CANCELLED
    except BrokenPipeError:
        status = 1
    if terminated:
        status = EXIT_TERMINATED
    _leave(status)


async def _run(words: list[str], terminated: list[int]) -> int:
    from mxclaw_nb.app import current_app
    from mxclaw_nb.commands import Call, Place, run_arguments
    from mxclaw_nb.terminal import TerminalFrontend

    task = asyncio.current_task()
    assert task is not None

    def terminate() -> None:
        terminated.append(signal.SIGTERM)
        task.cancel()

    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):  # Windows: SIGTERM ends the process at once there
        loop.add_signal_handler(signal.SIGTERM, terminate)
        loop.add_signal_handler(signal.SIGHUP, terminate)
    app, frontend = current_app(), TerminalFrontend()
    try:
        status = await run_arguments(Call(app, frontend, Place(workspace=Path.cwd())), words)
        await frontend.drain()
        return status
    finally:
        await app.aclose()
        await frontend.drain(_PATIENCE_S)


def _fill_standard_descriptors() -> None:
    """Started with one of them closed, the next file that is opened would become our standard output or error."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _leave(status: int) -> None:
    """Exit without a complaint about a reader that has gone away."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


if __name__ == "__main__":
    main()
