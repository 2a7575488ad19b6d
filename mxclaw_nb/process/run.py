"""Running a child to its end, from any running asyncio loop: pipes, limits, cancellation, reaping.

The child is started and killed by a launcher (launcher.py), a small process between us and it. Our side only reads:
it waits for the launcher's word, never for the end of the output, which something left behind may hold open.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..protocol import ToolFailure
from .launcher import BOOT, descendants

GRACE_S = 0.3
_CHUNK = 16 * 1024  # one read; small, so that whoever listens to it does not hold up the loop
_DRAIN_S = 0.1
_LAUNCHER_MARGIN_S = 0.5  # after its own kill times the launcher is not waited for any longer
_REAP_S = 0.3


class StartFailed(ToolFailure):
    """The child could not be started. ``stage`` is launch, fork, prepare, cwd or exec; ``errno`` the reason."""

    def __init__(self, message: str, *, stage: str, errno: int) -> None:
        super().__init__(message)
        self.stage = stage
        self.errno = errno


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """What became of a child.

    ``output`` holds standard output (and standard error, unless that was kept apart) up to the cap. Exactly one of
    ``exit_code`` and ``signal`` is set, or none if the launcher itself was killed (``launcher_lost``).
    ``timed_out`` and ``capped`` say which limit stopped it. ``stragglers`` are the names of processes that outlived
    the child and were killed, at most 20 of ``straggler_count``; ``survivors`` those that could not be killed.
    """

    output: bytes
    stderr: bytes
    exit_code: int | None
    signal: int | None
    timed_out: bool
    capped: bool
    stragglers: tuple[str, ...]
    straggler_count: int
    survivors: tuple[str, ...]
    launcher_lost: bool
    duration_s: float
    total_bytes: int


async def run(
    argv: Sequence[str],
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    timeout_s: float,
    output_cap: int,
    on_output: Callable[[bytes], None] | None = None,
    stdin: bytes | None = None,
    merge_stderr: bool = True,
    grace_s: float = GRACE_S,
) -> ProcessResult:
    """Run a program in a session of its own and return when it and everything it started are gone.

    ``env`` is the child's whole environment. ``stdin`` is what it may read (nothing, if None); it need not read it.
    The child is stopped (TERM, ``grace_s``, KILL) after ``timeout_s`` seconds, at ``output_cap`` bytes of both
    streams together, when this coroutine is cancelled (which then takes less than 1 s), and when our process dies.
    ``on_output`` is called on the loop with each piece of standard output as it comes; if it raises, the child is
    stopped and the error comes out of here. Raises StartFailed.
    """
    if sys.platform == "win32":
        raise StartFailed("Running commands needs Linux or macOS.", stage="launch", errno=errno.ENOSYS)
    child = _Child(output_cap, on_output or (lambda _piece: None))
    try:
        child.launch(list(argv), str(cwd), dict(env), stdin, timeout_s, grace_s, merge_stderr=merge_stderr)
        while not child.finished:
            await child.activity()
            child.listen()
            child.read()
            child.insist()
        child.drain()
        await child.reap()
        return child.result()
    except GeneratorExit:  # nothing may be awaited any more; the launcher finishes the work
        raise
    except BaseException:
        await _uninterrupted(child.end())
        raise
    finally:
        child.close()


async def _uninterrupted(work: Coroutine[None, None, None]) -> None:
    """Await bounded work to its end, whoever cancels us meanwhile (our caller raises CancelledError anyway)."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})


class _Stream:
    """The reading end of an output pipe, and what came out of it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.data = bytearray()
        self.ended = False

    def take(self, size: int) -> bytes:
        """At most ``size`` bytes of what is there now; notes the end of the stream."""
        try:
            data = os.read(self.descriptor, size)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        self.ended = not data
        return data


class _Child:
    """One run: its descriptors, what the launcher said, and the times by which it must be over."""

    def __init__(self, output_cap: int, on_output: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._cap = output_cap
        self._on_output = on_output
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._out = self._err = _Stream(-1)
        self._watched: set[int] = set()
        self._heard = bytearray()
        self._said: dict[str, list[str]] = {}
        self._started = self._ended = time.monotonic()
        self._give_up = self._started
        self._grace_s = GRACE_S
        self._total = 0
        self._capped = self._stopping = self._forced = self._late = False
        self.finished = False

    def launch(
        self,
        argv: list[str],
        cwd: str,
        env: dict[str, str],
        stdin: bytes | None,
        timeout_s: float,
        grace_s: float,
        *,
        merge_stderr: bool,
    ) -> None:
        """Start the launcher. Takes a few milliseconds, most of them in another process."""
        theirs: list[int] = []
        try:
            self._control, other = socket.socketpair()
            theirs.append(other.detach())
            self._control.setblocking(False)
            self._out = self._open_stream(theirs)
            self._err = self._out if merge_stderr else self._open_stream(theirs)
            if stdin is not None:
                theirs.append(_readable(stdin))
            options = [
                os.getpid(),
                round(timeout_s * 1000),
                round(grace_s * 1000),
                theirs[-1] if stdin is not None else -1,
            ]
            self._process = subprocess.Popen(
                [
                    _interpreter(),
                    "-I",
                    "-S",
                    "-E",
                    "-c",
                    BOOT,
                    str(Path(__file__).parent),
                    *map(str, options),
                    cwd,
                    *argv,
                ],
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[1] if merge_stderr else theirs[2],
                pass_fds=theirs[-1:] if stdin is not None else (),
                cwd="/",
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            raise StartFailed(
                _why("launch", error.errno or 0, argv, cwd), stage="launch", errno=error.errno or 0
            ) from None
        except ValueError:
            message = "The command holds a NUL or a character that cannot be encoded; remove it."
            raise StartFailed(message, stage="launch", errno=errno.EINVAL) from None
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._argv, self._cwd, self._grace_s = argv, cwd, grace_s
        self._give_up = time.monotonic() + timeout_s + grace_s + _LAUNCHER_MARGIN_S + 1.0
        for watched in {self._control.fileno(), self._out.descriptor, self._err.descriptor}:
            self._loop.add_reader(watched, self._event.set)
            self._watched.add(watched)

    @staticmethod
    def _open_stream(theirs: list[int]) -> _Stream:
        ours, other = os.pipe()
        theirs.append(other)
        os.set_blocking(ours, False)
        return _Stream(ours)

    async def activity(self) -> None:
        """Until there is something to read, or the launcher has had its time."""
        timer = self._loop.call_later(max(self._give_up - time.monotonic(), 0), self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()
        self._event.clear()

    def listen(self) -> None:
        """Read what the launcher says. Its end of file is the end of the run."""
        if self._control is None or self.finished:
            return
        try:
            data = self._control.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.finished = True
            self._ended = time.monotonic()
            self._unwatch(self._control.fileno())
        self._heard += data
        *lines, rest = bytes(self._heard).split(b"\n")
        self._heard = bytearray(rest)
        for line in lines:
            word, _, value = line.decode("utf-8", "replace").partition(" ")
            self._said.setdefault(word, []).append(value)

    def read(self) -> bool:
        """Read a bounded piece of each stream; at the cap, ask for the end. False if there was nothing."""
        something = False
        for stream in {id(stream): stream for stream in (self._out, self._err)}.values():
            if stream.ended or self._capped:
                continue
            room = self._cap - self._total
            piece = stream.take(min(_CHUNK, room + 1))
            if stream.ended:
                self._unwatch(stream.descriptor)
            if len(piece) > room:
                self._capped = True
                self._unwatch(self._out.descriptor)
                self._unwatch(self._err.descriptor)
                self.stop()
                piece = piece[:room]
            self._total += len(piece)
            stream.data += piece
            if piece:
                something = True
                if stream is self._out:
                    self._on_output(piece)
        return something

    def drain(self) -> None:
        """Read what is still in the pipes, for 0.1 s at most, should something unkillable go on writing."""
        deadline = time.monotonic() + _DRAIN_S
        while self.read() and time.monotonic() < deadline:
            pass

    def stop(self) -> None:
        """Ask the launcher to kill everything."""
        if self._stopping or self._control is None:
            return
        self._stopping = True
        self._give_up = min(self._give_up, time.monotonic() + self._grace_s + _LAUNCHER_MARGIN_S)
        with suppress(OSError):
            self._control.send(b"K", getattr(socket, "MSG_NOSIGNAL", 0))

    def insist(self) -> None:
        """Do the launcher's work when it is late (it was stopped, or starved) or was itself killed."""
        lost = self.finished and "done" not in self._said
        if self._forced or not (lost or time.monotonic() >= self._give_up):
            return
        self._forced = True
        self._late = not lost and not self._stopping
        self.finished = True
        self._ended = time.monotonic()
        if self._process is not None and not lost:
            for pid in descendants(self._process.pid):
                _signal(os.kill, pid)
            self._process.kill()
        command = self._command()
        if command:
            _signal(os.killpg, command)
            for pid in session_members(command):
                _signal(os.kill, pid)

    def _command(self) -> int:
        return int(self._said.get("started", ["0"])[0])

    async def end(self) -> None:
        """Stop it and wait until it is gone; bounded."""
        if self._process is None:
            return
        self.stop()
        self._unwatch(self._out.descriptor)
        self._unwatch(self._err.descriptor)
        while not self.finished:
            await self.activity()
            self.listen()
            self.insist()
        await self.reap()

    async def reap(self) -> None:
        """Collect the launcher, which has said its last word; what is late is left to ``close``."""
        deadline = time.monotonic() + _REAP_S
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.001)  # it is ending; not every system has an event for that

    def result(self) -> ProcessResult:
        """What became of the child. Raises StartFailed."""
        said = self._said
        if "failed" in said:
            number, _, stage = said["failed"][0].partition(" ")
            message = _why(stage, int(number), self._argv, self._cwd)
            raise StartFailed(message, stage=stage, errno=int(number))
        ends = [int(said[word][0]) if word in said else None for word in ("exited", "signalled")]
        return ProcessResult(
            output=bytes(self._out.data),
            stderr=b"" if self._err is self._out else bytes(self._err.data),
            exit_code=ends[0],
            signal=ends[1],
            timed_out="timeout" in said or self._late,
            capped=self._capped,
            stragglers=tuple(said.get("straggler", ())),
            straggler_count=int(said.get("stragglers", ["0"])[0]),
            survivors=tuple(said.get("survivor", ())),
            launcher_lost="done" not in said,
            duration_s=self._ended - self._started,
            total_bytes=self._total,
        )

    def close(self) -> None:
        """Let go of every descriptor; the launcher takes the closed socket for the order to kill."""
        for descriptor in tuple(self._watched):
            self._unwatch(descriptor)
        if self._control is not None:
            self._control.close()
        for descriptor in {self._out.descriptor, self._err.descriptor} - {-1}:
            os.close(descriptor)
        process = self._process
        if process is not None and process.poll() is None:
            threading.Thread(target=process.wait, name="mxclaw-reap", daemon=True).start()

    def _unwatch(self, descriptor: int) -> None:
        if descriptor in self._watched:
            self._watched.discard(descriptor)
            self._loop.remove_reader(descriptor)


def _signal(send: Callable[[int, int], None], target: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        send(target, signal.SIGKILL)


def session_members(session: int) -> list[int]:
    """Processes of a session, from /proc; none where there is no /proc."""
    members = []
    with suppress(OSError):
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                fields = Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[3]) == session:
                    members.append(int(entry))
    return members


def _interpreter() -> str:
    if not sys.executable:
        raise FileNotFoundError(errno.ENOENT, "this process does not know its Python interpreter")
    return sys.executable


def _readable(content: bytes) -> int:
    """A descriptor from which the content can be read: a nameless file, which no writer must feed."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("stdin")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        with open(descriptor, "wb", closefd=False) as writer:
            writer.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _why(stage: str, number: int, argv: Sequence[str], cwd: str) -> str:
    reason = os.strerror(number)
    if stage == "cwd":
        return f"The folder {cwd} cannot be entered: {reason}. Create it again, or choose another workspace."
    if number == errno.E2BIG:
        return "The command is too long for this system; write it to a file and run that."
    if stage == "exec":
        return f"The program {argv[0]} cannot be started: {reason}."
    return f"The command cannot be started: {reason}. Close what is not needed and try again."
