"""Replies as they go over the wire: OpenAI's chat completion chunks and bodies."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

from mxclaw_nb.protocol import Usage

from .script import ChatRequest, HttpError, ScriptedCall, Speech, chunks

ARGUMENT_PIECE = 24
"""Characters of a tool call's arguments in one delta."""


def frame(data: object) -> bytes:
    """One SSE event."""
    return b"data: " + json.dumps(data, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"


DONE = b"data: [DONE]\n\n"


def estimated_usage(request: ChatRequest, speech: Speech) -> Usage:
    """Tokens as a rough count: four bytes each. A script has no tokenizer."""
    said = speech.text + speech.reasoning + "".join(call.arguments for call in speech.calls)
    return Usage(max(1, len(request.raw) // 4), max(1, len(said.encode("utf-8", "replace")) // 4))


def _usage_object(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _finish_reason(speech: Speech) -> str:
    return speech.finish_reason or ("tool_calls" if speech.calls else "stop")


def _call_id(call: ScriptedCall) -> str:
    return call.id or f"call_{secrets.token_hex(6)}"


class CompletionEncoder:
    """The frames of one streamed reply, and its body when it is not streamed."""

    def __init__(self, request: ChatRequest, speech: Speech) -> None:
        self._request = request
        self._speech = speech
        self._id = f"chatcmpl-rehearsal-{request.number}"
        self._created = int(time.time())
        self._usage = speech.usage or estimated_usage(request, speech)

    def _envelope(self, kind: str, choices: list[dict[str, Any]], usage: Usage | None = None) -> dict[str, object]:
        envelope: dict[str, object] = {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._request.model,
            "choices": choices,
        }
        if usage is not None:
            envelope["usage"] = _usage_object(usage)
        return envelope

    def _delta(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return frame(self._envelope("chat.completion.chunk", [choice]))

    def deltas(self) -> Iterator[bytes]:
        """Everything that is said, one frame a chunk."""
        yield self._delta({"role": "assistant", "content": ""})
        for piece in chunks(self._speech.reasoning):
            yield self._delta({"reasoning_content": piece})
        for piece in chunks(self._speech.text):
            yield self._delta({"content": piece})
        for index, call in enumerate(self._speech.calls):
            function = {"name": call.name, "arguments": ""}
            yield self._delta(
                {"tool_calls": [{"index": index, "id": _call_id(call), "type": "function", "function": function}]}
            )
            for start in range(0, len(call.arguments), ARGUMENT_PIECE):
                piece = call.arguments[start : start + ARGUMENT_PIECE]
                yield self._delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})

    def closing(self) -> Iterator[bytes]:
        """What follows when everything is said: the finish reason, the usage if it was asked for, the end mark."""
        yield self._delta({}, _finish_reason(self._speech))
        if self._request.include_usage:
            yield frame(self._envelope("chat.completion.chunk", [], self._usage))
        yield DONE

    def body(self) -> bytes:
        """The reply as one JSON body."""
        message: dict[str, Any] = {"role": "assistant", "content": self._speech.text or None}
        if self._speech.reasoning:
            message["reasoning_content"] = self._speech.reasoning
        if self._speech.calls:
            message["tool_calls"] = [
                {"id": _call_id(call), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self._speech.calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": _finish_reason(self._speech)}
        return json.dumps(self._envelope("chat.completion", [choice], self._usage), ensure_ascii=False).encode()


def error_body(error: HttpError) -> bytes:
    """An error in the shape that OpenAI uses."""
    body = {"error": {"message": error.message, "type": error.code, "code": error.code}}
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
