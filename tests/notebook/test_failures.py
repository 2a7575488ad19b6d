"""The one line that a cell ends with."""

from __future__ import annotations

import pytest

from mxclaw_nb.notebook.failures import TurnInterrupted, below_its_record, in_one_line
from mxclaw_nb.protocol import ProviderNotReady, TurnFailed

WHY = "Provider mine refused (status 500):\nthe model is overloaded."


def lines(error: BaseException) -> list[str]:
    shown: list[str] = error._render_traceback_()  # type: ignore[attr-defined]
    return [line.replace("\x1b[31m", "").replace("\x1b[0m", "") for line in shown]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (below_its_record(TurnFailed("provider_error", WHY)), "failed: provider_error, see above."),
        (below_its_record(TurnFailed("max_iterations", WHY)), "failed: max_iterations, see above."),
        (below_its_record(TurnFailed("cancelled", WHY)), "interrupted: nothing of it runs any more."),
        (TurnInterrupted(), "interrupted: nothing of it runs any more."),
        (
            in_one_line(TurnFailed("provider_error", WHY)),
            "provider_error: Provider mine refused (status 500): the model is overloaded.",
        ),
        (in_one_line(ProviderNotReady("No model.")), "provider_not_ready: No model."),
    ],
)
def test_a_cell_ends_with_one_short_line(error: BaseException, line: str) -> None:
    assert lines(error) == [line]


def test_a_program_still_reads_the_whole_reason() -> None:
    error = below_its_record(TurnFailed("provider_error", WHY))
    assert str(error) == WHY
