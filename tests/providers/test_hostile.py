"""Whatever JSON and whatever bytes a server makes up, there is an item or an error of ours, never an exception."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxclaw_nb.protocol import Completion, ModelError
from mxclaw_nb.providers import RetryPolicy
from mxclaw_nb.providers.errors import clean_message, failure_of_body, failure_of_event
from mxclaw_nb.providers.reply import ReplyReader
from tests.providers.loopback import Peer, play

KEYS = (
    *("choices", "delta", "message", "content", "tool_calls", "function", "function_call", "name", "arguments", "id"),
    *("index", "text", "type", "usage", "prompt_tokens", "completion_tokens", "prompt_tokens_details", "cached_tokens"),
    *("finish_reason", "error", "code", "status", "detail", "metadata", "raw", "reasoning", "thinking", "x_groq"),
)
TEXTS = st.sampled_from(["", "a", "{}", '{"a":1}', "502", "\ud83c", "\udf78", " "])
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-3, 600), st.floats(), TEXTS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
DELTAS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4)
FRAMES = st.one_of(
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5),
    st.builds(
        lambda delta, finish: {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}, DELTAS, LEAVES
    ),
    st.builds(lambda calls: {"choices": [{"delta": {"tool_calls": calls}}]}, st.lists(DELTAS, max_size=3)),
    VALUES,
)
RELAXED = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@RELAXED
@given(st.lists(FRAMES, max_size=6), st.sampled_from(["text/event-stream", "application/json", ""]))
def test_any_frames_are_read(datas: list[object], content_type: str) -> None:
    body = b"".join(b"data: %b\n\n" % json.dumps(data).encode() for data in datas)
    for text in (body, json.dumps(datas[0] if datas else None).encode()):
        reader = ReplyReader(content_type)
        reader.feed(text)
        reader.close()
        completion = reader.folder.completion("seed")
        partial = reader.folder.partial()
        for part in (completion.text, completion.reasoning, partial.text):
            part.encode()
        ids = [call.id for call in completion.tool_calls]
        assert all(ids)
        assert len(set(ids)) == len(ids)
        for call in completion.tool_calls:
            (call.name + call.arguments + call.id + (completion.finish_reason or "")).encode()
            assert call.name
            assert call.arguments.strip()
        assert isinstance(completion, Completion)


def test_half_a_character_is_nowhere_in_a_call() -> None:
    reader = ReplyReader("text/event-stream")
    call = {"id": "i\ud83c", "name": "n\ud83c", "arguments": "a\ud83c"}
    data = {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "f\ud83c"}]}
    reader.feed(b"data: %b\n\n" % json.dumps(data).encode())
    completion = reader.folder.completion("seed")
    (found,) = completion.tool_calls
    assert (found.id, found.name, found.arguments, completion.finish_reason) == ("i�", "n�", "a�", "f�")


@RELAXED
@given(VALUES, st.integers(400, 599))
def test_any_error_body_is_read(value: object, status: int) -> None:
    data = json.dumps(value).encode()
    for failure in (failure_of_body(status, data), failure_of_event(data)):
        assert clean_message(failure.message, ["sk-secret"]).isprintable()
        assert failure.overflow in (True, False)


@given(st.text(max_size=40) | st.from_regex(r"\w{3}, \d{1,2} \w{3} \d{4} \d\d:\d\d:\d\d \w+", fullmatch=True))
def test_any_retry_after_is_seconds_or_nothing(value: str) -> None:
    policy = RetryPolicy(now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    seconds = policy.retry_after({"retry-after": value, "retry-after-ms": value})
    assert seconds is None or seconds >= 0
    assert policy.when(seconds or 0.0)


@pytest.mark.parametrize(
    "framing",
    [
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\ndata:xx\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 10_000,
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 99999999999999999999\r\n\r\n",
        b"Content-Length: 50\r\n\r\nshort",
    ],
)
def test_a_broken_framing_is_an_error(framing: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + framing)
        peer.writer.close()

    outcome, _ = play(script)
    assert isinstance(outcome.error, ModelError)
