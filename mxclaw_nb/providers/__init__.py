"""Models: the configuration, the catalogue, OpenAI-compatible streaming, and the rehearsal."""

from .config import REHEARSAL_PROVIDER, ConfigStore, ModelConfig, ProviderConfig
from .directory import REHEARSAL_MODEL, ProviderDirectory
from .model_ids import default_model, parse_model_id
from .readiness import environment_key_for, is_ready

__all__ = [
    "REHEARSAL_MODEL",
    "REHEARSAL_PROVIDER",
    "ConfigStore",
    "ModelConfig",
    "ProviderConfig",
    "ProviderDirectory",
    "default_model",
    "environment_key_for",
    "is_ready",
    "parse_model_id",
]
