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
        ("a/b", "openrouter", ("openrouter", "a/b")),
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


@pytest.mark.parametrize("session_provider", [None, "openrouter"])
@pytest.mark.parametrize("text", ["other/x", "meta-llama/llama-3", "other/openia/special", "模型/x", "other/"])
def test_a_first_segment_that_is_no_provider_is_no_model_of_another_one(
    text: str, session_provider: str | None
) -> None:
    with pytest.raises(UsageError) as refused:
        parse_model_id(text, config_with(OPENROUTER), session_provider)
    assert refused.value.code == "usage"
    for words in (f"no provider `{text.split('/')[0]}`", "openai, deepseek, ollama", f"write `PROVIDER/{text}`"):
        assert words in str(refused.value)
    with pytest.raises(ConfigurationError, match="MX_CLAW_MODEL is wrong: There is no provider") as refused:
        default_model(config_with(OPENROUTER), {"MX_CLAW_MODEL": text})
    assert refused.value.code == "configuration"


def test_many_providers_do_not_make_a_long_sentence() -> None:
    many = config_with(*(ProviderConfig(name=f"{'p' * 40}{n}") for n in range(50)))
    with pytest.raises(UsageError, match="and 41 more") as refused:
        parse_model_id("other/x", many)
    assert len(str(refused.value)) < 1000


def test_an_active_provider_that_nobody_chose_is_not_the_default() -> None:
    for wanted in ("", "gpt-4o", "deepseek-flash"):
        with pytest.raises(ProviderNotReady, match="--model deepseek/deepseek-flash") as refused:
            default_model(default_config(), {"MX_CLAW_MODEL": wanted}, active_chosen=False)
        assert "MX_CLAW_MODEL" in str(refused.value) and "config.json" in str(refused.value)
    with pytest.raises(ProviderNotReady, match="No provider is chosen"):
        parse_model_id("gpt-4o", default_config(), active_chosen=False)
    assert parse_model_id("gpt-4o", default_config(), "openai", active_chosen=False) == ModelId("openai", "gpt-4o")
    for wanted in ("deepseek/x", "deepseek"):
        named = default_model(default_config(), {"MX_CLAW_MODEL": wanted}, active_chosen=False)
        assert named.provider == "deepseek"
    keyless = config_with(active="ollama")
    assert default_model(keyless, {}, active_chosen=False) == ModelId("ollama", "llama3.2")


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
        ({"models": ()}, True, 'write `"models": ["m"]` into it in config.json'),
        ({"models": (), "model": "通义\x1b"}, True, '"models": ["MODEL"]'),
        ({"base_url": "x.example"}, True, "no scheme"),
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
        with pytest.raises(ProviderNotReady, match="No provider is chosen"):
            found.default_model()
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


MINE = {
    "name": "mine",
    "baseURL": "https://mine.example/v1",
    "model": "m",
    "models": ["m", "other/x"],
    "requiresApiKey": True,
}


def write(home: Path, active: str = "mine", **changes: object) -> None:
    document = {"version": 1, "activeProvider": active, "providers": {"mine": MINE | changes}}
    (home / "config.json").write_text(json.dumps(document))


def test_without_a_file_a_key_goes_only_to_a_provider_that_was_named(tmp_path: Path) -> None:
    found = directory(tmp_path, MX_CLAW_API_KEY=KEY)
    with pytest.raises(ProviderNotReady, match="No provider is chosen"):
        found.default_model()
    with pytest.raises(ProviderNotReady, match="No provider is chosen"):
        found.parse("gpt-4o")
    assert found.listed_default() == ModelId("deepseek", "deepseek-flash")
    assert found.ready(found.parse("deepseek/deepseek-flash")) is None
    named = directory(tmp_path, MX_CLAW_API_KEY=KEY, MX_CLAW_MODEL="openai/gpt-4o")
    assert named.ready(named.default_model()) is None


def test_a_file_that_names_no_active_provider_chooses_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"version": 1, "providers": {"mine": MINE}}))
    found = directory(tmp_path, MX_CLAW_API_KEY=KEY)
    with pytest.raises(ProviderNotReady, match="activeProvider"):
        found.default_model()
    assert found.ready(found.parse("mine/m")) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"version": 1,\n "activeProvider": "mine",}', "not valid JSON (line 2, column 27)"),
        (b'{"version": 2}', "has a version that is not 1"),
        (b"[]", "does not hold a JSON object"),
        (b"", "is empty"),
        (b" " * (4 * 1024 * 1024 + 1), "is larger than"),
        (None, "config.json is a folder"),
    ],
    ids=["json", "version", "list", "empty", "large", "folder"],
)
def test_nothing_is_asked_while_the_file_is_damaged(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "config.json"
    if content is None:
        path.mkdir()
        reason = str(path)
    else:
        path.write_bytes(content)
    found = directory(tmp_path, MX_CLAW_API_KEY=KEY)
    named = directory(tmp_path, MX_CLAW_API_KEY=KEY, MX_CLAW_MODEL="ollama/x")
    asked = [
        found.default_model,
        named.default_model,
        *(lambda text=text: found.parse(text) for text in ("deepseek/deepseek-flash", "mine/m", "m", "ollama")),
        lambda: found.parse("gpt-4o", "openai"),
    ]
    for ask in asked:
        with pytest.raises(ProviderNotReady) as refused:
            ask()
        assert reason in str(refused.value) and str(path) in str(refused.value) and "move it away" in str(refused.value)
    for model in (ModelId("deepseek", "deepseek-flash"), ModelId("ollama", "x"), ModelId("mine", "m")):
        assert reason in (found.ready(model) or "")
    assert found.names() == ("openai", "deepseek", "ollama") and found.listed_default() is None
    try:
        model = found.start_rehearsal()
        assert found.ready(model) is None and found.parse("rehearsal/quickstart") == model
    finally:
        found.close()


@pytest.mark.parametrize("before", ["nothing", "damaged", "another"])
def test_a_file_written_after_a_refusal_serves_the_next_request(tmp_path: Path, before: str) -> None:
    if before == "damaged":
        (tmp_path / "config.json").write_text("{")
    elif before == "another":
        write(tmp_path, active="gone", name="mine", baseURL="")
    for ask, meant in [
        (ProviderDirectory.default_model, ModelId("mine", "m")),
        (lambda found: found.parse("mine/x"), ModelId("mine", "x")),
        (lambda found: found.parse("x"), ModelId("mine", "x")),
        (lambda found: found.parse("other/x"), ModelId("mine", "other/x")),
    ]:
        found = directory(tmp_path, MX_CLAW_API_KEY=KEY)
        kept = (tmp_path / "config.json").read_text() if before != "nothing" else None
        found.config.load()
        write(tmp_path)
        model = ask(found)
        assert model == meant and found.ready(model) is None
        (tmp_path / "config.json").unlink()
        if kept is not None:
            (tmp_path / "config.json").write_text(kept)


def test_a_snapshot_that_serves_is_kept_whatever_the_file_becomes(tmp_path: Path) -> None:
    write(tmp_path)
    found = directory(tmp_path, MX_CLAW_API_KEY=KEY)
    first = found.config.load()
    write(tmp_path, active="openai", baseURL="https://moved.example/v1")
    assert found.ready(found.default_model()) is None and found.ready(found.parse("mine/x")) is None
    assert found.config.load() is first
    assert "has changed" in (found.config.take_note() or "") and found.config.take_note() is None
    with pytest.raises(UsageError, match="`PROVIDER/gone/x`"):
        found.parse("gone/x")
    assert found.config.load().active_provider == "openai"


def test_a_provider_that_is_not_ready_is_read_again_once_it_has_changed(tmp_path: Path) -> None:
    write(tmp_path)
    found = directory(tmp_path)
    assert "API key" in (found.ready(ModelId("mine", "m")) or "")
    write(tmp_path, requiresApiKey=False)
    assert found.ready(ModelId("mine", "m")) is None
    write(tmp_path)
    found = directory(tmp_path)
    found.config.load()
    write(tmp_path, active="ollama")
    assert found.default_model() == ModelId("ollama", "llama3.2")


def test_the_rehearsal_is_no_reason_to_read_the_file_again(tmp_path: Path) -> None:
    found = directory(tmp_path)
    first = found.config.load()
    write(tmp_path)
    assert found.ready(found.parse("rehearsal/quickstart")) is not None
    assert found.config.load() is first
