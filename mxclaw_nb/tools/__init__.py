"""The built-in tools: files, search, edit, command.

The names are loaded on first use, so that a child that only searches starts without what the others need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .builtin import builtin_tools
    from .command import RunCommand
    from .edit_file import EditFile
    from .glob import Glob
    from .grep import Grep
    from .list_dir import ListDir
    from .read_file import ReadFile
    from .write_file import WriteFile

_HOMES = {
    "EditFile": "edit_file",
    "Glob": "glob",
    "Grep": "grep",
    "ListDir": "list_dir",
    "ReadFile": "read_file",
    "RunCommand": "command",
    "WriteFile": "write_file",
    "builtin_tools": "builtin",
}

__all__ = ["EditFile", "Glob", "Grep", "ListDir", "ReadFile", "RunCommand", "WriteFile", "builtin_tools"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
