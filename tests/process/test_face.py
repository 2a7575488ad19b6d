"""The room's face."""

from __future__ import annotations

import mxclaw_nb.process


def test_the_public_names_are_these() -> None:
    assert sorted(mxclaw_nb.process.__all__) == [
        "GRACE_S",
        "MARKER",
        "ProcessResult",
        "StartFailed",
        "command_environment",
        "inside_agent_command",
        "run",
    ]
