"""The words that a script is written in: what it is asked, and what it replies."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from mxclaw_nb.protocol import Usage

Ending = Literal["complete", "cut", "reset", "hang"]
"""How a stream ends: properly; by a clean close in mid-reply; by a TCP reset; or not at all until the client leaves."""


class ChatFunction(BaseModel):
    """The function half of a tool call in a request's history."""

    model_config = ConfigDict(extra="allow")

    name: str = ""
    arguments: str = ""


class ChatToolCall(BaseModel):
    """A tool call in a request's history."""

    model_config = ConfigDict(extra="allow")

    id: str = ""
    function: ChatFunction = Field(default_factory=ChatFunction)


class ContentPart(BaseModel):
    """One part of a message whose content is a list."""

    model_config = ConfigDict(extra="allow")

    type: str = "text"
    text: str = ""


class ChatMessage(BaseModel):
    """One message of a request, as the server received it."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | list[ContentPart] | None = None
    tool_calls: list[ChatToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        """The content as one string, whatever its shape."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class ToolFunction(BaseModel):
    """The function half of a tool that the model may call."""

    model_config = ConfigDict(extra="allow")

    name: str
    description: str = ""


class OfferedTool(BaseModel):
    """A tool that the model may call."""

    model_config = ConfigDict(extra="allow")

    function: ToolFunction


class StreamOptions(BaseModel):
    """``stream_options`` of a request."""

    model_config = ConfigDict(extra="allow")

    include_usage: bool = False


class ChatRequest(BaseModel):
    """A chat completion request, parsed. ``number`` counts the server's requests from 0.

    ``raw`` is the body byte for byte, and ``headers`` the lower-cased headers without the authorization, for tests
    that assert on exactly what was sent.
    """

    model_config = ConfigDict(extra="allow")

    model: str = ""
    messages: list[ChatMessage]
    tools: list[OfferedTool] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    _number: int = PrivateAttr(default=0)
    _raw: bytes = PrivateAttr(default=b"")
    _headers: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def parse(cls, raw: bytes, *, number: int, headers: Mapping[str, str]) -> ChatRequest:
        """Read a request body. Raises pydantic's ValidationError."""
        request = cls.model_validate_json(raw)
        request._number, request._raw, request._headers = number, raw, headers
        return request

    @property
    def number(self) -> int:
        return self._number

    @property
    def raw(self) -> bytes:
        return self._raw

    @property
    def headers(self) -> Mapping[str, str]:
        return self._headers

    @property
    def tool_names(self) -> frozenset[str]:
        """Names of the tools that are offered."""
        return frozenset(tool.function.name for tool in self.tools or ())

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call of a reply. ``arguments`` is JSON text (possibly broken on purpose); no ``id`` means a fresh one."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Speech:
    """A reply of a model: text and tool calls, streamed in chunks that are ``pause_s`` seconds apart.

    ``finish_reason`` None means what fits: ``tool_calls`` or ``stop``. ``usage`` None means an estimate.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    pause_s: float = 0.0
    ending: Ending = "complete"

    def saying(self, text: str) -> Speech:
        """The same reply with this text before its calls."""
        return replace(self, text=text)

    def paced(self, pause_s: float) -> Speech:
        """The same reply with its chunks this many seconds apart."""
        return replace(self, pause_s=pause_s)


@dataclass(frozen=True, slots=True)
class HttpError:
    """A reply that is an HTTP error with a body in the shape that OpenAI uses."""

    status: int
    message: str = "the script says no"
    code: str = "rehearsal_error"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RawFrames:
    """A reply made of bytes that are sent as they are; a number among them is a pause in seconds.

    ``ending``: ``complete`` ends the chunked body properly, ``cut`` closes the connection without its end.
    """

    frames: tuple[bytes | float, ...]
    status: int = 200
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict)
    ending: Ending = "complete"


Reply = Speech | HttpError | RawFrames
Script = Callable[[ChatRequest], Reply | Awaitable[Reply]]
"""A scripted model: from what it is asked to what it replies. It may be a coroutine function, to wait for a test."""


def say(
    text: str,
    *,
    reasoning: str = "",
    pause_s: float = 0.0,
    finish_reason: str | None = None,
    usage: Usage | None = None,
    ending: Ending = "complete",
) -> Speech:
    """A reply of text alone."""
    return Speech(
        text, reasoning=reasoning, pause_s=pause_s, finish_reason=finish_reason, usage=usage, ending=ending
    )  # fmt: skip


def call(tool: str, /, **arguments: Any) -> Speech:
    """A reply that is one tool call; ``.saying(text)`` puts text before it."""
    return Speech(calls=(ScriptedCall(tool, json.dumps(arguments, ensure_ascii=False)),))


def calls(*parts: Speech | ScriptedCall, text: str = "") -> Speech:
    """A reply of several tool calls: ``calls(call("a", x=1), call("b"), text="Both at once.")``."""
    found: list[ScriptedCall] = []
    for part in parts:
        found.extend(part.calls if isinstance(part, Speech) else (part,))
    return Speech(text, calls=tuple(found))


def fail(
    status: int,
    message: str = "the script says no",
    *,
    code: str = "rehearsal_error",
    headers: Mapping[str, str] | None = None,
) -> HttpError:
    """A reply that is an HTTP error."""
    return HttpError(status, message, code, headers or {})


def raw(
    *frames: bytes | float,
    status: int = 200,
    content_type: str = "text/event-stream",
    headers: Mapping[str, str] | None = None,
    ending: Ending = "complete",
) -> RawFrames:
    """A reply made of bytes that are sent as they are; a number among them is a pause in seconds."""
    return RawFrames(frames, status, content_type, headers or {}, ending)


def sequence(*replies: Reply) -> Script:
    """A script that gives one reply a request, in order, and fails when it is asked once more."""
    left = list(replies)

    def play(request: ChatRequest) -> Reply:
        if not left:
            raise AssertionError(f"the script has {len(replies)} replies, but request {request.number + 1} came")
        return left.pop(0)

    return play


_CHUNK = re.compile(r"[⺀-鿿가-힣豈-﫿＀-￯]{1,2}|\s*[^\s⺀-鿿가-힣豈-﫿＀-￯]{1,16}\s?|\s{1,16}")


def chunks(text: str) -> Iterator[str]:
    """Cut text the way a model streams it: a word, or one or two CJK characters, at a time. Joined, it is the text."""
    for match in _CHUNK.finditer(text):
        yield match.group()
