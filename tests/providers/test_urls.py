"""Base URLs in every spelling give exactly one address of chat completions."""

# ruff: noqa: E501  (a row of a table is one line)

from __future__ import annotations

import asyncio

import pytest

from mxclaw_nb.protocol import ConfigurationError, ModelId
from mxclaw_nb.providers.urls import parse_base_url
from tests.providers.loopback import STOP, Loopback, delta, frames, provider_for, run, stream


@pytest.mark.parametrize(
    ("text", "chat"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1///", "https://api.openai.com/v1/chat/completions"),
        ("  https://api.openai.com/v1 \n", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1/chat/completions/", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com//v1//chat/completions//", "https://api.openai.com/v1/chat/completions"),
        ("https://api.deepseek.com", "https://api.deepseek.com/chat/completions"),
        ("https://api.deepseek.com/", "https://api.deepseek.com/chat/completions"),
        ("https://h/av1", "https://h/av1/chat/completions"),
        ("https://h/v1beta", "https://h/v1beta/chat/completions"),
        ("https://h/v1beta/openai/", "https://h/v1beta/openai/chat/completions"),
        ("https://h/v10", "https://h/v10/chat/completions"),
        ("https://h/api/paas/v4", "https://h/api/paas/v4/chat/completions"),
        ("HTTPS://API.Example.COM/V1", "https://api.example.com/V1/chat/completions"),
        ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1/chat/completions"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1/chat/completions"),
        ("http://[2001:DB8::1]/v1", "http://[2001:db8::1]/v1/chat/completions"),
        ("https://h:443/v1", "https://h/v1/chat/completions"),
        ("https://h/v1#part", "https://h/v1/chat/completions"),
        ("https://例子.测试/v1", "https://xn--fsqu00a.xn--0zwm56d/v1/chat/completions"),
        ("https://r.openai.azure.com/openai/deployments/d?api-version=2024-10-21", "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21"),
        ("https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=1", "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=1"),
        ("https://r.openai.azure.com/openai/deployments/d/?api-version=1", "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=1"),
    ],
)  # fmt: skip
def test_S66_one_address_whatever_the_spelling(text: str, chat: str) -> None:
    base = parse_base_url(text, "acme")
    assert base.with_query(base.chat) == chat
    assert base.models == base.chat.removesuffix("/chat/completions") + "/models"


@pytest.mark.parametrize(
    "text",
    ["", "  ", "api.openai.com/v1", "localhost:11434/v1", "ftp://h/v1", "file:///etc/passwd", "https://", "https:///v1",
     "https://h:port/v1", "https://h:99999/v1", "https://[::1/v1", "https://a b/v1", "https://h/v1\r\nX: y", "https://[gg::1]/", "//h/v1"],
)  # fmt: skip
def test_a_base_url_that_cannot_be_used_is_a_sentence(text: str) -> None:
    with pytest.raises(ConfigurationError, match="base URL of provider acme"):
        parse_base_url(text, "acme")
    sentence = provider_for(text).ready(ModelId("acme", "m"))
    assert sentence is not None
    assert "acme" in sentence
    outcome = run(text)
    assert outcome.error is not None
    assert outcome.error.exit_status == 2


@pytest.mark.parametrize(
    "text", ["https://user:hunter2-hunter2@h:x/v1", "ftp://user:hunter2-hunter2@h", "user:hunter2-hunter2@h/v1"]
)
def test_credentials_in_a_bad_url_are_not_shown(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_base_url(text, "acme")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_credentials_in_a_url_are_sent_as_such_and_shown_nowhere() -> None:
    with Loopback([stream(frames(delta(content="a"), STOP))]) as server:
        url = server.url.replace("http://", "http://user:hunter2-hunter2@")
        assert run(url, key=None).error is None
        assert server.requests[0].headers["authorization"] == "Basic dXNlcjpodW50ZXIyLWh1bnRlcjI="
        assert run(url).error is None
        assert server.requests[1].headers["authorization"].startswith("Bearer ")
    outcome = run(url, key=None)  # the server is gone
    assert outcome.error is not None
    assert "hunter2" not in outcome.error.message
    assert "hunter2" not in repr(parse_base_url(url, "acme"))


def test_the_query_and_path_go_out_as_they_are() -> None:
    with Loopback([stream(frames(delta(content="a"), STOP))]) as server:
        assert run(f"{server.url}/d%20x/é?api-version=2024-10-21&x=ü").error is None
        assert server.requests[0].target == "/v1/d%20x/%C3%A9/chat/completions?api-version=2024-10-21&x=%C3%BC"


def test_a_query_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with Loopback([stream(frames(delta(content="a"), STOP))]) as server:
        assert run(f"{server.url}?api-key=verysecretvalue").error is None
        assert "verysecretvalue" in server.requests[0].target
    assert "verysecretvalue" not in caplog.text
    assert "sk-secret" not in caplog.text


def test_ready_says_what_is_missing() -> None:
    assert provider_for("http://h").ready(ModelId("acme", "m")) is None
    assert "nobody" in (provider_for("http://h").ready(ModelId("nobody", "m")) or "")
    assert "key" in (provider_for("http://h", key=None, requires_key=True).ready(ModelId("acme", "m")) or "")
    assert "model" in (provider_for("http://h").ready(ModelId("acme", "")) or "")


def test_asking_without_a_needed_key_is_refused_before_anything_is_sent() -> None:
    from mxclaw_nb.protocol import ProviderNotReady
    from tests.providers.loopback import ask, consume

    with Loopback([stream(b"")]) as server:
        outcome = asyncio.run(consume(provider_for(server.url, key=None, requires_key=True), ask()))
        assert type(outcome.error) is ProviderNotReady
        assert not server.requests
