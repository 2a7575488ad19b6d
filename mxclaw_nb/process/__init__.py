"""Running a child: launcher, pipes, limits, group and straggler kill, reaping. The one way to run one."""

from .run import GRACE_S, ProcessResult, StartFailed, run

__all__ = ["GRACE_S", "ProcessResult", "StartFailed", "run"]
