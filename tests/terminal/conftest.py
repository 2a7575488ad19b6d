"""Terminals that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminal.terminal import Terminal

SCENES = Path(__file__).parent / "scenes.py"


@pytest.fixture
def play() -> Iterator[Callable[..., Terminal]]:
    """``play("scene", ...)`` runs one of ``scenes.py`` in a terminal."""
    terminals: list[Terminal] = []

    def start(scene: str, *arguments: str, **options: object) -> Terminal:
        terminal = Terminal.python(str(SCENES), scene, *arguments, **options)
        terminals.append(terminal)
        return terminal

    yield start
    for terminal in terminals:
        terminal.close()
