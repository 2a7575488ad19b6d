"""The built-in script: placeholder until the demonstration is written."""

from __future__ import annotations

from .script import ChatRequest, Speech, say


def quickstart(request: ChatRequest) -> Speech:
    """Say that this is a rehearsal."""
    return say("This is a rehearsal: a script replies, not a model.", pause_s=0.02)
