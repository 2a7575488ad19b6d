"""What is sent: the wire form of messages, encoded once each, and the headers."""

# ruff: noqa: E501  (a row of a table is one line)

from __future__ import annotations

import asyncio
import gc
import json
import time

import pytest
from pydantic import SecretStr

from mxclaw_nb.protocol import Message, ModelId, ModelProvider, ModelRequest, ToolCall, ToolSpec, UsageError
from mxclaw_nb.providers import Endpoint, ModelProfile, OpenAICompatibleProvider, Price
from mxclaw_nb.providers.request import RequestEncoder, encode_message
from mxclaw_nb.providers.target import find_target
from tests.providers.loopback import KEY, STOP, USAGE, Loopback, delta, frames, provider_for, run, stream

GOOD = stream(frames(delta(content="hi"), STOP, USAGE))
CALL = ToolCall("c1", "read_file", '{"path":"a"}')


def wire(message: Message, profile: ModelProfile | None = None) -> dict[str, object]:
    value = json.loads(encode_message(message, profile or ModelProfile()))
    assert isinstance(value, dict)
    return value


def test_the_provider_is_a_model_provider() -> None:
    provider: ModelProvider = provider_for("http://h")
    assert isinstance(provider, OpenAICompatibleProvider)


def test_a_request_as_the_server_gets_it() -> None:
    messages = [
        Message("system", "be brief"),
        Message("user", "读 a"),
        Message("assistant", "", tool_calls=(CALL,)),
        Message("tool", "content", tool_call_id="c1"),
    ]
    tools = [ToolSpec("read_file", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})]
    with Loopback([GOOD]) as server:
        assert run(server.url, ModelRequest(ModelId("acme", "vendor/m1"), messages, tools, 100)).error is None
        request = server.requests[0]
    assert request.line == "POST /v1/chat/completions HTTP/1.1"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert request.json == {
        "model": "vendor/m1",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "读 a"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"a"}'}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "content"},
        ],
        "tools": [{"type": "function", "function": {"name": "read_file", "description": "Read a file.", "parameters": tools[0].parameters}}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 100,
    }  # fmt: skip


def test_without_a_key_there_is_no_authorization_header() -> None:
    with Loopback([GOOD]) as server:
        assert run(server.url, key=None).error is None
        assert run(server.url, key="  ").error is None
        assert all("authorization" not in request.headers for request in server.requests)


def test_S55_reasoning_is_replayed_only_where_the_profile_says_so() -> None:
    message = Message("assistant", "", tool_calls=(CALL,), reasoning="thought")
    assert "reasoning_content" not in wire(message)
    assert wire(message, ModelProfile(replay_reasoning=True))["reasoning_content"] == "thought"


def test_S56_a_message_of_calls_only_has_no_content_or_an_empty_one() -> None:
    message = Message("assistant", "", tool_calls=(CALL,))
    assert wire(message)["content"] is None
    assert wire(message, ModelProfile(empty_content="empty"))["content"] == ""


def test_S57_no_calls_means_no_key() -> None:
    assert wire(Message("assistant", "hi")) == {"role": "assistant", "content": "hi"}


def test_a_reply_with_nothing_in_it_is_not_sent() -> None:
    with Loopback([GOOD]) as server:
        run(
            server.url,
            ModelRequest(ModelId("acme", "m"), [Message("user", "a"), Message("assistant", ""), Message("user", "b")]),
        )
        assert [message["content"] for message in server.requests[0].json["messages"]] == ["a", "b"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["", "  ", "\n\t", "\u3000"])
def test_S58_an_empty_message_is_refused_here(text: str) -> None:
    with Loopback([GOOD]) as server:
        outcome = run(server.url, ModelRequest(ModelId("acme", "m"), [Message("user", text)]))
        assert type(outcome.error) is UsageError
        assert not server.requests


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ("", {}),
        ("  ", {}),
        ('{"a":1}', {"a": 1}),
        ('{"path":"a', {"malformed_arguments": '{"path":"a'}),
        ("[1]", {"malformed_arguments": "[1]"}),
    ],
)
def test_past_arguments_are_always_an_object(arguments: str, sent: object) -> None:
    message = wire(Message("assistant", "", tool_calls=(ToolCall("c", "x", arguments),)))
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == sent  # type: ignore[index]


@pytest.mark.parametrize("text", ["a\ud83d", "\udf78", "\ud83c\udf78", 'quote" back\\ \u2028 \x00 好'])
def test_any_text_can_be_sent(text: str) -> None:
    content = wire(Message("user", text))["content"]
    assert isinstance(content, str)
    content.encode()
    assert content == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def test_the_profiles_wishes_are_sent() -> None:
    profile = ModelProfile(
        include_usage=False,
        max_tokens_field="max_completion_tokens",
        temperature=0.0,
        reasoning_effort="low",
        headers={"X-Title": "me"},
    )
    with Loopback([GOOD]) as server:
        run(server.url, ModelRequest(ModelId("acme", "m"), [Message("user", "a")], (), 7), profile=profile)
        request = server.requests[0]
    assert request.headers["x-title"] == "me"
    assert request.json == {
        "model": "m", "messages": [{"role": "user", "content": "a"}], "stream": True,
        "max_completion_tokens": 7, "temperature": 0.0, "reasoning_effort": "low",
    }  # fmt: skip


@pytest.mark.parametrize("headers", [{"X": "a\r\nEvil: 1"}, {"X\r\nEvil": "1"}, {"": "1"}, {"X": "好"}, {"X Y": "1"}])
def test_a_header_cannot_break_out_of_its_line(headers: dict[str, str]) -> None:
    with Loopback([GOOD]) as server:
        outcome = run(server.url, profile=ModelProfile(headers=headers))
        assert outcome.error is not None
        assert outcome.error.exit_status == 2
        assert not server.requests


JWT = "eyJhbGciOiJub25lIn0.eyJhIjoxfQ.c2ln"


@pytest.mark.parametrize(
    ("base_url", "key", "headers", "sent"),
    [
        ("https://me.openai.azure.com/openai/v1", "k-1234", {}, "k-1234"),
        ("https://me.cognitiveservices.azure.com/openai/v1", "k-1234", {}, "k-1234"),
        ("https://gateway.example/openai/deployments/d?api-version=2024-10-21", "k-1234", {}, "k-1234"),
        ("https://me.openai.azure.com/openai/v1", "k-1234", {"Api-Key": "another"}, None),
        ("https://me.openai.azure.com/openai/v1", JWT, {}, None),
        ("https://openai.azure.com.evil.example/v1", "k-1234", {}, None),
        ("https://gateway.example/v1?my-api-version=1", "k-1234", {}, None),
        ("https://api.openai.com/v1", "k-1234", {}, None),
    ],
)
def test_azure_gets_the_key_in_its_own_header_too(
    base_url: str, key: str, headers: dict[str, str], sent: str | None
) -> None:
    async def key_for(_name: str) -> SecretStr:
        return SecretStr(key)

    endpoint = Endpoint("acme", base_url, profile=ModelProfile(headers=headers))
    target = asyncio.run(find_target(ModelId("acme", "m"), lambda _name: endpoint, key_for))
    assert target.headers["Authorization"] == f"Bearer {key}"
    assert target.headers.get("api-key") == sent
    assert sum(name.lower() == "api-key" for name in target.headers) == (1 if sent or headers else 0)
    assert key not in target.clean(f"bad {key}")


@pytest.mark.parametrize("key", ["sk-a\r\nEvil: 1", "sk-钥匙", "sk-\x00"])
def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(key: str) -> None:
    with Loopback([GOOD]) as server:
        outcome = run(server.url, key=key)
        assert outcome.error is not None
        assert outcome.error.exit_status == 2
        assert "sk-" not in outcome.error.message
        assert not server.requests


def test_a_price_gives_a_cost_and_none_gives_none() -> None:
    with Loopback([GOOD]) as server:
        priced = run(server.url, profile=ModelProfile(price=Price(1.0, 2.0)))
        free = run(server.url)
        assert priced.items[-1].usage.cost == pytest.approx(5e-6)  # type: ignore[union-attr]
        assert free.items[-1].usage.cost is None  # type: ignore[union-attr]
    assert provider_for("http://h", profile=ModelProfile(price=Price(1.0, 2.0))).price_known(ModelId("acme", "m"))
    assert not provider_for("http://h").price_known(ModelId("acme", "m"))


def test_cached_input_is_billed_once() -> None:
    from mxclaw_nb.protocol import Usage
    from mxclaw_nb.providers.usage import cost_of

    assert cost_of(Usage(1000, 0, 900), Price(10.0, 0.0, 1.0)) == pytest.approx((100 * 10 + 900 * 1) / 1e6)


def history(count: int) -> list[Message]:
    turns = [
        (Message("user", f"question {n} " + "text " * 50), Message("assistant", f"answer {n}", tool_calls=(CALL,)), Message("tool", "x" * 200, tool_call_id="c1"), Message("assistant", "done"))
        for n in range(count // 4)
    ]  # fmt: skip
    return [*(message for turn in turns for message in turn), Message("user", "last")]


def test_a_round_costs_what_is_new() -> None:
    encoder, messages = RequestEncoder(), history(2000)
    request = ModelRequest(ModelId("acme", "m"), messages)
    first = encoder.encode(request, ModelProfile())
    best = min(_timed(encoder, request) for _ in range(7))
    assert best < 0.02  # about 2 ms where nothing else runs
    grown = ModelRequest(ModelId("acme", "m"), [*messages[:-1], Message("user", "new")])
    second = encoder.encode(grown, ModelProfile())
    prefix = first[: first.index(b'{"role":"user","content":"last"}')]
    assert second.startswith(prefix)
    assert len(json.loads(second)["messages"]) == len(messages)


def _timed(encoder: RequestEncoder, request: ModelRequest) -> float:
    started = time.process_time()
    encoder.encode(request, ModelProfile())
    return time.process_time() - started


def test_encoded_forms_go_with_their_messages() -> None:
    encoder, messages = RequestEncoder(), history(40)
    encoder.encode(ModelRequest(ModelId("acme", "m"), messages), ModelProfile())
    (cache,) = encoder._encoded.values()
    assert len(cache._forms) == len(messages)
    messages.clear()
    gc.collect()
    assert not cache._forms


def test_two_profiles_do_not_share_their_encoded_forms() -> None:
    encoder = RequestEncoder()
    request = ModelRequest(
        ModelId("acme", "m"),
        [Message("user", "a"), Message("assistant", "", tool_calls=(CALL,)), Message("tool", "x", tool_call_id="c1")],
    )
    assert b'"content":null' in encoder.encode(request, ModelProfile())
    assert b'"content":""' in encoder.encode(request, ModelProfile(empty_content="empty"))
    assert b'"content":null' in encoder.encode(request, ModelProfile())


def test_an_endpoint_shows_no_secret() -> None:
    assert KEY not in repr(Endpoint("acme", "http://h"))
    assert KEY not in repr(vars(provider_for("http://h")))
