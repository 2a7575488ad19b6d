"""What a command of a terminal is refused for, and by which exit status."""

from __future__ import annotations

import pytest

from mxclaw_nb.commands import Call, Place, run_arguments
from mxclaw_nb.protocol import MxclawError
from tests.commands.conftest import Screen, Typed

REFUSED = {
    ("session", "show"): 1,
    ("session", "use", "s-x"): 2,
    ("session", "delete"): 2,
    ("session", "delete", "s-x", "--yes"): 1,
    ("session", "rename", "title"): 1,
    ("session", "rename"): 2,
    ("session", "fork"): 1,
    ("session", "search"): 2,
    ("session", "list", "--limit", "0"): 2,
    ("session", "nosuch"): 2,
    ("show",): 1,
    ("show", "t-nosuch"): 1,
    ("stop",): 1,
    ("stop", "s-nosuch"): 1,
    ("approve",): 2,
    ("approve", "a-nosuch"): 1,
    ("deny",): 2,
    ("deny", "a-nosuch", "because"): 1,
    ("nosuch",): 2,
    ("--nosuch",): 2,
    ("panel",): 2,
    ("set",): 2,
    ("set", "nosuch", "1"): 2,
    ("set", "max_iterations"): 2,
    ("set", "max_iterations", "-1"): 2,
    ("set", "max_iterations", "1.5"): 2,
    ("set", "max_iterations", "true"): 2,
    ("set", "idle_timeout_s", "nan"): 2,
    ("set", "connect_timeout_s", "inf"): 2,
    ("set", "default_mode", "bold"): 2,
    ("set", "deny", "{}"): 2,
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_a_refusal_has_its_status_and_one_line(words: tuple[str, ...], typed: Typed) -> None:
    async def scenario(call: Call, screen: Screen) -> None:
        outside = Call(call.app, screen, Place(call.place.workspace))
        with pytest.raises(MxclawError) as refused:
            await run_arguments(outside, list(words))
        assert refused.value.exit_status == REFUSED[words]
        assert "\n" not in str(refused.value) and str(refused.value).strip()

    typed(scenario)
