"""Whether this process was started by an agent's command, so that a model cannot answer its own approval."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .environment import MARKER
from .launcher import BOOT

_GENERATIONS = 256
_SIGN = BOOT.rpartition("#")[2].strip()


def inside_agent_command() -> bool:
    """True inside a command that an agent runs, also after ``env -i`` and in a daemon that the command started.

    The variable tells it at once. Else the chain of parents does: everything that a command starts has the command's
    launcher above it, because orphans are handed to the launcher (on Linux; elsewhere a daemon escapes this).
    """
    if os.environ.get(MARKER):
        return True
    pid = os.getppid()
    for _ in range(_GENERATIONS):
        if pid <= 0:
            return False
        parent, is_launcher = _inspect(pid)
        if is_launcher:
            return True
        pid = parent
    return False


def _inspect(pid: int) -> tuple[int, bool]:
    """The parent of a process (0 if it is gone), and whether the process is a launcher."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        parent = int(status.rpartition(b")")[2].split()[1])
        return parent, any(argument.endswith(_SIGN.encode()) for argument in arguments[:8])
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return 0, False
    except PermissionError:
        return 0, False
    try:
        answer = subprocess.run(
            ["ps", "-ww", "-o", "ppid=,command=", "-p", str(pid)],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return 0, False
    parent_text, _, command = answer.stdout.strip().partition(b" ")
    return (int(parent_text) if parent_text.isdigit() else 0), _SIGN.encode() in command
