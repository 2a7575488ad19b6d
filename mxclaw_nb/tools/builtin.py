"""The built-in tools, in the order in which the model is told of them."""

from __future__ import annotations

from ..protocol import Tool
from .command import RunCommand
from .edit_file import EditFile
from .glob import Glob
from .grep import Grep
from .list_dir import ListDir
from .read_file import ReadFile
from .write_file import WriteFile


def builtin_tools() -> tuple[Tool, ...]:
    """A fresh set of the built-in tools; always in the same order, so that the prompt prefix stays the same."""
    return (ReadFile(), ListDir(), Glob(), Grep(), WriteFile(), EditFile(), RunCommand())
