"""Which notebook this kernel belongs to: the key under which its session is found again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class NotebookPlace:
    """``key`` is None where a session lives as long as the kernel and is not looked for later."""

    key: str | None
    title: str
    workspace: Path


def locate(names: Mapping[str, object], environ: Mapping[str, str], *, headless: bool, cwd: Path) -> NotebookPlace:
    """Find the notebook: Jupyter Server names it in ``JPY_SESSION_NAME``, VS Code in a variable among ``names``.

    A headless run (nbconvert, papermill) starts afresh each time, and may have inherited the variable of the notebook
    that it was started from.
    """
    vscode = names.get("__vsc_ipynb_file__")
    path = vscode if isinstance(vscode, str) and vscode else environ.get("JPY_SESSION_NAME", "")
    if headless or not path:
        return NotebookPlace(None, "", cwd)
    folder = Path(path).parent
    known = folder.is_absolute() and folder.is_dir()
    return NotebookPlace(os.path.normpath(path), Path(path).name, folder if known else cwd)
