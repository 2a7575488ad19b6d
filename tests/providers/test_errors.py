"""What a refusal means: overflow or not, the provider's own words, and never the key."""

# ruff: noqa: E501  (a row of a table is one line)

from __future__ import annotations

import json
import traceback

import pytest

from mxclaw_nb.protocol import ContextOverflow, ModelError, ProviderNotice
from mxclaw_nb.providers.errors import Failure, clean_message, failure_of_body
from tests.providers.loopback import KEY, Peer, Script, answer, frames, head, play, stream

OVERFLOWS = [
    "prompt is too long: 213462 tokens > 200000 maximum",
    "request_too_large: Request exceeds the maximum size",
    "Input is too long for requested model.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Requested token count exceeds the model's maximum context length of 131072 tokens",
    "Input length (265330) exceeds model's maximum context length (262144).",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Please reduce the length of the messages or completion.",
    "This endpoint's maximum context length is 65536 tokens. However, you requested about 70000 tokens (69000 of text input, 1000 in the output).",
    "Input length 70000 exceeds the maximum allowed input length of 65536 tokens.",
    "The input (70000 tokens) is longer than the model's context length (65536 tokens).",
    "the request exceeds the available context size, try increasing it",
    "request (10027 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "The number of tokens to keep from the initial prompt is greater than the context length.",
    "prompt token count of 130000 exceeds the limit of 128000",
    "invalid params, context window exceeds limit (2013)",
    "Your request exceeded model token limit: 262144 (requested: 270000)",
    "Prompt contains 70000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "prompt too long; exceeded max context length by 17 tokens",
    "prompt too long; exceeded context length",
    "This model's maximum context length is 4096 tokens. However, you requested 5000 output tokens and your prompt contains at least 100 input tokens, for a total of at least 5100 tokens.",
    "This model's maximum context length is 65536 tokens. However, you requested 70010 tokens (70000 in the messages, 10 in the completion). Please reduce the length of the messages or completion.",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 `max_new_tokens`",
    "Range of input length should be [1, 30720]",
    "input is too long",
    "too many tokens in the prompt",
    "token limit exceeded",
    "输入内容超过模型的上下文长度",
]  # fmt: skip
OTHERS = [
    (429, "Too many tokens, please wait before trying again."),
    (400, "ThrottlingException: Too many tokens, please wait before trying again."),
    (429, "Rate limit reached for gpt-5 on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000."),
    (
        413,
        "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7000, please reduce your message size",
    ),
    (429, "You exceeded your current quota, please check your plan and billing details."),
    (400, "number of images exceeds the limit of 5"),
    (400, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens"),
    (400, "Invalid value for 'model'"),
    (500, "Internal Server Error"),
    (503, "Service unavailable: too many tokens in flight"),
]


@pytest.mark.parametrize("message", OVERFLOWS)
@pytest.mark.parametrize(
    "shape",
    [
        lambda message: answer(400, {"error": {"message": message, "type": "invalid_request_error"}}),
        lambda message: answer(400, {"error": message}),
        lambda message: stream(frames({"error": {"message": message, "code": 400}})),
    ],
    ids=["400", "400-text", "in-the-stream"],
)
def test_S67_every_known_wording_of_overflow_is_one(message: str, shape: object) -> None:
    outcome, requests = play(shape(message))  # type: ignore[operator]
    assert type(outcome.error) is ContextOverflow
    assert outcome.error.code == "context_overflow"
    assert len(requests) == 1


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(answer(400, {"error": {"code": 400, "message": "too big", "type": "exceed_context_size_error", "n_ctx": 8192}}), id="llama.cpp"),
        pytest.param(answer(400, {"error": {"message": "no", "code": "context_length_exceeded"}}), id="code"),
        pytest.param(answer(413, b"", content_type="text/plain"), id="413-bare"),
        pytest.param(answer(413, {"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}), id="413-too-large"),
        pytest.param(answer(413, b"<html><title>413 Request Entity Too Large</title></html>", content_type="text/html"), id="413-html"),
        pytest.param(answer(400, b"", content_type="text/plain"), id="400-bare"),
        pytest.param(answer(500, {"error": {"message": "the request exceeds the available context size"}}), id="under-500"),
        pytest.param(stream(frames({"choices": [{"index": 0, "delta": {}, "finish_reason": "model_context_window_exceeded"}]})), id="finish-reason"),
        pytest.param(answer(200, {"error": {"message": OVERFLOWS[0]}}), id="200-json"),
        pytest.param(answer(400, {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": json.dumps({"error": {"message": OVERFLOWS[9]}})}}}), id="behind-a-router"),
    ],
)  # fmt: skip
def test_S67_overflow_is_known_by_its_code_or_status_too(script: Script) -> None:
    outcome, requests = play(script)
    assert type(outcome.error) is ContextOverflow
    assert len(requests) == 1


@pytest.mark.parametrize(("status", "message"), OTHERS)
def test_S67_limits_of_rate_and_quota_are_no_overflow(status: int, message: str) -> None:
    assert not failure_of_body(status, json.dumps({"error": {"message": message}}).encode()).overflow


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error":{"message":"words"}}', "words"),
        (b'{"error":"words"}', "words"),
        (b'{"detail":"words"}', "words"),
        (b'{"detail":[{"loc":["body"],"msg":"words"}]}', "words"),
        (b'{"message":"words"}', "words"),
        (b'{"errors":[{"message":"words"}]}', "words"),
        (b'[{"error":{"message":"words"}}]', "words"),
        (b'{"error":{"message":{"detail":"words"}}}', "words"),
        (b'{"error_msg":"words","error_code":17}', "words"),
        (b'{"error":{"message":"","code":"model_not_found"}}', "model_not_found"),
        (b"words", "words"),
        (b"<html><head><title>502 words</title></head><body>x</body></html>", "502 words"),
        (b"<html><body><h1>words</h1><script>evil()</script></body></html>", "words"),
        ("错误：words".encode("utf-16"), "w"),
        (b"\xff\xfewords", "words"),
    ],
)
def test_the_providers_words_are_found_in_every_shape(body: bytes, words: str) -> None:
    outcome, _ = play(answer(403, body))
    assert type(outcome.error) is ModelError
    assert outcome.error.status == 403
    assert "403" in outcome.error.message
    assert words in outcome.error.message
    assert "<" not in outcome.error.message
    assert "evil" not in outcome.error.message


def test_long_words_are_cut_and_control_characters_go() -> None:
    said = "\x1b[31mred\x1b[0m \x00\x07\u202e\u200b" + "长" * 5000
    outcome, _ = play(answer(400, {"error": {"message": said}}))
    assert outcome.error is not None
    assert len(outcome.error.message) < 1300
    assert outcome.error.message.isprintable()
    assert "[31m" not in outcome.error.message


def echoing(status: int) -> Script:
    async def script(peer: Peer) -> None:
        authorization = peer.request.headers["authorization"]
        body = json.dumps(
            {"error": {"message": "x" * 985 + f" bad: {authorization} {KEY.upper()} {json.dumps(KEY)}", "code": status}}
        )
        await peer.send(head(status, [("Content-Length", str(len(body)))], "application/json") + body.encode())

    return script


@pytest.mark.parametrize(
    "script",
    [
        echoing(401),
        echoing(503),
        stream(frames({"error": {"message": f"key {KEY} is bad", "code": 503}})),
        stream(frames({"choices": [{"delta": {"content": "a"}}]}, {"error": f"key {KEY} is bad"})),
        answer(200, f"<html>{KEY}</html>".encode(), content_type=f"text/{KEY}"),
        answer(302, b"", [("Location", f"https://evil.example/{KEY}?k={KEY}")]),
        answer(200, b"x", [("Content-Encoding", KEY)], "text/event-stream"),
    ],
)
def test_no_error_shows_the_key(script: Script) -> None:
    outcome, requests = play(script)
    assert outcome.error is not None
    assert requests[0].headers["authorization"] == f"Bearer {KEY}"
    shown = "".join(traceback.format_exception(outcome.error)) + repr(outcome.error) + repr(vars(outcome.error))
    shown += "".join(item.text for item in outcome.items if isinstance(item, ProviderNotice))
    assert KEY.lower() not in shown.lower()
    assert "sk-secret" not in shown
    assert outcome.error.__cause__ is None
    assert outcome.error.__context__ is None


def test_a_key_that_straddles_the_cut_is_gone_whole() -> None:
    for before in range(960, 1000):
        assert "sk-s" not in clean_message("x" * before + KEY, [KEY])


def test_a_failure_without_any_words_still_says_what_happened() -> None:
    outcome, _ = play(answer(404, b""))
    assert outcome.error is not None
    assert "404" in outcome.error.message
    assert not Failure("", 404).overflow
