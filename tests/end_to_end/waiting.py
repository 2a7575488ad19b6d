"""``mxclaw`` whose ``run --json`` waits for answers from other processes, as one at a terminal waits.

A program of the tests only: without a terminal the product takes an ask for a denial.
"""

from __future__ import annotations

from mxclaw_nb.__main__ import main
from mxclaw_nb.commands import agent, place


class Asking(agent._JsonScreen):  # type: ignore[misc]
    """The screen of ``run --json``, with somebody who can answer."""

    def __init__(self, call: place.Call) -> None:
        super().__init__(call)
        self.can_answer = True


if __name__ == "__main__":
    agent._JsonScreen = Asking  # type: ignore[misc]
    main()
