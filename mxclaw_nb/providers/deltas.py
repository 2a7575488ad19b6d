"""Frames of a streamed chat completion folded into one ``Completion``, and the deltas to show meanwhile."""

from __future__ import annotations

from mxclaw_nb.protocol import Completion, ReasoningDelta, StreamItem, TextDelta
from mxclaw_nb.text import encodable

from .jsontext import SurrogateJoiner
from .toolcalls import ToolCallFolder
from .usage import UsageReading

_REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
_LENGTH = ("length", "max_tokens", "max_output_tokens")


class CompletionFolder:
    """Takes frames in, in order. Only choice 0 counts; what cannot be understood is passed over.

    ``progress`` grows with every piece of text, reasoning or tool call; ``finish_reason`` is set once the
    provider said why it stopped.
    """

    def __init__(self) -> None:
        self.progress = 0
        self.finish_reason: str | None = None
        self._size = 0
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._text_joiner, self._reasoning_joiner = SurrogateJoiner(), SurrogateJoiner()
        self._calls = ToolCallFolder()
        self._legacy_call = ToolCallFolder()
        self._usage = UsageReading()

    @property
    def shown(self) -> bool:
        """Whether a delta has been given out."""
        return bool(self._text or self._reasoning)

    @property
    def size(self) -> int:
        """About how many characters have come, tool calls included."""
        return self._size + self._calls.size + self._legacy_call.size

    @property
    def empty(self) -> bool:
        """Whether nothing at all has come: no text, reasoning or call, and no reason for that."""
        return not (self.shown or self._calls or self._legacy_call or self.finish_reason)

    def add(self, frame: dict[str, object], items: list[StreamItem]) -> None:
        """Take one frame in and append its deltas to ``items``."""
        if "usage" in frame:
            self._usage.read(frame["usage"])
        groq = frame.get("x_groq")
        if isinstance(groq, dict):
            self._usage.read(groq.get("usage"))
        choice = _first_choice(frame.get("choices"))
        if choice is None:
            return
        if "usage" in choice:
            self._usage.read(choice["usage"])
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._add_delta(delta, items)
        else:
            message = choice.get("message")
            if isinstance(message, dict):
                self._add_message(message, items)
            else:
                self._add_text(_joined(choice.get("text")), items)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self.finish_reason = "length" if reason in _LENGTH else encodable(reason)

    def close(self, items: list[StreamItem]) -> None:
        """Give out what half a surrogate pair at the end leaves."""
        if tail := self._reasoning_joiner.close():
            self._reasoning.append(tail)
            items.append(ReasoningDelta(tail))
        if tail := self._text_joiner.close():
            self._text.append(tail)
            items.append(TextDelta(tail))

    def completion(self, id_seed: str) -> Completion:
        """The whole reply. Cut off by the output limit it is marked incomplete, its calls as they came.

        ``id_seed`` should be another one for each request of a session: calls that came without an id are named by it.
        """
        calls = (self._calls or self._legacy_call).result(id_seed)
        reason = self.finish_reason
        if not calls and reason in ("tool_calls", "function_call"):
            reason = "stop"  # a promise of calls that never came is just an end
        return Completion(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_calls=calls,
            finish_reason=reason,
            incomplete=reason == "length",
            usage=self._usage.result(),
        )

    def partial(self) -> Completion:
        """What had come of a reply that broke off. Without its end no call is known to be whole: all are dropped."""
        return Completion(
            text="".join(self._text), reasoning="".join(self._reasoning), incomplete=True, usage=self._usage.result()
        )

    def _add_delta(self, delta: dict[str, object], items: list[StreamItem]) -> None:
        for key in _REASONING:
            piece = delta.get(key)
            if piece and isinstance(piece, str):
                self._add_reasoning(piece, items)
                break  # the same text under a second name is not more text
        content = delta.get("content")
        if content:
            if isinstance(content, str):
                self._add_text(content, items)
            else:
                self._add_parts(content, items)
        refusal = delta.get("refusal")
        if refusal and isinstance(refusal, str):
            self._add_text(refusal, items)
        calls = delta.get("tool_calls")
        if calls and self._calls.add(calls):
            self.progress += 1
        call = delta.get("function_call")
        if call and isinstance(call, dict) and self._legacy_call.add([{"index": 0, "function": call}]):
            self.progress += 1

    def _add_message(self, message: dict[str, object], items: list[StreamItem]) -> None:
        """A message where a delta should be: the whole of it if nothing came before, else a piece or a repetition."""
        if not self.shown and not self._calls:
            self._add_delta(message, items)
            return
        fresh = dict(message)
        if message.get("content") == "".join(self._text):
            fresh.pop("content")
            for key in _REASONING:
                fresh.pop(key, None)
        self._add_delta(fresh, items)

    def _add_parts(self, content: object, items: list[StreamItem]) -> None:
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, str):
                self._add_text(part, items)
            elif isinstance(part, dict):
                thinking = part.get("thinking", part.get("reasoning"))
                if thinking is not None:
                    self._add_reasoning(_joined(thinking), items)
                else:
                    self._add_text(_joined(part.get("text")), items)

    def _add_text(self, piece: str, items: list[StreamItem]) -> None:
        piece = self._text_joiner.feed(piece)
        if piece:
            self.progress += 1
            self._size += len(piece)
            self._text.append(piece)
            items.append(TextDelta(piece))

    def _add_reasoning(self, piece: str, items: list[StreamItem]) -> None:
        piece = self._reasoning_joiner.feed(piece)
        if piece:
            self.progress += 1
            self._size += len(piece)
            self._reasoning.append(piece)
            items.append(ReasoningDelta(piece))


def _first_choice(choices: object) -> dict[str, object] | None:
    """The choice with index 0 (a missing index is 0)."""
    if not isinstance(choices, list):
        return choices if isinstance(choices, dict) else None
    for choice in choices:
        if isinstance(choice, dict) and choice.get("index") in (None, 0, "0"):
            return choice
    return None


def _joined(value: object) -> str:
    """The text in a text part, whose text may again be a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_joined(part.get("text") if isinstance(part, dict) else part) for part in value)
    return ""
