"""What a scripted model can see of a conversation: the prompt, its language, and what the calls since then gave."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .script import ChatMessage, ChatRequest

Outcome = Literal["ok", "denied", "failed"]

_CJK = re.compile(r"[㐀-鿿豈-﫿]")
_CONTINUE = re.compile(r"\s*(continue|go on|carry on|keep going|继续|接着|接着说)\s*[.!。！]*\s*", re.IGNORECASE)
_FAILED = re.compile(r"\s*(the call was interrupted|error\b|failed\b|traceback)", re.IGNORECASE)
_LINE_NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)
_COMMAND_FAILED = re.compile(r"^\[(exit code|timed out|stopped|killed)\b", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Result:
    """A call of this turn and the text that came back for it."""

    tool: str
    text: str

    @property
    def outcome(self) -> Outcome:
        """As far as the text tells: a model sees nothing else either."""
        if self.text.lstrip().lower().startswith("permission denied"):
            return "denied"
        if self.tool == "run_command":
            failed = _COMMAND_FAILED.search(self.text) is not None
        elif self.tool == "write_file":
            failed = not self.text.startswith("Wrote ")
        else:
            failed = False
        return "failed" if failed or _FAILED.match(self.text) else "ok"

    def quote(self, *, lines: int = 12, characters: int = 800) -> str:
        """The result as a fenced block, cut to size, with a fence that the text cannot close."""
        whole = _LINE_NUMBER.sub("", self.text) if self.tool == "read_file" else self.text
        shown = whole.strip("\n").rstrip().splitlines()
        text = "\n".join(shown[:lines])
        cut = len(shown) > lines or len(text) > characters
        text = text[:characters] + ("\n…" if cut else "")
        ticks = max((len(run) for run in re.findall(r"`+", text)), default=0)
        fence = "`" * max(3, ticks + 1)
        return f"{fence}text\n{text}\n{fence}"


@dataclass(frozen=True, slots=True)
class Conversation:
    """The newest turn of a conversation: everything that the script decides by."""

    prompt: str
    results: Sequence[Result]
    offered: frozenset[str]
    message_count: int

    @property
    def chinese(self) -> bool:
        return _CJK.search(self.prompt) is not None

    def pick(self, english: str, chinese: str) -> str:
        """The text in the language of the prompt."""
        return chinese if self.chinese else english

    def result(self, tool: str) -> Result | None:
        """What the newest call of that tool gave, if it was called in this turn."""
        return next((found for found in reversed(self.results) if found.tool == tool), None)

    def can(self, tool: str) -> bool:
        """Whether the tool is offered and was not called yet in this turn."""
        return tool in self.offered and self.result(tool) is None


def conversation(request: ChatRequest) -> Conversation:
    """Read the newest turn out of a request. A mere "continue" goes on with the turn before it."""
    messages = request.messages
    prompts = [index for index, message in enumerate(messages) if message.role == "user"]
    start = prompts[-1] if prompts else -1
    for index in reversed(prompts):
        start = index
        if not _CONTINUE.fullmatch(messages[index].text):
            break
    turn = messages[start + 1 :]
    prompt = messages[start].text.partition("\n\n<attachment ")[0] if prompts else ""
    return Conversation(prompt.strip(), _results(turn), request.tool_names, len(messages))


def _results(messages: Sequence[ChatMessage]) -> tuple[Result, ...]:
    names: dict[str, str] = {}
    found: list[Result] = []
    for message in messages:
        for call in message.tool_calls or ():
            names[call.id] = call.function.name
        if message.role == "tool" and message.tool_call_id in names:
            found.append(Result(names[message.tool_call_id], message.text))
    return tuple(found)
