"""An agent that lives in your Jupyter or IPython kernel. ``%load_ext mxclaw_nb`` brings ``%mxclaw`` and ``%%agent``."""

from __future__ import annotations

__version__ = "0.1.0"
