"""The words of ``run``: what is wrong is refused before anything happens."""

from __future__ import annotations

import pytest

from mxclaw_nb.commands import Call, run_arguments
from mxclaw_nb.protocol import UsageError
from tests.commands.conftest import Screen, Typed

WRONG = [
    ("--no-such", "x"), ("--mode", "bold", "x"), ("--mode", "ASK", "x"), ("--mode",), ("--max-iterations", "0", "x"),
    ("--max-iterations", "1e3", "x"), ("--max-iterations", "1001", "x"), ("--max-iterations", "", "x"),
    ("--timeout", "0", "x"), ("--timeout", "nan", "x"), ("--timeout", "-1", "x"), ("--timeout", "soon", "x"),
    ("--timeout", "inf", "x"), ("--max-cost", "nan", "x"), ("--max-cost", "inf", "x"), ("--max-cost", "-1", "x"),
    ("--session", "s", "--new", "x"), ("--model", "", "x"), ("--model", "a b", "x"), ("--model", "x" * 5000, "x"),
    ("--model", "rehearsal/", "x"), ("--model", "rehearsl/quickstart", "x"), ("--model",), ("x", "y"),
    ("--json=1", "x"), ("--workspace", "", "x"), ("--workspace", "/nosuch", "x"), ("--workspace", "/dev/null", "x"),
    ("",), ("  ",), ("--to", "x", "y"), ("-m", "x"),
]  # fmt: skip


@pytest.mark.parametrize("words", WRONG, ids=lambda words: " ".join(words)[:40])
def test_wrong_words_are_refused_and_leave_no_session(words: tuple[str, ...], typed: Typed) -> None:
    async def scenario(call: Call, screen: Screen) -> None:
        with pytest.raises(UsageError) as refused:
            await run_arguments(call, ["run", "--model", "rehearsal/quickstart", *words])
        assert len(str(refused.value)) < 1000
        assert not await call.app.store.sessions()
        assert not screen.events and not screen.written

    typed(scenario)
