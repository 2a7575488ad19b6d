"""Running a child: launcher, pipes, limits, group and straggler kill, reaping. The one way to run one."""

from .ancestry import inside_agent_command
from .child import GRACE_S
from .environment import MARKER, command_environment
from .result import ProcessResult, StartFailed
from .run import run

__all__ = [
    "GRACE_S",
    "MARKER",
    "ProcessResult",
    "StartFailed",
    "command_environment",
    "inside_agent_command",
    "run",
]
