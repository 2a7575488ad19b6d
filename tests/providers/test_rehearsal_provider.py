"""The rehearsal as the product plays it: found in the directory, asked by the same provider as every other model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from mxclaw_nb.protocol import Completion, Message, ModelId, ModelRequest, ProviderNotReady, Settings, TextDelta
from mxclaw_nb.providers import ConfigStore, OpenAICompatibleProvider, ProviderDirectory

KEY = "sk-never-to-be-seen-4711"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[ProviderDirectory]:
    found = ProviderDirectory(ConfigStore(tmp_path), environ={"MX_CLAW_API_KEY": KEY})
    yield found
    found.close()


def play(directory: ProviderDirectory, prompt: str, model: ModelId) -> tuple[list[str], Completion]:
    """One request through the real provider, on a private loop, with the caller's loop blocked meanwhile."""

    async def scenario() -> tuple[list[str], Completion]:
        provider = OpenAICompatibleProvider(
            directory.endpoint, directory.key_for, Settings, key_present=directory.has_key
        )
        try:
            async with asyncio.timeout(30):
                items = [item async for item in provider.stream(ModelRequest(model, [Message("user", prompt)]))]
        finally:
            await provider.aclose()
        assert isinstance(items[-1], Completion)
        return [item.text for item in items if isinstance(item, TextDelta)], items[-1]

    return asyncio.run(scenario())


def test_the_rehearsal_streams_through_the_real_provider_and_costs_nothing(directory: ProviderDirectory) -> None:
    model = directory.start_rehearsal()
    deltas, completion = play(directory, "show a table", model)
    assert len(deltas) > 20 and "".join(deltas) == completion.text
    assert "rehearsal" in completion.text and completion.finish_reason == "stop"
    assert completion.usage is not None and completion.usage.cost == 0
    # Once more: a conversation is many requests.
    assert "rehearsal" in play(directory, "hello", model)[1].text


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_no_proxy_stands_between_us_and_the_rehearsal(
    directory: ProviderDirectory, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert "rehearsal" in play(directory, "hello", directory.start_rehearsal())[1].text


def test_a_rehearsal_that_does_not_run_is_not_asked(directory: ProviderDirectory) -> None:
    with pytest.raises(ProviderNotReady):
        play(directory, "hello", ModelId("rehearsal", "quickstart"))
    model = directory.start_rehearsal()
    directory.close()
    with pytest.raises(ProviderNotReady):
        play(directory, "hello", model)
