"""Running a child: launcher, pipes, limits, group and straggler kill, reaping. The one way to run one."""

from .ancestry import inside_agent_command
from .environment import MARKER, command_environment
from .run import GRACE_S, ProcessResult, StartFailed, run

__all__ = [
    "GRACE_S",
    "MARKER",
    "ProcessResult",
    "StartFailed",
    "command_environment",
    "inside_agent_command",
    "run",
]
