"""The verdict on a call: one pure function from what a call would do to allow, ask, deny or blocked."""

from .floor import disaster
from .verdict import decide

__all__ = ["decide", "disaster"]
