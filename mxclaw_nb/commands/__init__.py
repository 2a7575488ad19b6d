"""The command tree behind ``%mxclaw ...`` and ``mxclaw ...``; ``%%agent`` and ``mxclaw run`` are one command of it."""

from .agent import AgentHelp, AgentOptions, parse_agent_line
from .completion import complete, complete_agent
from .place import Call, Place
from .root import run_arguments, run_line
from .turns import TurnOutcome, TurnRequest, run_turn

__all__ = [
    "AgentHelp",
    "AgentOptions",
    "Call",
    "Place",
    "TurnOutcome",
    "TurnRequest",
    "complete",
    "complete_agent",
    "parse_agent_line",
    "run_arguments",
    "run_line",
    "run_turn",
]
