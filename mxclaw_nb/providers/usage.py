"""Tokens of one request: as the provider counts them, wherever it says so, or estimated."""

from __future__ import annotations

from collections.abc import Sequence

from mxclaw_nb.protocol import Completion, ModelRequest, Usage

from .endpoint import Price

_INPUT = ("prompt_tokens", "input_tokens")
_OUTPUT = ("completion_tokens", "output_tokens")
_CACHED = ("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_MESSAGE_OVERHEAD = 4  # role and separators


class UsageReading:
    """The counts of one request. Reports are cumulative, so the greatest of each count holds, never their sum."""

    def __init__(self) -> None:
        self._input = self._output = self._cached = 0

    def read(self, report: object) -> None:
        """Take one report in; anything that is none is ignored."""
        if not isinstance(report, dict):
            return
        tokens_in = _count(report, _INPUT)
        tokens_out = _count(report, _OUTPUT)
        total = _count(report, ("total_tokens",))
        cached = _count(report, _CACHED)
        for name in _DETAILS:
            details = report.get(name)
            if isinstance(details, dict):
                cached = max(cached, _count(details, ("cached_tokens",)))
        if not tokens_out and tokens_in and total > tokens_in:
            tokens_out = total - tokens_in
        self._input = max(self._input, tokens_in)
        self._output = max(self._output, tokens_out)
        self._cached = max(self._cached, cached)

    def result(self) -> Usage | None:
        """What was reported, None if nothing was."""
        if not self._input and not self._output:
            return None
        return Usage(max(self._input, self._cached), self._output, self._cached)


def estimate_tokens(text: str) -> int:
    """About how many tokens a text is: a quarter for an ASCII character, 0.8 for a CJK one, 1.2 for an emoji.

    Counted by UTF-8 length, so that it costs next to nothing: an ASCII character has one byte, a CJK one three.
    """
    characters = len(text)
    wide = (len(text.encode("utf-8", "replace")) - characters) / 2
    return round(max(characters - wide, 0) / 4 + wide * 0.8)


def estimate_usage(request: ModelRequest, completion: Completion) -> Usage:
    """Usage of a request that the provider did not count."""
    tokens_in = sum(
        _MESSAGE_OVERHEAD
        + estimate_tokens(message.content)
        + sum(estimate_tokens(call.name) + estimate_tokens(call.arguments) for call in message.tool_calls)
        for message in request.messages
    )
    tokens_in += sum(
        estimate_tokens(tool.description) + estimate_tokens(str(tool.parameters)) for tool in request.tools
    )
    tokens_out = estimate_tokens(completion.text) + estimate_tokens(completion.reasoning)
    tokens_out += sum(estimate_tokens(call.name) + estimate_tokens(call.arguments) for call in completion.tool_calls)
    return Usage(tokens_in, tokens_out, estimated=True)


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """The cost in US dollars; None without a price. Cached tokens are billed once, at their own price."""
    if price is None:
        return None
    cached_price = price.input if price.cached is None else price.cached
    fresh = max(usage.input_tokens - usage.cached_tokens, 0)
    return (fresh * price.input + usage.cached_tokens * cached_price + usage.output_tokens * price.output) / 1_000_000


def _count(report: dict[object, object], names: Sequence[str]) -> int:
    for name in names:
        value = report.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e15:
            return int(value)
    return 0
