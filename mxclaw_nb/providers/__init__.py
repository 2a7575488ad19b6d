"""Models: the configuration, the catalogue, OpenAI-compatible streaming, and the rehearsal."""

from .rehearsal import REHEARSAL_MODEL, REHEARSAL_PROVIDER, RehearsalServer, quickstart

__all__ = [
    "REHEARSAL_MODEL",
    "REHEARSAL_PROVIDER",
    "RehearsalServer",
    "quickstart",
]
