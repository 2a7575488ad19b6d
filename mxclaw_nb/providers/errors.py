"""What a provider's refusal means: its message out of any of the common shapes, and which of our errors it is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from mxclaw_nb.protocol import ContextOverflow, ModelError
from mxclaw_nb.text import encodable

from .jsontext import parse_json

MAX_MESSAGE = 1000
_HIDDEN = "[redacted]"
_SHORTEST_SECRET = 4  # shorter ones cannot be told from ordinary text

# Sources: the providers' documentation and badlogic/pi-mono packages/ai/src/utils/overflow.ts, which collects them.
_OVERFLOW = re.compile(
    r"""
      prompt \s (?:is \s )? too \s long                                  # Anthropic, Ollama
    | request_too_large
    | input \s is \s too \s long \s for \s requested \s model            # Bedrock
    | exceeds? \s .{0,40} context \s (?:window|length|size)              # OpenAI, LiteLLM, llama.cpp
    | exceed(?:ed|s)? _context | exceed_context_size
    | context \s (?:window|length|size) \s (?:is \s )? (?:exceed(?:s|ed)|too \s (?:long|large|small)) # MiniMax
    | context [_ ] (?:length|window) [_ ] exceeded
    | input \s token \s count .{0,60} exceeds \s the \s maximum          # Google
    | maximum \s prompt \s length \s is \s [\d,]+                        # xAI
    | reduce \s the \s length \s of \s (?:the \s | your \s )? (?:messages|prompt|input)   # Groq, OpenAI
    | maximum \s context \s length \s (?:is | of) \s [\d,]+              # OpenAI, OpenRouter, vLLM, DeepSeek
    | exceeds? \s (?:the \s )? (?:model'?s? \s )? maximum \s (?:allowed \s )?
        (?:input|context|prompt|sequence) \s length                      # Poolside, vLLM
    | longer \s than \s the \s model'?s? \s (?:maximum \s )? context \s length    # Together
    | token .{0,60} exceeds \s the \s (?:limit | maximum) \s of \s [\d,]+         # GitHub Copilot
    | greater \s than \s the \s context \s length                        # LM Studio
    | exceed(?:ed|s) \s (?:the \s )? model \s token \s limit             # Kimi
    | too \s large \s for \s model \s with \s [\d,]+ \s maximum \s context   # Mistral
    | prompt \s contains .{0,80} tokens .{0,80} (?:too \s large | maximum | limit)
    | prompt \s contains .{0,40} \s [\d,]+ \s input \s tokens            # vLLM
    | requested \s [\d,]+ \s output \s tokens
    | `?inputs`? \s tokens \s \+ .{0,40} max_new_tokens                  # text-generation-inference
    | range \s of \s input \s length \s should \s be                     # DashScope
    | (?:too \s many \s (?:input \s )? tokens) | (?:token \s limit \s exceeded)
    | input \s (?:length \s )? (?:is \s )? too \s long
    | (?:上下文|输入|提示)\S{0,12}(?:超出|超过|过长)
    """,
    re.I | re.X | re.S,
)
_NOT_OVERFLOW = re.compile(
    r"rate.?limit|too many requests|throttl|quota|per (?:minute|day|hour|second)|\bTPM\b|\bTPD\b|billing"
    r"|service unavailable|频率|限流|配额|余额",
    re.I,
)
_OVERFLOW_CODES = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded", "request_too_large"}
)
_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "insufficient_balance"})
_STATUS_OF_CODE = {
    "overloaded_error": 529, "overloaded": 529, "rate_limit_error": 429, "rate_limit_exceeded": 429,
    "too_many_requests": 429, "server_error": 500, "internal_server_error": 500, "internal_error": 500,
    "api_error": 500, "engine_overloaded_error": 503, "service_unavailable": 503, "unavailable": 503,
    "timeout": 504, "timeout_error": 504, "authentication_error": 401, "invalid_api_key": 401,
    "permission_error": 403, "not_found_error": 404, "model_not_found": 404, "invalid_request_error": 400,
}  # fmt: skip
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")
_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>", re.I | re.S)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.I | re.S)
_MESSAGE_KEYS = (
    "message",
    "detail",
    "details",
    "msg",
    "error_description",
    "error_msg",
    "errorMessage",
    "reason",
    "title",
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A refusal as the provider put it: ``status`` is the HTTP status, or the one that an error frame names."""

    message: str
    status: int | None = None
    code: str = ""

    @property
    def overflow(self) -> bool:
        """Whether the request was longer than the model's window."""
        if self.status == 429 or self.quota or _NOT_OVERFLOW.search(self.message):
            return False
        if self.code in _OVERFLOW_CODES or _OVERFLOW.search(self.message):
            return True
        # Cerebras answers with the bare status; a 413 has no other meaning here.
        return self.status == 413 or (self.status == 400 and not self.message)

    @property
    def quota(self) -> bool:
        """Whether the account has nothing left, so that waiting a moment does not help."""
        return self.code in _QUOTA_CODES


def failure_of_body(status: int, body: bytes) -> Failure:
    """The failure in the body of an answer that is no success: JSON of any shape, HTML or text."""
    try:
        value = parse_json(body)
    except ValueError:
        return Failure(_plain(body.decode("utf-8", "replace")), status)
    return Failure(_message(value), status, _code(value))


def failure_of_frame(frame: dict[str, object]) -> Failure | None:
    """The failure that a frame of a stream, or the body of a success, tells of; None if it tells of none."""
    error = frame.get("error")
    if not error and "choices" in frame:
        return _failure_of_choice(frame["choices"])
    if not error:
        kind = f"{frame.get('object')} {frame.get('type')} {frame.get('code')}".lower()
        if not ("detail" in frame or "error" in kind or ("message" in frame and _status(frame) is not None)):
            return None
    return Failure(_message(frame) or "no message", _status(frame), _code(frame))


def failure_of_event(data: bytes) -> Failure:
    """The failure in an ``event: error`` frame, whatever its data."""
    try:
        value = parse_json(data)
    except ValueError:
        return Failure(_plain(data.decode("utf-8", "replace")) or "the stream reported an error without saying which")
    status = _status(value) if isinstance(value, dict) else None
    return Failure(_message(value) or "the stream reported an error without saying which", status, _code(value))


def model_error(
    failure: Failure, provider: str, *, secrets: Sequence[str], retry_after: float | None = None, hint: str = ""
) -> ModelError:
    """The error to raise, its sentence free of secrets. ``hint`` replaces the usual advice."""
    said = clean_message(failure.message, secrets)
    status = f" (status {failure.status})" if failure.status else ""
    colon = f": {said}" if said else " without a message"
    full = f"Provider {provider} refused{status}{colon}"
    full += "" if full.endswith((".", "!", "?", "。")) else "."
    if failure.overflow:
        advice = (
            hint or "The conversation is longer than the model's window; start a new session or use a larger model."
        )
        return ContextOverflow(f"{full} {advice}", status=failure.status, retry_after=retry_after)
    return ModelError(f"{full} {hint or _advice(failure)}", status=failure.status, retry_after=retry_after)


def clean_message(text: str, secrets: Sequence[str]) -> str:
    """A provider's words as they may be shown: one line, no control characters, no secret, 1,000 characters."""
    text = _ANSI.sub(" ", text)
    text = _CONTROL.sub(" ", encodable(text))
    text = redact(" ".join(text.split()), secrets)
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def redact(text: str, secrets: Sequence[str]) -> str:
    """The text without the secrets, also as they look in JSON or in a URL. Shorter than 4 characters they stay."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            for form in {secret, json.dumps(secret)[1:-1], quote(secret, safe="")}:
                text = re.sub(re.escape(form), _HIDDEN, text, flags=re.I)
    return text


def _advice(failure: Failure) -> str:
    status = failure.status or 0
    if failure.quota:
        return "The account has no credit left; top it up or use another provider."
    if status in (401, 403):
        return "Check the key of this provider and what it may use."
    if status == 404:
        return "Check the provider's base URL and the name of the model."
    if status in (408, 409, 425, 429) or status >= 500:
        return "Try again later."
    return "Check the request: the model, and what it supports."


def _message(value: object, depth: int = 0) -> str:
    """The words in an error of any shape."""
    if isinstance(value, str):
        return _plain(value)
    if depth > 6:
        return ""
    if isinstance(value, list):
        return "; ".join(filter(None, (_message(item, depth + 1) for item in value[:8])))
    if not isinstance(value, dict):
        return ""
    for key in ("error", "errors"):
        if value.get(key):
            inner = _message(value[key], depth + 1)
            if inner:
                return inner + _upstream(value.get("metadata"))
    for key in _MESSAGE_KEYS:
        inner = _message(value.get(key), depth + 1)
        if inner:
            return inner + _upstream(value.get("metadata"))
    code = value.get("code") or value.get("type")
    return _plain(str(code)) if isinstance(code, (str, int)) else ""


def _upstream(metadata: object) -> str:
    """What the provider behind a router said (OpenRouter's ``metadata.raw``)."""
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if isinstance(raw, str):
        try:
            raw = parse_json(raw.encode("utf-8", "replace"))
        except ValueError:
            return f" ({_plain(str(raw))})"
    words = _message(raw)
    return f" ({words})" if words else ""


def _code(value: object) -> str:
    """The error's stable name, if it has one."""
    if isinstance(value, list):
        return _code(value[0]) if value else ""
    if not isinstance(value, dict):
        return ""
    inner = value.get("error")
    if isinstance(inner, (dict, list)) and inner:
        return _code(inner) or _own_code(value)
    return _own_code(value)


def _own_code(value: dict[str, object]) -> str:
    for key in ("code", "type", "status"):
        code = value.get(key)
        if isinstance(code, str) and code and not code.isdigit() and code not in ("error",):
            lowered = code.lower()
            if lowered in _OVERFLOW_CODES or lowered in _QUOTA_CODES or lowered in _STATUS_OF_CODE:
                return lowered
    return ""


def _status(value: object) -> int | None:
    """The HTTP status that an error names by number or by name."""
    if isinstance(value, list):
        return _status(value[0]) if value else None
    if not isinstance(value, dict):
        return None
    for key in ("status", "status_code", "code"):
        number = value.get(key)
        if isinstance(number, str) and number.isascii() and number.isdigit() and len(number) == 3:
            number = int(number)
        if isinstance(number, int) and 400 <= number <= 599:
            return number
    inner = value.get("error")
    if isinstance(inner, (dict, list)):
        found = _status(inner)
        if found is not None:
            return found
    return _STATUS_OF_CODE.get(_own_code(value))


def _failure_of_choice(choices: object) -> Failure | None:
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return None
    error = choice.get("error")
    if error:
        return Failure(_message(error) or "no message", _status(error), _code(error))
    reason = choice.get("finish_reason")
    if reason == "model_context_window_exceeded":
        return Failure("the model's context window is exceeded", None, "model_context_window_exceeded")
    if reason in ("error", "network_error"):
        return Failure(f"the reply ended with {reason}", 502)
    return None


def _plain(text: str) -> str:
    """Text without markup: an HTML page becomes its title, or its text."""
    if "<" in text and re.search(r"<(?:!doctype|html|head|body|title|h1)\b", text, re.I):
        title = _TITLE.search(text)
        text = title.group(1) if title and title.group(1).strip() else _TAGS.sub(" ", text)
    return text.strip()
