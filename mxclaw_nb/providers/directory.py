"""Every provider that can be asked now: those of config.json, and the rehearsal while its server runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from mxclaw_nb.protocol import ConfigurationError, ModelId

from .config import REHEARSAL_PROVIDER, ConfigStore, ProviderConfig
from .model_ids import default_model, parse_model_id
from .readiness import environment_key_for, what_is_missing

if TYPE_CHECKING:
    from .endpoint import Endpoint
    from .rehearsal import RehearsalServer

REHEARSAL_MODEL: Final = "quickstart"
"""The model that the rehearsal plays."""


class ProviderDirectory:
    """The one place that knows a provider's address, its key and whether it is ready.

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
        """As ``parse_model_id``, with this home's configuration."""
        return parse_model_id(text, self.config.load(), session_provider)

    def default_model(self) -> ModelId:
        """As ``default_model``, with this home's configuration."""
        return default_model(self.config.load(), self._environ)

    async def key_for(self, provider: str) -> SecretStr | None:
        """The key to send to that provider, asked for when a request is made. Raises ConfigurationError."""
        if provider != REHEARSAL_PROVIDER:
            return environment_key_for(provider, self._environ)
        server = self._rehearsal
        return SecretStr(server.token) if server is not None else None

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
        if model.provider == REHEARSAL_PROVIDER:
            return None if self.rehearsing else "The rehearsal is not running here; start it with `%mxclaw rehearse`."
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
