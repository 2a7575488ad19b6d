"""Requests for chat completions, joined from messages that are each encoded once.

A round costs what is new: the encoded form of a message is kept for as long as the message object lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import ReferenceType, ref

from mxclaw_nb.protocol import Message, ModelRequest, ToolCall, ToolSpec, UsageError

from .endpoint import ModelProfile
from .jsontext import encode_json, is_whole_object


class _EncodedMessages:
    """The encoded form of message objects, each for as long as it lives.

    By identity: a ``WeakKeyDictionary`` compares messages field by field at every look-up, 2.5 µs each.
    """

    def __init__(self) -> None:
        self._forms: dict[int, tuple[ReferenceType[Message], bytes]] = {}

    def get(self, message: Message) -> bytes | None:
        entry = self._forms.get(id(message))
        return entry[1] if entry is not None and entry[0]() is message else None

    def add(self, message: Message, form: bytes) -> None:
        forms, identity = self._forms, id(message)
        forms[identity] = (ref(message, lambda _gone: forms.pop(identity, None)), form)


class RequestEncoder:
    """Encodes requests. One for each provider object; usable from any loop (a lost race only encodes twice)."""

    def __init__(self) -> None:
        self._encoded: dict[tuple[bool, str], _EncodedMessages] = {}

    def encode(self, request: ModelRequest, profile: ModelProfile) -> bytes:
        """The body of a streamed chat completion. The same request gives the same bytes.

        Raises UsageError if the newest message is the user's and says nothing.
        """
        messages = request.messages
        newest = messages[-1] if messages else None
        if newest is None or (newest.role == "user" and not newest.content.strip()):
            raise UsageError("The message is empty; write what the model should do.")
        form = (profile.replay_reasoning, profile.empty_content)
        cache = self._encoded.get(form)
        if cache is None:
            cache = self._encoded.setdefault(form, _EncodedMessages())
        parts: list[bytes] = []
        find = cache.get
        for message in messages:
            part = find(message)
            if part is None:
                part = encode_message(message, profile)
                cache.add(message, part)
            if part:
                parts.append(part)
        return b"".join(
            (
                b'{"model":', encode_json(request.model.model),
                b',"messages":[', b",".join(parts), b"]",
                _encode_tools(request.tools),
                _encode_options(request, profile),
                b"}",
            )
        )  # fmt: skip


def encode_message(message: Message, profile: ModelProfile) -> bytes:
    """One message in the wire form; empty for a reply that has nothing in it."""
    if message.role == "tool":
        return encode_json({"role": "tool", "tool_call_id": message.tool_call_id or "", "content": message.content})
    if message.role != "assistant":
        return encode_json({"role": message.role, "content": message.content})
    calls = [_wire_call(call) for call in message.tool_calls]
    if not message.content and not calls:
        return b""
    wire: dict[str, object] = {"role": "assistant", "content": message.content}
    if not message.content:
        wire["content"] = None if profile.empty_content == "null" else ""
    if profile.replay_reasoning and message.reasoning:
        wire["reasoning_content"] = message.reasoning
    if calls:
        wire["tool_calls"] = calls
    return encode_json(wire)


def _wire_call(call: ToolCall) -> dict[str, object]:
    arguments = call.arguments
    if not arguments.strip():
        arguments = "{}"
    elif not is_whole_object(arguments):
        # Servers parse past arguments and refuse the whole conversation if one is malformed.
        arguments = encode_json({"malformed_arguments": arguments}).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _encode_tools(tools: Sequence[ToolSpec]) -> bytes:
    if not tools:
        return b""
    wire = [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]
    return b',"tools":' + encode_json(wire)


def _encode_options(request: ModelRequest, profile: ModelProfile) -> bytes:
    options: dict[str, object] = {"stream": True}
    if profile.include_usage:
        options["stream_options"] = {"include_usage": True}
    if request.max_output_tokens is not None:
        options[profile.max_tokens_field] = request.max_output_tokens
    if profile.temperature is not None:
        options["temperature"] = profile.temperature
    if profile.reasoning_effort is not None:
        options["reasoning_effort"] = profile.reasoning_effort
    return b"," + encode_json(options)[1:-1]
