"""The verdict on a call: one pure function from what a call would do to allow, ask, deny or blocked."""

from .floor import disaster
from .verdict import decide, rule_problem

__all__ = ["decide", "disaster", "rule_problem"]
