"""The turn and the commands at a terminal: for terminal IPython, for the ``mxclaw`` command and for pipes."""

from .frontend import TerminalFrontend

__all__ = ["TerminalFrontend"]
