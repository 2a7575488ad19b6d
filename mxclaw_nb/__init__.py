"""An agent that lives in your Jupyter or IPython kernel. ``%load_ext mxclaw_nb`` brings ``%mxclaw`` and ``%%agent``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

__all__ = ["__version__", "load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by ``%load_ext mxclaw_nb``. Loads nothing heavy; a second call changes nothing."""
    from mxclaw_nb.notebook import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Called by ``%unload_ext mxclaw_nb``. Leaves nothing behind: no magic, no hook, no thread, no widget."""
    from mxclaw_nb.notebook import unload

    unload(shell)
