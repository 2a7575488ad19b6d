"""The session store: sessions, messages, events, leases, approvals and search in one SQLite file."""

from .leases import LeaseTiming
from .store import SqliteStore

__all__ = ["LeaseTiming", "SqliteStore"]
