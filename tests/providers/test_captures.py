"""Answers recorded from two real servers, played back byte for byte; and cut at every byte, with the same outcome."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxclaw_nb.protocol import (
    Completion,
    EmptyStream,
    ModelError,
    ReasoningDelta,
    StreamItem,
    TextDelta,
)
from mxclaw_nb.providers.reply import ReplyReader
from tests.providers.loopback import Loopback, Peer, Script, chunked, head, play, provider_for

FOLDER = Path(__file__).parent.parent / "data" / "captures"
NAMES = sorted(path.name.removesuffix(".meta.json") for path in FOLDER.glob("*.meta.json"))


@dataclass(frozen=True)
class Capture:
    """A recorded answer."""

    name: str
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @classmethod
    def read(cls, name: str) -> Capture:
        meta = json.loads((FOLDER / f"{name}.meta.json").read_text())
        headers = tuple((key, value) for key, value in meta["headers"])
        return cls(name, meta["status"], headers, (FOLDER / f"{name}.txt").read_bytes())

    @property
    def content_type(self) -> str:
        return next(value for key, value in self.headers if key.lower() == "content-type")

    def script(self) -> Script:
        """The answer as the server gave it, framed again."""

        async def script(peer: Peer) -> None:
            framing = ("content-length", "transfer-encoding")
            headers = [pair for pair in self.headers if pair[0].lower() not in framing]
            if any(key.lower() == "transfer-encoding" for key, _ in self.headers):
                headers.append(("Transfer-Encoding", "chunked"))
                body = (chunked(self.body, 700) if self.body else b"") + b"0\r\n\r\n"
            else:
                headers.append(("Content-Length", str(len(self.body))))
                body = self.body
            await peer.send(head(self.status, headers, None) + body)

        return script


STREAMS = [name for name in NAMES if b"data: {" in Capture.read(name).body]
# name -> (text begins with, calls)
EXPECTED: dict[str, tuple[str, list[tuple[str, dict[str, str]]]]] = {
    "llamacpp-qwen15-text-stream": ("Hello!", []),
    "llamacpp-qwen15-text-stream-usage": ("Hello!", []),
    "llamacpp-qwen15-text-nonstream": ("Hello!", []),
    "llamacpp-qwen15-text-stream-unicode": ("Hallo", []),
    "llamacpp-qwen15-tool-auto-stream": ("", [("read_file", {"path": "notes.txt"})]),
    "llamacpp-qwen15-tool-auto-nonstream": ("", [("read_file", {"path": "notes.txt"})]),
    "llamacpp-qwen15-tool-required-stream": ("", [("read_file", {"path": "notes.txt"})]),
    "llamacpp-qwen15-tool-named-stream": ("", [("read_file", {"path": "notes.txt"})]),
    "llamacpp-qwen15-tool-none-stream": ("```json", []),
    "llamacpp-qwen15-tool-result-answer-stream": ("The file", []),
    "lcpserver-smollm2-text-nonstream": ("Awesome, welcome", []),
    "lcpserver-smollm2-tool-auto-nonstream": ("", [("read_file", {"path": "notes.txt"})]),
}
FAILURES: dict[str, tuple[type[ModelError], int | None, str]] = {
    "llamacpp-qwen15-error-bad-json": (ModelError, 400, "parse error at line 1"),
    "llamacpp-qwen15-error-bad-tool-choice": (ModelError, 400, "Invalid tool_choice"),
    "llamacpp-qwen15-error-bad-tool-schema": (ModelError, 400, "unrecognized type nonsense"),
    "llamacpp-qwen15-error-no-messages": (ModelError, 400, "'messages' is required"),
    "llamacpp-qwen15-error-not-found": (ModelError, 404, "File Not Found"),
    "lcpserver-smollm2-error-bad-json": (ModelError, 500, "Internal Server Error"),
    "lcpserver-smollm2-error-bad-role": (ModelError, 500, "validation errors"),
    "lcpserver-smollm2-error-bad-tool-choice": (ModelError, 500, "validation errors"),
    "lcpserver-smollm2-json-schema-stream": (ModelError, 500, "validation error"),
    "lcpserver-smollm2-tool-result-answer-stream": (ModelError, 500, "validation errors"),
    "lcpserver-smollm2-error-not-found": (ModelError, 404, "Not Found"),
    "lcpserver-smollm2-error-bad-tool-schema": (EmptyStream, None, "empty reply"),
    "lcpserver-smollm2-error-context-too-long": (EmptyStream, None, "empty reply"),
    "lcpserver-smollm2-tool-auto-stream": (EmptyStream, None, "empty reply"),
}
MODELS = {"llamacpp-qwen15-models": ["qwen-coder-1.5b"], "lcpserver-smollm2-models": ["local"]}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FAILURES and name not in MODELS])
def test_a_recorded_reply_is_read(name: str) -> None:
    capture = Capture.read(name)
    outcome, _ = play(capture.script())
    assert outcome.error is None, outcome.error
    completion = outcome.items[-1]
    assert isinstance(completion, Completion)
    assert completion.finish_reason in ("stop", "length", "tool_calls")
    assert completion.incomplete == (completion.finish_reason == "length")
    assert completion.text == "".join(item.text for item in outcome.items if isinstance(item, TextDelta))
    assert completion.usage is not None
    assert completion.usage.estimated == (b'"usage":{' not in capture.body)
    assert all(json.loads(call.arguments) is not None for call in completion.tool_calls)
    if name in EXPECTED:
        text, calls = EXPECTED[name]
        assert completion.text.startswith(text)
        assert bool(completion.text) == bool(text)
        assert [(call.name, json.loads(call.arguments)) for call in completion.tool_calls] == calls


def test_a_peer_that_repeats_names_and_speaks_two_dialects_makes_one_call() -> None:
    outcome, _ = play(Capture.read("lcpserver-smollm2-tool-named-stream").script())
    completion = outcome.items[-1]
    assert isinstance(completion, Completion)
    assert [call.name for call in completion.tool_calls] == ["read_file"]
    assert isinstance(json.loads(completion.tool_calls[0].arguments), dict)


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_a_recorded_refusal_is_an_error(name: str) -> None:
    outcome, requests = play(Capture.read(name).script())
    kind, status, words = FAILURES[name]
    assert type(outcome.error) is kind
    assert outcome.error.status == status
    assert words in outcome.error.message
    assert len(requests) == (4 if status == 500 else 1)


@pytest.mark.parametrize("name", ["llamacpp-error-401-no-key", "llamacpp-error-401-wrong-key"])
def test_a_recorded_refusal_of_the_key_is_an_error(name: str) -> None:
    body = (FOLDER / f"{name}.txt").read_bytes()
    outcome, requests = play(Capture(name, 401, (("Content-Type", "application/json"),), body).script())
    assert type(outcome.error) is ModelError
    assert outcome.error.status == 401
    assert "Invalid API Key" in outcome.error.message
    assert len(requests) == 1


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_recorded_list_of_models_is_read(name: str) -> None:
    import asyncio

    async def main(url: str) -> list[str]:
        provider = provider_for(url)
        try:
            return await provider.list_models("acme")
        finally:
            await provider.aclose()

    with Loopback([Capture.read(name).script()]) as server:
        assert asyncio.run(main(server.url)) == MODELS[name]
        assert server.requests[0].line.startswith("GET /v1/models ")


# Re-cutting


def read_in(pieces: list[bytes], content_type: str) -> list[StreamItem]:
    reader = ReplyReader(content_type)
    items: list[StreamItem] = []
    for piece in pieces:
        items += reader.feed(piece)
        if reader.done:
            break
    items += reader.close()
    items.append(reader.folder.completion("seed"))
    if reader.failure is not None:
        items.append(TextDelta(f"failure: {reader.failure}"))
    return items


SPELLINGS = {
    "as-it-is": lambda body: body,
    "crlf": lambda body: body.replace(b"\n", b"\r\n"),
    "several-lines": lambda body: body.replace(b'"choices"', b'\ndata: "choices"').replace(b"\n", b"\r\n"),
    "cr": lambda body: body.replace(b"\n", b"\r"),
    "bom": lambda body: b"\xef\xbb\xbf" + body,
    "comments": lambda body: body.replace(b"\n\n", b"\n\n: x\n\n:\n"),
    "no-end": lambda body: body.rstrip(b"\n"),
    "error-last": lambda body: body.replace(b"data: [DONE]", b'event: error\ndata: {"error":"x"}'),
}


@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_anywhere_gives_the_same_items(name: str, spelling: str) -> None:
    capture = Capture.read(name)
    body = SPELLINGS[spelling](capture.body)
    whole = read_in([body], capture.content_type)
    assert any(isinstance(item, (TextDelta, ReasoningDelta)) for item in whole) or whole[-1].tool_calls  # type: ignore[union-attr]
    every = len(body) < 3000 and spelling == "as-it-is"
    for cut in range(1, len(body), 1 if every else len(body) // 60):
        assert read_in([body[:cut], body[cut:]], capture.content_type) == whole
    assert read_in([body[i : i + 1] for i in range(len(body))], capture.content_type) == whole


@pytest.mark.parametrize("name", [name for name in NAMES if name not in STREAMS and Capture.read(name).status == 200])
@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
def test_a_document_cut_anywhere_gives_the_same_items(name: str, content_type: str) -> None:
    body = Capture.read(name).body
    whole = read_in([body], content_type)
    for cut in range(len(body)):
        assert read_in([body[:cut], body[cut:]], content_type) == whole


PIECES = st.sampled_from(
    [
        *(b"data: ", b"data:", b"\n", b"\r\n", b"\r", b"\n\n", b": c\n", b"event: error\n", b"event: x\n", b"id: 1\n"),
        *(b"[DONE]", b'{"choices":[{"delta":{"content":"', "好\U0001f378".encode(), b'"}}]}', b'{"error":"x"}'),
        *(b"junk", b"\xef\xbb\xbf", b"\xff", b" "),
    ]
)


@given(st.lists(PIECES, max_size=14), st.lists(st.integers(0, 300), max_size=6))
def test_any_bytes_cut_anywhere_give_the_same_items(pieces: list[bytes], cuts: list[int]) -> None:
    body = b"".join(pieces)
    places = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    parts = [body[start:end] for start, end in pairwise(places)]
    for content_type in ("text/event-stream", "text/plain"):
        assert read_in(parts, content_type) == read_in([body], content_type)
        assert read_in([body[i : i + 1] for i in range(len(body))], content_type) == read_in([body], content_type)
