"""What became of a child, and how it is said that it could not be started."""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol import ToolFailure


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
