"""Who holds a lease: the process, told apart from every other one, and the clock that all of a machine share."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

Clock = Callable[[], float]
ProcessState = Literal["running", "gone", "unknown"]


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of one boot of one machine.

    ``boot_id`` is empty where the system does not tell it: then nothing of another process can be compared.
    ``pid_namespace`` is empty where there are none. ``started`` is the start time in the system's own unit, empty
    if it cannot be read. ``program`` is for people.
    """

    host: str
    boot_id: str
    pid: int
    pid_namespace: str
    started: str
    program: str


def system_clock() -> float:
    """Seconds of the clock that all processes of this boot share. It counts sleep and is never set."""
    if sys.platform == "win32":
        return time.monotonic()
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def this_process() -> ProcessIdentity:
    """The identity of the calling process (of a forked child: its own)."""
    pid = os.getpid()
    return ProcessIdentity(
        host=socket.gethostname(),
        boot_id=_boot_id(),
        pid=pid,
        pid_namespace=_namespace("pid"),
        started=process_start(pid) or "",
        program=Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python",
    )


def state_of_process(pid: int, started: str) -> ProcessState:
    """Whether the process ``pid`` that started at ``started`` still runs, in our own pid namespace.

    A zombie is gone, and so is one whose pid now belongs to a process that started at another time.
    """
    if sys.platform == "win32":  # os.kill would end the process
        return "unknown"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except (OSError, OverflowError):
        pass  # it exists and belongs to somebody else
    now = process_start(pid)
    if now is None or not started:
        return "unknown"
    return "running" if now == started else "gone"


def process_start(pid: int) -> str | None:
    """When the process started, as a text to compare with; ``zombie`` if it has ended; None if it cannot be told."""
    if sys.platform == "darwin":
        return _darwin_process_start(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return start_from_stat(stat)


def start_from_stat(stat: str) -> str | None:
    """The start time (field 22) in the text of ``/proc/PID/stat``; the name in parentheses may hold anything."""
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 20:
        return None
    return "zombie" if fields[0] in "ZXx" else fields[19]


@lru_cache(maxsize=1)
def _boot_id() -> str:
    if sys.platform == "darwin":
        session = _darwin_sysctl("kern.bootsessionuuid")
        return session.rstrip(b"\0").decode("ascii", "replace") if session else _darwin_sysctl("kern.boottime").hex()
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    clocks = _namespace("time")  # containers may see their own offset of the clock
    return f"{boot}/{clocks}" if boot else ""


def _namespace(kind: str) -> str:
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return ""


def _darwin_sysctl(name: str) -> bytes:
    library = ctypes.CDLL(None, use_errno=True)
    size = ctypes.c_size_t(256)
    buffer = ctypes.create_string_buffer(size.value)
    if library.sysctlbyname(name.encode(), buffer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        return b""
    return buffer.raw[: size.value]


def _darwin_process_start(pid: int) -> str | None:
    """By ``proc_pidinfo(PROC_PIDTBSDINFO)``; the layout is ``struct proc_bsdinfo`` of <sys/proc_info.h>."""
    library = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(136)
    if library.proc_pidinfo(pid, 3, ctypes.c_uint64(0), buffer, 136) != 136:
        return None
    status = struct.unpack_from("=I", buffer, 4)[0]
    seconds, microseconds = struct.unpack_from("=QQ", buffer, 120)
    return "zombie" if status == 5 else f"{seconds}.{microseconds:06d}"
