"""Every provider that can be asked now: those of config.json, and the rehearsal while its server runs."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pydantic import SecretStr

from mxclaw_nb.protocol import ModelId

from .config import REHEARSAL_PROVIDER, ConfigStore, ProviderConfig
from .model_ids import default_model, parse_model_id
from .readiness import environment_key_for, what_is_missing
from .rehearsal import REHEARSAL_MODEL, RehearsalServer, Script, quickstart


class ProviderDirectory:
    """The one place that knows a provider's address, its key and whether it is ready.

    It owns the rehearsal server: no thread before ``start_rehearsal``, none after ``close``. Usable from any thread.
    """

    def __init__(
        self, config: ConfigStore, *, environ: Mapping[str, str] = os.environ, script: Script = quickstart
    ) -> None:
        self.config = config
        self._environ = environ
        self._rehearsal = RehearsalServer(script, keep_requests=0)

    def provider(self, name: str) -> ProviderConfig | None:
        """The provider of that name, or None."""
        if name == REHEARSAL_PROVIDER:
            return self._rehearsal_config()
        return self.config.load().providers.get(name)

    def names(self) -> tuple[str, ...]:
        """Names of all providers that exist now; the rehearsal only while its server runs."""
        configured = tuple(self.config.load().providers)
        return (*configured, REHEARSAL_PROVIDER) if self._rehearsal.running else configured

    def parse(self, text: str, session_provider: str | None = None) -> ModelId:
        """As ``parse_model_id``, with this home's configuration."""
        return parse_model_id(text, self.config.load(), session_provider)

    def default_model(self) -> ModelId:
        """As ``default_model``, with this home's configuration."""
        return default_model(self.config.load(), self._environ)

    async def key_for(self, provider: str) -> SecretStr | None:
        """The key to send to that provider, asked for when a request is made. Raises ConfigurationError."""
        if provider == REHEARSAL_PROVIDER:
            return SecretStr(self._rehearsal.token) if self._rehearsal.running else None
        return environment_key_for(provider, self._environ)

    def ready(self, model: ModelId) -> str | None:
        """None if that model can be asked, else one sentence that says what is missing."""
        provider = self.provider(model.provider)
        if provider is None:
            if model.provider == REHEARSAL_PROVIDER:
                return "The rehearsal is not running here; start it with `%mxclaw rehearse`."
            return f"There is no provider `{model.provider}`; known are {', '.join(self.names()) or 'none'}."
        if provider.name == REHEARSAL_PROVIDER:
            return None
        return what_is_missing(provider, has_key=environment_key_for(provider.name, self._environ) is not None)

    @property
    def rehearsing(self) -> bool:
        return self._rehearsal.running

    def start_rehearsal(self) -> ModelId:
        """Run the rehearsal server, if it does not run yet, and say which model it plays. Raises OSError."""
        self._rehearsal.start_in_thread()
        return ModelId(REHEARSAL_PROVIDER, REHEARSAL_MODEL)

    def close(self) -> None:
        """End the rehearsal server and its thread. Idempotent; it can be started again."""
        self._rehearsal.stop()

    def _rehearsal_config(self) -> ProviderConfig | None:
        if not self._rehearsal.running:
            return None
        return ProviderConfig(
            name=REHEARSAL_PROVIDER,
            kind="builtin",
            base_url=self._rehearsal.base_url,
            model=REHEARSAL_MODEL,
            models=self._rehearsal.models,
            configured=True,
        )
