"""What a model id means, which model is the default, and when a provider is ready."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from mxclaw_nb.protocol import ConfigurationError, ModelId, ProviderNotReady, UsageError
from mxclaw_nb.providers.config import ConfigStore, ModelConfig, ProviderConfig, default_config
from mxclaw_nb.providers.directory import ProviderDirectory
from mxclaw_nb.providers.endpoint import Price
from mxclaw_nb.providers.model_ids import default_model, parse_model_id
from mxclaw_nb.providers.readiness import environment_key_for, is_ready, what_is_missing

KEY = "sk-never-to-be-seen-4711"


def config_with(*extra: ProviderConfig, active: str = "deepseek") -> ModelConfig:
    providers = {**default_config().providers, **{found.name: found for found in extra}}
    return ModelConfig(active_provider=active, providers=providers)


OPENROUTER = ProviderConfig(
    name="openrouter", base_url="https://r.example", model="a/b", models=("a/b", "openia/special")
)


@pytest.mark.parametrize(
    ("text", "session_provider", "expected"),
    [
        ("openai/gpt-4o", None, ("openai", "gpt-4o")),
        ("  openai/gpt-4o\n", None, ("openai", "gpt-4o")),
        ("ollama/qwen2.5-coder:7b", None, ("ollama", "qwen2.5-coder:7b")),
        ("openrouter/meta-llama/llama-3", None, ("openrouter", "meta-llama/llama-3")),
        ("openrouter/meta-llama/llama-3:free", "openai", ("openrouter", "meta-llama/llama-3:free")),
        ("openrouter/deepseek/deepseek-r1", None, ("openrouter", "deepseek/deepseek-r1")),
        ("deepseek-v4-pro", None, ("deepseek", "deepseek-v4-pro")),
        ("gpt-4o", "openai", ("openai", "gpt-4o")),
        ("meta-llama/llama-3", "openrouter", ("openrouter", "meta-llama/llama-3")),
        ("openia/special", "openrouter", ("openrouter", "openia/special")),
        ("deepseek/x", "openrouter", ("deepseek", "x")),
        ("ollama", None, ("ollama", "llama3.2")),
        ("rehearsal/quickstart", None, ("rehearsal", "quickstart")),
        ("模型", "ollama", ("ollama", "模型")),
        ("/models/local.gguf", "ollama", ("ollama", "/models/local.gguf")),
    ],
)
def test_a_model_id_names(text: str, session_provider: str | None, expected: tuple[str, str]) -> None:
    assert parse_model_id(text, config_with(OPENROUTER), session_provider) == ModelId(*expected)


@pytest.mark.parametrize("text", ["", "  ", "openai/", "a b", "openai/gpt 4o", "a\x1b[31m", "x" * 400, "a\u2028b"])
def test_a_text_that_is_no_model_id_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="provider"):
        parse_model_id(text, default_config())


@pytest.mark.parametrize(
    ("text", "meant"), [("opnai/gpt-4o", "openai/gpt-4o"), ("DeepSeek/x", "deepseek/x"), ("olama/x:7b", "ollama/x:7b")]
)
def test_a_slip_in_the_providers_name_is_not_sent_to_another_one(text: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"did you mean `{meant}`"):
        parse_model_id(text, default_config())


def test_the_default_is_the_active_providers_model_unless_the_environment_says_otherwise() -> None:
    assert default_model(default_config(), {}) == ModelId("deepseek", "deepseek-flash")
    assert default_model(default_config(), {"MX_CLAW_MODEL": "ollama/x:7b"}) == ModelId("ollama", "x:7b")
    assert default_model(default_config(), {"MX_CLAW_MODEL": " "}) == ModelId("deepseek", "deepseek-flash")
    with pytest.raises(ConfigurationError, match="MX_CLAW_MODEL"):
        default_model(default_config(), {"MX_CLAW_MODEL": "a b"})


def test_an_active_provider_that_does_not_exist_is_not_replaced_by_another() -> None:
    with pytest.raises(ProviderNotReady, match="`gone` is not among"):
        default_model(config_with(active="gone"), {})
    with pytest.raises(ProviderNotReady, match="no default model"):
        default_model(config_with(ProviderConfig(name="empty"), active="empty"), {})


@pytest.mark.parametrize(
    ("changes", "has_key", "missing"),
    [
        ({}, True, None),
        ({}, False, "MX_CLAW_API_KEY"),
        ({"requires_api_key": False}, False, None),
        ({"base_url": "  "}, True, "base URL"),
        ({"model": " "}, True, "default model"),
        ({"models": ()}, True, "lists no models"),
    ],
)
def test_readiness_is_the_originals_rule(changes: dict[str, object], has_key: bool, missing: str | None) -> None:
    provider = ProviderConfig(
        **({"name": "p", "base_url": "https://x.example", "model": "m", "models": ("m",)} | changes)
    )
    assert is_ready(provider, has_key=has_key) is (missing is None)
    sentence = what_is_missing(provider, has_key=has_key)
    assert sentence is None if missing is None else sentence is not None and missing in sentence


def test_the_environments_key_never_goes_to_the_rehearsal() -> None:
    environ = {"MX_CLAW_API_KEY": f" {KEY}\n"}
    key = environment_key_for("openai", environ)
    assert key is not None and key.get_secret_value() == KEY and KEY not in repr(key)
    assert environment_key_for("rehearsal", environ) is None
    assert environment_key_for("openai", {}) is None
    assert environment_key_for("openai", {"MX_CLAW_API_KEY": "  "}) is None


@pytest.mark.parametrize("value", [KEY + "\nX-Evil: 1", "密钥" + KEY, KEY + "\x00", "a " + KEY])
def test_a_key_that_no_header_can_hold_is_refused_unseen(value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        environment_key_for("openai", {"MX_CLAW_API_KEY": value})
    assert KEY not in str(caught.value) and caught.value.__cause__ is None


def directory(home: Path, **environ: str) -> ProviderDirectory:
    return ProviderDirectory(ConfigStore(home), environ=environ)


def test_the_rehearsal_exists_only_while_it_runs(tmp_path: Path) -> None:
    async def key(found: ProviderDirectory, provider: str) -> str | None:
        secret = await found.key_for(provider)
        return secret.get_secret_value() if secret else None

    found = directory(tmp_path, MX_CLAW_API_KEY=KEY)
    before = threading.active_count()
    assert found.names() == ("openai", "deepseek", "ollama") and not found.rehearsing
    assert found.provider("rehearsal") is None
    assert "%mxclaw rehearse" in (found.ready(ModelId("rehearsal", "quickstart")) or "")
    assert asyncio.run(key(found, "rehearsal")) is None
    try:
        model = found.start_rehearsal()
        assert found.start_rehearsal() == model == ModelId("rehearsal", "quickstart")
        assert found.ready(model) is None and found.names()[-1] == "rehearsal"
        running = found.provider("rehearsal")
        assert running is not None and running.base_url.startswith("http://127.0.0.1:")
        token = asyncio.run(key(found, "rehearsal"))
        assert token and token != KEY and token not in repr(running)
        assert asyncio.run(key(found, "deepseek")) == KEY
        assert found.default_model() == ModelId("deepseek", "deepseek-flash")
        endpoint = found.endpoint("rehearsal")
        assert endpoint is not None and endpoint.direct and endpoint.profile.price == Price(0.0, 0.0)
        assert found.has_key("rehearsal") and "rehearsal" not in found.config.load().providers
    finally:
        found.close()
    assert threading.active_count() == before
    assert found.provider("rehearsal") is None and asyncio.run(key(found, "rehearsal")) is None
    assert not (tmp_path / "config.json").exists()


def test_an_endpoint_is_what_the_configuration_says(tmp_path: Path) -> None:
    found = directory(tmp_path)
    endpoint = found.endpoint("ollama")
    assert endpoint is not None and not endpoint.requires_key and not endpoint.direct
    assert endpoint.base_url == "http://127.0.0.1:11434/v1" and endpoint.profile.price is None
    assert found.endpoint("gone") is None and found.endpoint("rehearsal") is None
    assert not found.has_key("openai") and directory(tmp_path, MX_CLAW_API_KEY=KEY).has_key("openai")
    assert not directory(tmp_path, MX_CLAW_API_KEY="a b").has_key("openai")


def test_a_provider_says_in_one_sentence_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"version": 1, "activeProvider": "ollama"}))
    found = directory(tmp_path)
    assert found.ready(found.default_model()) is None
    assert "API key" in (found.ready(found.parse("openai/gpt-4o")) or "")
    assert "There is no provider `gone`" in (found.ready(ModelId("gone", "x")) or "")
    assert "cannot be sent" in (directory(tmp_path, MX_CLAW_API_KEY="a b").ready(ModelId("openai", "gpt-4o")) or "")
    assert directory(tmp_path, MX_CLAW_API_KEY=KEY).ready(ModelId("openai", "gpt-4o")) is None
