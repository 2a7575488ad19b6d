"""``mxclaw`` and ``python -m mxclaw_nb``: the command tree in a terminal or a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from mxclaw_nb import __version__
from mxclaw_nb.protocol import EXIT_BUSY, EXIT_CANCELLED, EXIT_FAILED, EXIT_TERMINATED, MxclawError
from mxclaw_nb.text import plain

_PATIENCE_S = 1.0
"""How long a reader that does not read is waited for once the command was interrupted or failed."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit by its status. Errors go to standard error as ``code: sentence``."""
    _open_standard_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        print(f"mxclaw {__version__}")
        return
    terminated: list[int] = []
    try:
        status = asyncio.run(_run(words, terminated))
    except MxclawError as error:
        _complain(error.code, str(error))
        status = error.exit_status
        if status == EXIT_BUSY and words[:1] != ["run"]:
            status = EXIT_FAILED  # only a turn tells busy from failed
    except (KeyboardInterrupt, asyncio.CancelledError):
        status = EXIT_CANCELLED
    except BrokenPipeError:
        status = EXIT_FAILED
    except Exception as error:  # noqa: BLE001 - a bug of ours is a sentence on the screen and a traceback in the log
        _complain("error", f"Unexpected {type(error).__name__}: {error}. This is a bug in mxclaw; see its log.")
        status = EXIT_FAILED
    if terminated:
        status = EXIT_TERMINATED
    _leave(status)


def _open_standard_streams() -> None:
    """Give standard streams that were closed a null device: else the next file opened, the store, takes their place."""
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)  # gets the lowest free number: this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _complain(code: str, sentence: str) -> None:
    """One line on standard error, if anybody listens there."""
    line = " ".join(plain(f"{code}: {sentence}").split())
    encoding = sys.stderr.encoding or "utf-8"
    with contextlib.suppress(OSError, ValueError):
        print(line.encode(encoding, "replace").decode(encoding), file=sys.stderr)


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
    place = Place(workspace=Path(os.environ.get("PWD", "")) if _is_lost() else Path.cwd())
    app, frontend = current_app(), TerminalFrontend()
    try:
        status = await run_arguments(Call(app, frontend, place), words)
        await frontend.drain()
        return status
    except (MxclawError, OSError):
        raise
    except Exception:
        logging.getLogger("mxclaw_nb").exception("mxclaw %s failed", words[:1])
        raise
    finally:
        await app.aclose()
        await frontend.drain(_PATIENCE_S)


def _is_lost() -> bool:
    """Whether the current folder was removed under us: then only what needs no folder works."""
    try:
        os.getcwd()
    except OSError:
        return True
    return False


def _leave(status: int) -> None:
    """Exit without a complaint about a reader that has gone away."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


if __name__ == "__main__":
    main()
