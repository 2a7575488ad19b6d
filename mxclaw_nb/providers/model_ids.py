"""``provider/model``: which provider and which of its models a text names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from mxclaw_nb.protocol import ConfigurationError, ModelId, ProviderNotReady, UsageError

from .config import REHEARSAL_PROVIDER, ModelConfig

MODEL_VARIABLE: Final = "MX_CLAW_MODEL"
"""The environment variable that sets the default model of a process."""

ID_LIMIT: Final = 300


def parse_model_id(text: str, config: ModelConfig, session_provider: str | None = None) -> ModelId:
    """Read a model id.

    A first segment that names a known provider is read as one; everything after its slash is the model, slashes and
    colons included (``openrouter/meta-llama/llama-3``, ``ollama/qwen2.5-coder:7b``). Otherwise the whole text is a
    model of ``session_provider``, or of the active provider. A provider's name alone means its default model.
    Raises UsageError with what to write instead.
    """
    text = text.strip()
    if not text or len(text) > ID_LIMIT or not text.isprintable() or any(part.isspace() for part in text):
        raise UsageError("A model is named as `provider/model`, without spaces, such as `deepseek/deepseek-flash`.")
    known = {*config.providers, REHEARSAL_PROVIDER}
    first, slash, rest = text.partition("/")
    if slash and first in known:
        if not rest:
            raise UsageError(f"`{text}` names a provider and no model; write `{first}/MODEL`.")
        return ModelId(first, rest)
    if not slash and first in config.providers and (default := config.providers[first].model.strip()):
        return ModelId(first, default)
    provider = session_provider or config.active_provider
    if slash and not _offers(config, provider, text):
        import difflib  # only for a slip of the fingers

        near = difflib.get_close_matches(first.lower(), known, n=1, cutoff=0.75)
        if near:
            raise UsageError(f"There is no provider `{first}`; did you mean `{near[0]}/{rest}`?")
    return ModelId(provider, text)


def _offers(config: ModelConfig, provider: str, model: str) -> bool:
    found = config.providers.get(provider)
    return found is not None and (model in found.models or model == found.model)


def default_model(config: ModelConfig, environ: Mapping[str, str] = os.environ) -> ModelId:
    """The model of a session that has none of its own: ``MX_CLAW_MODEL``, else the active provider's default.

    Raises ConfigurationError for a malformed variable and ProviderNotReady if the active provider does not exist or
    has no model.
    """
    if wanted := environ.get(MODEL_VARIABLE, "").strip():
        try:
            return parse_model_id(wanted, config)
        except UsageError as error:
            raise ConfigurationError(f"{MODEL_VARIABLE} is wrong: {error.message}") from None
    provider = config.providers.get(config.active_provider)
    if provider is None:
        raise ProviderNotReady(
            f"The active provider `{config.active_provider}` is not among the configured ones "
            f"({', '.join(config.providers) or 'none'}); choose another in config.json or with {MODEL_VARIABLE}."
        )
    if not provider.model.strip():
        raise ProviderNotReady(
            f"The active provider `{provider.name}` has no default model; "
            f"set one in config.json or with {MODEL_VARIABLE}."
        )
    return ModelId(provider.name, provider.model.strip())
