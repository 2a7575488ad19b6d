"""What the model sees. Pure: stored messages in, the view out; the rows themselves are never touched."""

from .repair import View, build_view
from .system_prompt import system_prompt

__all__ = ["View", "build_view", "system_prompt"]
