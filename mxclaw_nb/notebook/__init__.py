"""The Jupyter front end: the magics, the turn's view, approvals. Light to import: the rest loads on first use."""

from .extension import agent_cell, agent_cell_sync, load, unload

__all__ = ["agent_cell", "agent_cell_sync", "load", "unload"]
