"""The one model provider: chat completions, streamed, of any endpoint that speaks OpenAI's dialect."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from mxclaw_nb.protocol import (
    Completion,
    ConfigurationError,
    ContextOverflow,
    ModelError,
    ModelId,
    ModelRequest,
    ProviderNotice,
    Settings,
    StreamInterrupted,
    StreamItem,
)

from .endpoint import Endpoint
from .jsontext import parse_json
from .outcome import Broken, judged
from .reply import ReplyReader
from .request import RequestEncoder
from .retry import RetryPolicy
from .target import KeyFor, Target, find_target, what_is_missing
from .urls import parse_base_url
from .usage import cost_of, estimate_usage

if TYPE_CHECKING:
    from .clients import Clients

_SEED_BYTES = 64 * 1024
_LIST_BYTES = 16 * 1024 * 1024
_LIST_S = 30.0


class OpenAICompatibleProvider:
    """Implements ``protocol.ModelProvider``.

    ``resolve`` gives a provider's endpoint by name (None: no such provider); ``key_for`` its key, asked for each
    request and kept nowhere; ``settings`` the timeouts in force; ``key_present`` whether a key can be expected.
    """

    def __init__(
        self,
        resolve: Callable[[str], Endpoint | None],
        key_for: KeyFor,
        settings: Callable[[], Settings],
        key_present: Callable[[str], bool] = lambda _provider: True,
        *,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._resolve = resolve
        self._key_for = key_for
        self._settings = settings
        self._key_present = key_present
        self._retry = retry or RetryPolicy()
        self._encoder = RequestEncoder()
        self._made_clients: Clients | None = None

    def ready(self, model: ModelId) -> str | None:
        """None if that model can be asked, else one sentence that says what is missing."""
        endpoint = self._resolve(model.provider)
        missing = what_is_missing(model, endpoint, key_present=self._key_present(model.provider))
        if missing is not None or endpoint is None:
            return missing
        try:
            parse_base_url(endpoint.base_url, endpoint.name)
        except ConfigurationError as error:
            return error.message
        return None

    def price_known(self, model: ModelId) -> bool:
        """Whether the endpoint's profile has a price."""
        endpoint = self._resolve(model.provider)
        return endpoint is not None and endpoint.profile.price is not None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        """See ``ModelProvider.stream``. Raises UsageError (nothing said) and ConfigurationError (base URL, key) too."""
        from .asking import ask  # with httpx and aiohttp: loaded by the first request
        from .body import PatientReading
        from .breaks import BREAKS, broken_by

        target = await find_target(request.model, self._resolve, self._key_for)
        body = self._encoder.encode(request, target.endpoint.profile)
        tries = 0
        while True:
            tries += 1
            settings = self._settings()
            reader = None
            answer = await ask(self._clients(), target, target.base.chat, body, settings, self._retry)
            if isinstance(answer, Broken):
                broken: Broken | None = answer
            else:
                broken = None
                reader = ReplyReader(answer.content_type)
                reading = PatientReading(answer, reader, settings)
                try:
                    while not reader.done and (piece := await reading.read()):
                        for item in reader.feed(piece):
                            yield item
                    if reader.failure is None:
                        await answer.finish()
                except BREAKS as error:
                    broken = broken_by(error, target)
                finally:
                    await answer.aclose()
                for item in reader.close():
                    yield item
                broken = judged(reader, broken, target, self._retry)
                if broken is None:
                    yield _priced(request, reader.folder.completion(_id_seed(body)), target)
                    return
            assert broken is not None
            if reader is not None and reader.folder.shown:
                break
            if not broken.again or not self._retry.may_retry(tries, broken.retry_after):
                break
            wait = self._retry.wait(tries, broken.retry_after)
            yield ProviderNotice(
                f"{broken.what}; trying again in {wait:.1f} s (try {tries + 1} of {self._retry.tries})."
            )
            await self._retry.sleep(wait)
        raise _final_error(request, reader, broken, tries, target)

    async def list_models(self, provider_name: str) -> list[str]:
        """The names of the provider's models, as it lists them. Raises what ``stream`` raises for a refusal."""
        from .asking import ask
        from .breaks import BREAKS, broken_by

        target = await find_target(ModelId(provider_name, "*"), self._resolve, self._key_for)
        broken: Broken
        answer = await ask(self._clients(), target, target.base.models, None, self._settings(), self._retry)
        if isinstance(answer, Broken):
            broken = answer
        else:
            try:
                return _model_names(await answer.read_all(_LIST_BYTES, _LIST_S))
            except BREAKS as error:
                broken = broken_by(error, target)
            except (ValueError, TimeoutError):
                what = f"Provider {target.name} did not answer with a list of models"
                broken = Broken(ModelError(f"{what}. Check the base URL, or name the model yourself."), what)
        raise broken.error

    async def aclose(self) -> None:
        """Close every connection, on whatever loop it was made. The provider can be used again after it."""
        if self._made_clients is not None:
            await self._made_clients.aclose()

    def _clients(self) -> Clients:
        if self._made_clients is None:
            from .clients import Clients

            self._made_clients = Clients()
        return self._made_clients


def _priced(request: ModelRequest, completion: Completion, target: Target) -> Completion:
    usage = completion.usage or estimate_usage(request, completion)
    return replace(completion, usage=replace(usage, cost=cost_of(usage, target.endpoint.profile.price)))


def _id_seed(body: bytes) -> str:
    """What tells the calls of one request from those of others: the same request gives the same ids.

    The newest messages and the length do; hashing the whole of a long session would cost as much as encoding it.
    """
    return hashlib.sha256(b"%d %b" % (len(body), body[-_SEED_BYTES:])).hexdigest()[:10]


def _final_error(
    request: ModelRequest, reader: ReplyReader | None, broken: Broken, tries: int, target: Target
) -> ModelError:
    error = broken.error
    shown = reader is not None and reader.folder.shown
    if reader is not None and (shown or not (reader.folder.empty or isinstance(error, ContextOverflow))):
        partial = _priced(request, reader.folder.partial(), target)
        kept = " What had come is kept, marked incomplete." if shown else ""
        interrupted = StreamInterrupted(f"{error.message}{kept}", partial, status=error.status)
        interrupted.retry_after = error.retry_after
        return interrupted
    if tries > 1:
        error.args = (f"{error.message} ({tries} tries.)",)
        error.message = error.args[0]
    return error


def _model_names(body: bytes) -> list[str]:
    """Names out of ``{"data": [{"id": ...}]}`` or its relatives. Raises ValueError for anything else."""
    value = parse_json(body)
    entries = value
    if isinstance(value, dict):
        entries = value.get("data", value.get("models"))
    names: dict[str, None] = {}
    for entry in entries if isinstance(entries, list) else [None]:
        if entry is None:
            raise ValueError("no list of models")
        name = entry.get("id", entry.get("name")) if isinstance(entry, dict) else entry
        if isinstance(name, str) and name:
            names[name] = None
    return list(names)
