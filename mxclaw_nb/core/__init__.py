"""The query loop: ``AgentCore`` and one tool call's life. Knows no screen, no SQL, no wire."""

from .agent import AgentCore, TurnStream
from .options import Services, TurnOptions

__all__ = ["AgentCore", "Services", "TurnOptions", "TurnStream"]
