"""The rehearsal: a scripted model on loopback, for people without a key or a network."""

from __future__ import annotations

from mxclaw_nb.app import App
from mxclaw_nb.protocol import ConfigurationError, ModelId


def ensure_rehearsal(app: App) -> ModelId:
    """Run the rehearsal in this process if it does not run yet. Raises ConfigurationError if no port can be had."""
    try:
        return app.directory.start_rehearsal()
    except OSError as error:
        raise ConfigurationError(f"The rehearsal could not open a port on this machine: {error}.") from None
