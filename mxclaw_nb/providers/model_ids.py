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
_NAMED = 12


class UnknownProvider(UsageError):
    """A model id whose first segment is no provider that this configuration knows."""


class _UnknownInVariable(UnknownProvider, ConfigurationError):
    """The same, in ``MX_CLAW_MODEL``."""


def parse_model_id(
    text: str, config: ModelConfig, session_provider: str | None = None, *, active_chosen: bool = True
) -> ModelId:
    """Read a model id.

    A first segment that names a known provider is read as one; everything after its slash is the model, slashes and
    colons included (``openrouter/meta-llama/llama-3``, ``ollama/qwen2.5-coder:7b``). A provider's name alone means its
    default model. Any other text is a model of ``session_provider``, or of the active provider; one with a first
    segment only if that provider has exactly that model, since it may as well name a provider that is not there.

    Raises UnknownProvider or another UsageError with what to write instead, and ProviderNotReady for a model of the
    active provider that nobody chose (``active_chosen`` is false).
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
    if slash and first and not _offers(config, provider, text):
        raise UnknownProvider(_unknown(text, config, known))
    if session_provider is None and not active_chosen:
        raise ProviderNotReady(nobody_chose(config))
    return ModelId(provider, text)


def _unknown(text: str, config: ModelConfig, known: set[str]) -> str:
    import difflib  # only for a slip of the fingers

    first, _, rest = text.partition("/")
    near = difflib.get_close_matches(first.lower(), known, n=1, cutoff=0.75)
    meant = f"; did you mean `{near[0]}/{rest}`? Known" if near else "; known"
    names = list(config.providers)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"There is no provider `{first}`{meant} are {', '.join(names[:_NAMED]) or 'none'}{more}. "
        f"To use a model of that name write `PROVIDER/{text}`."
    )


def nobody_chose(config: ModelConfig) -> str:
    """Why the active provider of the catalogue is not asked unasked, and how to choose one."""
    provider = config.providers.get(config.active_provider)
    example = f"{provider.name}/{provider.model}" if provider is not None else "provider/model"
    return (
        f"No provider is chosen yet, so nothing goes to the built-in {config.active_provider} by default; name a model "
        f"with its provider (`--model {example}`, or {MODEL_VARIABLE}), or an `activeProvider` in config.json."
    )


def _offers(config: ModelConfig, provider: str, model: str) -> bool:
    found = config.providers.get(provider)
    return found is not None and (model in found.models or model == found.model)


def default_model(
    config: ModelConfig, environ: Mapping[str, str] = os.environ, *, active_chosen: bool = True
) -> ModelId:
    """The model of a session that has none of its own: ``MX_CLAW_MODEL``, else the active provider's default.

    Raises ConfigurationError for a wrong variable and ProviderNotReady if the active provider does not exist, has no
    model, or needs a key and was chosen by nobody (``active_chosen`` is false).
    """
    if wanted := environ.get(MODEL_VARIABLE, "").strip():
        try:
            return parse_model_id(wanted, config, active_chosen=active_chosen)
        except ProviderNotReady:
            raise
        except UsageError as error:
            kind = _UnknownInVariable if isinstance(error, UnknownProvider) else ConfigurationError
            raise kind(f"{MODEL_VARIABLE} is wrong: {error.message}") from None
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
    if provider.requires_api_key and not active_chosen:
        raise ProviderNotReady(nobody_chose(config))
    return ModelId(provider.name, provider.model.strip())
