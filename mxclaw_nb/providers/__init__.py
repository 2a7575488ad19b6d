"""Models: the configuration, the catalogue, OpenAI-compatible streaming, and the rehearsal."""

from .config import REHEARSAL_PROVIDER, ConfigStore, ModelConfig, ProviderConfig
from .directory import REHEARSAL_MODEL, ProviderDirectory
from .endpoint import Endpoint, ModelProfile, Price
from .model_ids import default_model, parse_model_id
from .openai_compatible import OpenAICompatibleProvider
from .readiness import environment_key_for, is_ready
from .retry import RetryPolicy

__all__ = [
    "REHEARSAL_MODEL",
    "REHEARSAL_PROVIDER",
    "ConfigStore",
    "Endpoint",
    "ModelConfig",
    "ModelProfile",
    "OpenAICompatibleProvider",
    "Price",
    "ProviderConfig",
    "ProviderDirectory",
    "RetryPolicy",
    "default_model",
    "environment_key_for",
    "is_ready",
    "parse_model_id",
]
