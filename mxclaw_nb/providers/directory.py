"""Every provider that can be asked now: those of config.json, and the rehearsal while its server runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from mxclaw_nb.protocol import ConfigurationError, ModelId, ProviderNotReady

from .config import DAMAGE_REMEDY, KEY_VARIABLE, REHEARSAL_PROVIDER, ConfigStore, LoadedConfig, ProviderConfig
from .model_ids import UnknownProvider, default_model, parse_model_id
from .readiness import environment_key_for, what_is_missing

if TYPE_CHECKING:
    from .endpoint import Endpoint
    from .rehearsal import RehearsalServer

REHEARSAL_MODEL: Final = "quickstart"
"""The model that the rehearsal plays."""
_SHORTEST_KEY = 16


class ProviderDirectory:
    """The one place that knows a provider's address, its key and whether it is ready.

    Nothing is sent to a provider that no person chose: a config.json that cannot be used, or none at all, leaves the
    catalogue to be listed, not to be asked by default. A snapshot that cannot serve a request is read again, once, if
    the file has changed; one that serves is kept.

    It owns the rehearsal server: no thread before ``start_rehearsal``, none after ``close``. Usable from any thread.
    """

    def __init__(self, config: ConfigStore, *, environ: Mapping[str, str] = os.environ) -> None:
        self.config = config
        self._environ = environ
        self._rehearsal: RehearsalServer | None = None
        self._guard = threading.Lock()

    def provider(self, name: str) -> ProviderConfig | None:
        """The provider of that name, or None."""
        if name != REHEARSAL_PROVIDER:
            return self.config.load().providers.get(name)
        server = self._rehearsal
        if server is None:
            return None
        return ProviderConfig(
            name=REHEARSAL_PROVIDER,
            kind="builtin",
            base_url=server.base_url,
            model=REHEARSAL_MODEL,
            models=server.models,
            configured=True,
        )

    def names(self) -> tuple[str, ...]:
        """Names of all providers that exist now; the rehearsal only while its server runs."""
        configured = tuple(self.config.load().providers)
        return (*configured, REHEARSAL_PROVIDER) if self.rehearsing else configured

    def parse(self, text: str, session_provider: str | None = None) -> ModelId:
        """As ``parse_model_id``, with this home's configuration. Raises ProviderNotReady if that cannot be used."""
        return self._served(
            lambda loaded: parse_model_id(text, loaded.config, session_provider, active_chosen=loaded.active_chosen)
        )

    def default_model(self) -> ModelId:
        """As ``default_model``, with this home's configuration. Raises ProviderNotReady if nobody chose it."""
        return self._served(
            lambda loaded: default_model(loaded.config, self._environ, active_chosen=loaded.active_chosen)
        )

    def listed_default(self) -> ModelId | None:
        """The default that the configuration names, chosen or not: to be listed, never to be asked."""
        loaded = self.config.loaded()
        if loaded.damage is not None:
            return None
        try:
            return default_model(loaded.config, self._environ)
        except (ConfigurationError, ProviderNotReady):
            return None

    def _served(self, read: Callable[[LoadedConfig], ModelId]) -> ModelId:
        """The model that the snapshot means; a new snapshot is asked where it does not know or cannot ask it."""
        try:
            model = _of_sound(self.config.loaded(), read)
        except (UnknownProvider, ProviderNotReady):
            if not self.config.refresh():
                raise
        else:
            if self._missing(model) is None or not self._refresh_for(model):
                return model
        return _of_sound(self.config.loaded(), read)

    def _refresh_for(self, model: ModelId) -> bool:
        """As ``ConfigStore.refresh``; the rehearsal is no matter of the file."""
        return model.provider != REHEARSAL_PROVIDER and self.config.refresh()

    async def key_for(self, provider: str) -> SecretStr | None:
        """The key to send to that provider, asked for when a request is made. Raises ConfigurationError."""
        if provider != REHEARSAL_PROVIDER:
            return environment_key_for(provider, self._environ)
        server = self._rehearsal
        return SecretStr(server.token) if server is not None else None

    def redact(self, text: str) -> str:
        """The text without the key that a provider is sent, should a tool have brought it to light.

        Words that only stand in for a key (``ollama``, ``EMPTY``) are no secrets and stay.
        """
        key = self._environ.get(KEY_VARIABLE, "").strip()
        return text.replace(key, "[redacted]") if len(key) >= _SHORTEST_KEY else text

    def has_key(self, provider: str) -> bool:
        """Whether ``key_for`` would give a key; one that cannot be sent counts as none."""
        if provider == REHEARSAL_PROVIDER:
            return self.rehearsing
        try:
            return environment_key_for(provider, self._environ) is not None
        except ConfigurationError:
            return False

    def endpoint(self, name: str) -> Endpoint | None:
        """Where that provider is asked, or None if there is none.

        The rehearsal is never asked through a proxy, and costs nothing.
        """
        from .endpoint import Endpoint, ModelProfile, Price

        provider = self.provider(name)
        if provider is None:
            return None
        rehearsal = provider.name == REHEARSAL_PROVIDER
        return Endpoint(
            name=provider.name,
            base_url=provider.base_url,
            requires_key=provider.requires_api_key,
            profile=ModelProfile(price=Price(0.0, 0.0) if rehearsal else None),
            direct=rehearsal,
        )

    def ready(self, model: ModelId) -> str | None:
        """None if that model can be asked, else one sentence that says what is missing."""
        missing = self._missing(model)
        return self._missing(model) if missing is not None and self._refresh_for(model) else missing

    def _missing(self, model: ModelId) -> str | None:
        if model.provider == REHEARSAL_PROVIDER:
            return None if self.rehearsing else "The rehearsal is not running here; start it with `%mxclaw rehearse`."
        damage = self.config.loaded().damage
        if damage is not None:
            return f"{damage} {DAMAGE_REMEDY}"
        provider = self.provider(model.provider)
        if provider is None:
            return f"There is no provider `{model.provider}`; known are {', '.join(self.names()) or 'none'}."
        try:
            key = environment_key_for(provider.name, self._environ)
        except ConfigurationError as error:
            return error.message
        return what_is_missing(provider, has_key=key is not None)

    @property
    def rehearsing(self) -> bool:
        """Whether the rehearsal server runs in this process."""
        return self._rehearsal is not None

    def start_rehearsal(self) -> ModelId:
        """Run the rehearsal server, if it does not run yet, and say which model it plays. Raises OSError."""
        from .rehearsal import RehearsalServer, quickstart

        with self._guard:
            if self._rehearsal is None:
                self._rehearsal = RehearsalServer(
                    quickstart, models=(REHEARSAL_MODEL,), keep_requests=0
                ).start_in_thread()
        return ModelId(REHEARSAL_PROVIDER, REHEARSAL_MODEL)

    def close(self) -> None:
        """End the rehearsal server and its thread. Idempotent; it can be started again."""
        with self._guard:
            server, self._rehearsal = self._rehearsal, None
        if server is not None:
            server.stop()


def _of_sound(loaded: LoadedConfig, read: Callable[[LoadedConfig], ModelId]) -> ModelId:
    """What ``read`` makes of a configuration; of a damaged one, the rehearsal or a refusal that names the damage."""
    try:
        model = read(loaded)
    except (UnknownProvider, ProviderNotReady):
        if loaded.damage is None:
            raise
    else:
        if loaded.damage is None or model.provider == REHEARSAL_PROVIDER:
            return model
    raise ProviderNotReady(f"{loaded.damage} {DAMAGE_REMEDY}")
