"""config.json is read as the original wrote it, whatever its state, and never gives a key away."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from mxclaw_nb.providers.config import CONFIG_LIMIT, ConfigStore, default_config

KEY = "sk-never-to-be-seen-4711"


def stored(home: Path, document: object) -> ConfigStore:
    text = document if isinstance(document, bytes) else json.dumps(document, ensure_ascii=False).encode()
    (home / "config.json").write_bytes(text)
    return ConfigStore(home)


def provider(**changes: object) -> dict[str, object]:
    return {
        "name": "openrouter",
        "kind": "custom",
        "baseURL": "https://router.example/v1",
        "model": "meta-llama/llama-3",
        "models": ["meta-llama/llama-3"],
        "apiKey": "",
        "requiresApiKey": True,
        "configured": True,
    } | changes


def test_without_a_file_the_catalogue_is_served(tmp_path: Path) -> None:
    store = ConfigStore(tmp_path / "not-there")
    config = store.load()
    assert store.warnings == ()
    assert config.active_provider == "deepseek"
    assert {
        name: (found.base_url, found.model, found.models, found.requires_api_key)
        for name, found in config.providers.items()
    } == {
        "openai": ("https://api.openai.com/v1", "gpt-4o-mini", ("gpt-4o-mini", "gpt-4o"), True),
        "deepseek": ("https://api.deepseek.com", "deepseek-flash", ("deepseek-flash", "deepseek-v4-pro"), True),
        "ollama": ("http://127.0.0.1:11434/v1", "llama3.2", ("qwen2.5-coder", "deepseek-r1"), False),
    }
    assert all(found.kind == "builtin" and not found.configured for found in config.providers.values())
    assert not (tmp_path / "not-there").exists()


def test_a_file_of_the_original_is_read_with_its_unknown_fields(tmp_path: Path) -> None:
    document = {
        "version": 1,
        "activeProvider": "openrouter",
        "futureSwitch": {"on": True},
        "providers": {"openrouter": provider(region="北京")},
    }
    store = stored(tmp_path, document)
    config = store.load()
    assert store.warnings == ()
    assert config.active_provider == "openrouter"
    found = config.providers["openrouter"]
    assert (found.base_url, found.model, found.models) == (
        "https://router.example/v1",
        "meta-llama/llama-3",
        ("meta-llama/llama-3",),
    )
    assert found.configured and found.requires_api_key
    assert {"openai", "deepseek", "ollama"} < set(config.providers)
    written = config.model_dump(mode="json")
    assert written["futureSwitch"] == {"on": True}
    assert written["providers"]["openrouter"] == {k: v for k, v in provider(region="北京").items() if k != "apiKey"}


def test_the_wire_names_of_the_catalogue_are_the_originals() -> None:
    written = default_config().model_dump(mode="json")
    assert set(written) == {"version", "activeProvider", "providers"}
    assert set(written["providers"]["openai"]) == set(provider()) - {"apiKey"}


@pytest.mark.parametrize("spelling", ["apiKey", "api_key", "APIKEY", "api-key"])
@pytest.mark.parametrize("value", [KEY, [KEY], {"value": KEY}])
def test_a_key_in_the_file_is_dropped_and_said_once(tmp_path: Path, spelling: str, value: object) -> None:
    entry = provider() | {spelling: value}
    document = {"version": 1, "activeProvider": "a", "providers": {"a": entry, "b": entry}, spelling: value}
    store = stored(tmp_path, document)
    config = store.load()
    assert len(store.warnings) == 1 and "API key" in store.warnings[0]
    held = repr(config) + str(config.model_dump()) + repr(vars(store)) + "".join(store.warnings)
    assert KEY not in held
    assert not hasattr(config.providers["a"], "api_key")


def test_an_empty_key_is_no_reason_for_a_word(tmp_path: Path) -> None:
    assert stored(tmp_path, {"version": 1, "providers": {"a": provider(apiKey="")}}).warnings == ()


def test_what_we_do_not_know_is_not_shown(tmp_path: Path) -> None:
    entry = provider(headers={"X-Auth": KEY}, baseURL=f"https://me:{KEY}@router.example/v1")
    config = stored(tmp_path, {"version": 1, "providers": {"a": entry}}).load()
    assert KEY not in repr(config) and KEY not in str(config)
    assert KEY in config.providers["a"].base_url


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b'{"version": 1, "providers": {"a": {"apiKey": "' + KEY.encode(), "not valid JSON"),
        (b'{"apiKey": "%b" oops}' % KEY.encode(), "not valid JSON"),
        (b"\xff\xfe{\x00}\x00", "not valid JSON"),
        (b'{"version": NaN}', "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'["%b"]' % KEY.encode(), "JSON object"),
        (b'"%b"' % KEY.encode(), "JSON object"),
        (b"null", "JSON object"),
        (b'{"version": 2}', "version"),
        (b'{"version": true}', "version"),
        (b'{"version": "%b"}' % KEY.encode(), "version"),
        (b'{"version": 1, "providers": ["%b"]}' % KEY.encode(), "providers"),
        (b'{"version": 1, "activeProvider": {"%b": 1}}' % KEY.encode(), "activeProvider"),
        (b'{"version": 1, "activeProvider": "a\\u001b[31mb"}', "activeProvider"),
        (b'{"version": 1, "activeProvider": ""}', "activeProvider"),
        (b" " * (CONFIG_LIMIT + 1), "larger than"),
    ],
    ids=range(18),
)
def test_a_damaged_file_is_reported_and_left_alone(tmp_path: Path, content: bytes, reason: str) -> None:
    store = stored(tmp_path, content)
    assert store.load() == default_config()
    (warning,) = store.warnings
    assert reason in warning and str(tmp_path / "config.json") in warning
    assert KEY not in warning
    assert (tmp_path / "config.json").read_bytes() == content
    assert store.loaded().damage is not None and KEY not in repr(store.loaded())


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'{"version": 1,}', "line 1, column 15"),
        (b'{"version": 1,\n "activeProvider" "mine"}', "line 2, column 19"),
        ('{"名": "值",\r\n  "提供者" oops}'.encode(), "line 2, column 9"),
        ('\ufeff{"键" oops}'.encode(), "line 1, column 6"),
        (b'{"a": "\xff' + KEY.encode() + b'"}', "line 1, column"),
        (b'{"a": "' + KEY.encode() + b'\n at line 9 column 9"}', "line 2, column 1)"),
    ],
    ids=["comma", "colon", "chinese", "mark", "not utf-8", "line break"],
)
def test_the_place_of_a_slip_in_the_json_is_named_and_its_text_is_not(
    tmp_path: Path, content: bytes, place: str
) -> None:
    (warning,) = stored(tmp_path, content).warnings
    assert f"config.json is not valid JSON ({place}" in warning and KEY not in warning and "oops" not in warning


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.mkdir(),
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to(path),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("not-mounted.json"),
    ],
    ids=["folder", "fifo", "symlink loop", "endless device", "dangling symlink"],
)
def test_what_is_no_file_is_reported_and_holds_nobody_up(tmp_path: Path, make) -> None:
    make(tmp_path / "config.json")
    store = ConfigStore(tmp_path)
    assert store.load() == default_config()
    assert len(store.warnings) == 1


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("a", 5),
        ("a", [KEY]),
        ("a", provider(models=KEY)),
        ("a", provider(models=[1])),
        ("a", provider(baseURL=[KEY])),
        ("a", provider(requiresApiKey="no")),
        ("a", provider(kind=KEY)),
        ("a/b", provider()),
        ("", provider()),
        (" a", provider()),
        ("a\nb", provider()),
        ("a b", provider()),
        ("a" * 101, provider()),
        ("rehearsal", provider(baseURL="https://elsewhere.example")),
        ("deepseek", provider(baseURL=7)),
    ],
    ids=range(15),
)
def test_a_provider_that_cannot_be_used_does_not_hide_the_others(tmp_path: Path, name: str, entry: object) -> None:
    store = stored(tmp_path, {"version": 1, "activeProvider": "good", "providers": {name: entry, "good": provider()}})
    config = store.load()
    assert name not in config.providers
    assert config.active_provider == "good" and config.providers["good"].name == "good"
    (warning,) = store.warnings
    assert KEY not in warning and "\n" not in warning


def test_a_byte_order_mark_is_no_damage(tmp_path: Path) -> None:
    store = stored(tmp_path, b"\xef\xbb\xbf" + json.dumps({"version": 1, "activeProvider": "ollama"}).encode())
    assert store.load().active_provider == "ollama" and store.warnings == ()


def test_the_file_is_read_once_until_it_is_asked_to_read_again(tmp_path: Path) -> None:
    store = stored(tmp_path, {"version": 1, "activeProvider": "ollama"})
    first = store.load()
    stored(tmp_path, {"version": 1, "activeProvider": "openai"})
    assert store.load() is first
    assert store.reload().active_provider == "openai"
    assert store.load().active_provider == "openai"


def test_a_refresh_reads_only_a_file_that_has_changed(tmp_path: Path) -> None:
    store = ConfigStore(tmp_path)
    first = store.load()
    assert not store.refresh() and store.load() is first and store.changed_note is None
    stored(tmp_path, {"version": 1, "activeProvider": "ollama"})
    assert store.load() is first and "has changed" in (store.changed_note or "")
    assert store.refresh() and store.load().active_provider == "ollama" and store.changed_note is None
    assert not store.refresh() and store.take_note() is None
    os.utime(tmp_path / "config.json", ns=(1, 1))
    assert store.refresh() and "was read again" in (store.take_note() or "") and store.take_note() is None


@pytest.mark.parametrize("content", [b"", b'{"version": 2}', None], ids=["emptied", "newer", "removed"])
def test_what_was_read_from_a_good_file_is_replaced_only_by_a_good_file(tmp_path: Path, content: bytes | None) -> None:
    store = stored(tmp_path, {"version": 1, "activeProvider": "ollama"})
    good = store.load()
    if content is None:
        (tmp_path / "config.json").unlink()
    else:
        stored(tmp_path, content)
    assert not store.refresh() and store.load() is good
    assert "stays in force" in (store.take_note() or "") and store.take_note() is None
    stored(tmp_path, {"version": 1, "activeProvider": "openai"})
    assert store.refresh() and store.load().active_provider == "openai"


@pytest.mark.parametrize(
    ("document", "chosen"),
    [({"version": 1, "activeProvider": "deepseek"}, True), ({"version": 1, "providers": {"a": provider()}}, False)],
    ids=["named", "left out"],
)
def test_only_a_named_active_provider_is_chosen(tmp_path: Path, document: object, chosen: bool) -> None:
    loaded = stored(tmp_path, document).loaded()
    assert loaded.usable and loaded.active_chosen is chosen and loaded.config.active_provider == "deepseek"
    assert not ConfigStore(tmp_path / "empty").loaded().active_chosen


def test_reading_is_quick(tmp_path: Path) -> None:
    providers = {f"p{n}": provider(models=[f"model-{k}" for k in range(20)]) for n in range(50)}
    store = stored(tmp_path, {"version": 1, "activeProvider": "p1", "providers": providers})
    store.load()
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        store.reload()
        taken.append(time.perf_counter() - began)
    assert min(taken) < 0.005
