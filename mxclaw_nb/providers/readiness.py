"""Whether a provider can be asked, and the key that it is asked with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from pydantic import SecretStr

from mxclaw_nb.protocol import ConfigurationError

from .config import KEY_VARIABLE, REHEARSAL_PROVIDER, ProviderConfig
from .urls import parse_base_url

_SHOWN_MODEL = 100


def is_ready(provider: ProviderConfig, *, has_key: bool) -> bool:
    """The original's rule: a base URL, a model, a list of models that is not empty, and a key where one is needed.

    The base URL must be one that can be asked, too.
    """
    return what_is_missing(provider, has_key=has_key) is None


def what_is_missing(provider: ProviderConfig, *, has_key: bool) -> str | None:
    """None if the provider is ready, else one sentence that says what it lacks."""
    if not provider.base_url.strip():
        return f"The provider `{provider.name}` has no base URL; set its `baseURL` in config.json."
    if not provider.model.strip():
        return f"The provider `{provider.name}` has no default model; set its `model` in config.json."
    if not provider.models:
        model = provider.model.strip()
        entry = json.dumps(
            [model if model.isprintable() and len(model) <= _SHOWN_MODEL else "MODEL"], ensure_ascii=False
        )
        return f'The provider `{provider.name}` lists no models; write `"models": {entry}` into it in config.json.'
    if provider.requires_api_key and not has_key:
        return f"The provider `{provider.name}` needs an API key; put it into the environment variable {KEY_VARIABLE}."
    try:
        parse_base_url(provider.base_url, provider.name)
    except ConfigurationError as error:
        return error.message
    return None


def environment_key_for(provider: str, environ: Mapping[str, str] = os.environ) -> SecretStr | None:
    """The key for the turn's provider from ``MX_CLAW_API_KEY``; None if it is not set, and for the rehearsal always.

    Raises ConfigurationError, without the key, if it cannot be sent as an HTTP header.
    """
    if provider == REHEARSAL_PROVIDER:
        return None
    key = environ.get(KEY_VARIABLE, "").strip()
    if not key:
        return None
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigurationError(
            f"{KEY_VARIABLE} holds a space, a line break or a character that is not ASCII, "
            "so it cannot be sent; copy the key again."
        )
    return SecretStr(key)
