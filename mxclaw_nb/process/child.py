"""Our side of one run: the pipes to the launcher and from the child, what came out of them, and when it is over.

We only read. We wait for the launcher's word, never for the end of the output, which something left behind may hold
open.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from .launcher import BOOT, descendants
from .result import ProcessResult, StartFailed

GRACE_S = 0.3
RUN_ID = "MX_CLAW_RUN_ID"
"""A variable added to every child's environment, by which its descendants are found if its launcher is killed."""

_CHUNK = 16 * 1024  # one read; small, so that whoever listens to it does not hold up the loop
_DRAIN_S = 0.05
_LAUNCHER_MARGIN_S = 0.5  # after its own kill times the launcher is not waited for any longer
_REAP_S = 0.3


class Stream:
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


class Child:
    """One run: its descriptors, what the launcher said, and the times by which it must be over."""

    def __init__(self, output_cap: int, on_output: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._cap = output_cap
        self._on_output = on_output
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._out = self._err = Stream(-1)
        self._watched: set[int] = set()
        self._heard = bytearray()
        self._said: dict[str, list[str]] = {}
        self._run_id = secrets.token_hex(16)
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
            given = theirs[-1] if stdin is not None else -1
            options = [os.getpid(), round(timeout_s * 1000), round(grace_s * 1000), given]
            self._process = subprocess.Popen(
                [*_python(), "-c", BOOT, str(Path(__file__).parent), *map(str, options), cwd, *argv],
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[1] if merge_stderr else theirs[2],
                pass_fds=theirs[-1:] if stdin is not None else (),
                cwd="/",
                env={**env, RUN_ID: self._run_id},
                start_new_session=True,
            )
        except OSError as error:
            number = error.errno or errno.EIO
            raise StartFailed(_why("launch", number, argv, cwd), stage="launch", errno=number) from None
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
    def _open_stream(theirs: list[int]) -> Stream:
        ours, other = os.pipe()
        theirs.append(other)
        os.set_blocking(ours, False)
        return Stream(ours)

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
        """Read what is still in the pipes, for 50 ms at most, should something unkillable go on writing."""
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
            for pid in _belonging(command, self._run_id):
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
        if not said and not self._late:
            last = bytes(self._out.data[-500:] or self._err.data[-500:]).decode("utf-8", "replace").strip()
            message = f"{sys.executable} could not start the command. {last}".strip()
            raise StartFailed(message, stage="launch", errno=errno.EIO)
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


def _belonging(session: int, run_id: str) -> list[int]:
    """Processes of a session, and those that inherited the run's id; from /proc, none where there is no /proc."""
    found = []
    with suppress(OSError):
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                fields = Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[3]) == session or run_id.encode() in Path("/proc", entry, "environ").read_bytes():
                    found.append(int(entry))
    return found


def _python() -> list[str]:
    """Our interpreter, deaf to the environment and to everything installed; arguments pass byte for byte."""
    if not sys.executable:
        raise FileNotFoundError(errno.ENOENT, "this process does not know its Python interpreter")
    return [sys.executable, "-I", "-S", "-E", "-X", "utf8"]


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
