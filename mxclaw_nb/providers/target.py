"""An endpoint together with its key, for the length of one request."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from mxclaw_nb.protocol import ConfigurationError, ModelError, ModelId, ProviderNotReady

from .endpoint import Endpoint
from .errors import Failure, model_error, redact
from .urls import BaseUrl, parse_base_url

KeyFor = Callable[[str], Awaitable[SecretStr | None]]
_KEY_S = 60.0
_AZURE = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")
_JWT = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+\Z")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110: what the name of a header may be


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send, with which headers, and what must never be shown."""

    endpoint: Endpoint
    base: BaseUrl
    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.endpoint.name

    def error(self, failure: Failure, *, retry_after: float | None = None, hint: str = "") -> ModelError:
        """The error for what the provider said."""
        return model_error(failure, self.name, secrets=self.secrets, retry_after=retry_after, hint=hint)

    def clean(self, text: str) -> str:
        """The text without this target's secrets."""
        return redact(text, self.secrets)


def what_is_missing(model: ModelId, endpoint: Endpoint | None, *, key_present: bool) -> str | None:
    """One sentence that says why the model cannot be asked; None if it can."""
    if endpoint is None:
        return f"No provider is called {model.provider}; configure it, or choose another model."
    if not model.model.strip():
        return f"No model of provider {model.provider} is chosen; name one as {model.provider}/MODEL."
    if not endpoint.base_url.strip():
        return f"Provider {model.provider} has no base URL; configure one."
    if endpoint.requires_key and not key_present:
        return f"Provider {model.provider} has no key; set one, or choose another model."
    return None


async def find_target(model: ModelId, resolve: Callable[[str], Endpoint | None], key_for: KeyFor) -> Target:
    """The endpoint of a model with its key. Raises ProviderNotReady or ConfigurationError."""
    endpoint = resolve(model.provider)
    missing = what_is_missing(model, endpoint, key_present=True)
    if missing is not None or endpoint is None:
        raise ProviderNotReady(missing or "No provider is configured.")
    base = parse_base_url(endpoint.base_url, endpoint.name)
    try:
        async with asyncio.timeout(_KEY_S):
            secret = await key_for(endpoint.name)
    except TimeoutError:
        raise ProviderNotReady(
            f"The key of provider {endpoint.name} could not be had within {_KEY_S:g} s; unlock where it is kept."
        ) from None
    if secret is not None and not secret.get_secret_value().strip():
        secret = None
    if endpoint.requires_key and secret is None:
        raise ProviderNotReady(what_is_missing(model, endpoint, key_present=False) or "")
    _check_headers(endpoint, secret)
    return _target(endpoint, base, secret)


def _check_headers(endpoint: Endpoint, secret: SecretStr | None) -> None:
    """Raises ConfigurationError for what cannot be sent. No variable here holds the key: tracebacks show variables."""
    if secret is not None and not _sendable(secret.get_secret_value().strip()):
        raise ConfigurationError(
            f"The key of provider {endpoint.name} has characters that no key can have; enter it again."
        )
    for name, value in endpoint.profile.headers.items():
        if not (_NAME.fullmatch(name) and _sendable(value)):
            raise ConfigurationError(
                f"A header configured for provider {endpoint.name} has characters that cannot be sent; correct it."
            )


def _is_azure(base: BaseUrl) -> bool:
    """Whether Azure's gateway answers, which takes a resource's key in ``api-key``; as a bearer only its newest API
    does, while tokens of Entra ID, which are JWTs, are always bearers. Gateways before it want either or both.

    https://learn.microsoft.com/azure/ai-services/openai/reference#authentication
    """
    return base.host.endswith(_AZURE) or any(part.startswith("api-version=") for part in base.query.split("&"))


def _sendable(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _target(endpoint: Endpoint, base: BaseUrl, secret: SecretStr | None) -> Target:
    headers = {
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",  # compression only delays a stream
        "User-Agent": "mxclaw-nb",
    }
    key = secret.get_secret_value().strip() if secret is not None else ""
    secrets = [key]
    if base.credentials is not None:
        pair = ":".join(base.credentials)
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        secrets += [pair, base.credentials[1], headers["Authorization"]]
    if key:
        headers["Authorization"] = f"Bearer {key}"
        if _is_azure(base) and not _JWT.match(key):
            headers["api-key"] = key
    for name, value in endpoint.profile.headers.items():
        headers = {known: kept for known, kept in headers.items() if known.lower() != name.lower()}
        headers[name] = value
        secrets.append(value if len(value) > 15 else "")  # may be a token; short ones are ordinary words
    secrets += [part.partition("=")[2] for part in base.query.split("&") if len(part) > 24]
    return Target(endpoint, base, headers, tuple(sorted(filter(None, set(secrets)), key=len, reverse=True)))
