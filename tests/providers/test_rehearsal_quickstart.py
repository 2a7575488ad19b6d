"""The quickstart script: a whole demonstration, led by the conversation alone, honest about being a rehearsal."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from mxclaw_nb.providers.rehearsal import RehearsalServer, quickstart
from mxclaw_nb.providers.rehearsal.script import ChatRequest, Speech

ALL = ("list_dir", "read_file", "write_file", "run_command")
LISTING = "README.md\ndata.csv\nnotes/\nscript.py"
RESULTS = {
    "list_dir": LISTING,
    "read_file": "     1\t# The weather of Ghent\n     2\tDaily rain since 1833.",
    "write_file": "Wrote rehearsal-notes.md (12 lines).",
    "run_command": "12 rehearsal-notes.md",
}
DENIED = "Permission denied by the user. The call was not executed."


@dataclass
class Talk:
    """Plays the rest of the house: answers each call with a canned result until the script calls no more."""

    results: dict[str, str] = field(default_factory=lambda: dict(RESULTS))
    tools: tuple[str, ...] = ALL
    messages: list[dict[str, Any]] = field(default_factory=lambda: [{"role": "system", "content": "be good"}])
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def reply(self) -> Speech:
        tools = [{"type": "function", "function": {"name": name}} for name in self.tools]
        body = json.dumps({"model": "quickstart", "messages": self.messages, "tools": tools, "stream": True})
        return quickstart(ChatRequest.parse(body.encode(), number=0, headers={}))

    def ask(self, prompt: str) -> str:
        self.messages.append({"role": "user", "content": prompt})
        for _ in range(8):
            speech = self.reply()
            if not speech.calls:
                self.messages.append({"role": "assistant", "content": speech.text})
                return speech.text
            assert speech.text, "every call is announced"
            entry: dict[str, Any] = {"role": "assistant", "content": speech.text, "tool_calls": []}
            self.messages.append(entry)
            for call in speech.calls:
                call_id = f"c{len(self.calls)}"
                self.calls.append((call.name, json.loads(call.arguments)))
                function = {"name": call.name, "arguments": call.arguments}
                entry["tool_calls"].append({"id": call_id, "type": "function", "function": function})
                self.messages.append({"role": "tool", "tool_call_id": call_id, "content": self.results[call.name]})
        raise AssertionError("the script needs more than 8 rounds")

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


@pytest.mark.parametrize(
    "prompt", ["look around this folder", "Please explore the directory.", "看看这个文件夹", "浏览一下当前目录"]
)
def test_looking_around_lists_reads_writes_runs_and_quotes_what_it_was_given(prompt: str) -> None:
    talk = Talk()
    summary = talk.ask(prompt)
    assert talk.names == ["list_dir", "read_file", "write_file", "run_command"]
    arguments = dict(talk.calls)
    assert arguments["read_file"]["path"] == "README.md"
    assert arguments["write_file"]["path"] == "rehearsal-notes.md"
    assert "data.csv" in arguments["write_file"]["content"] and "Ghent" in arguments["write_file"]["content"]
    assert "1\t#" not in summary, "without the line numbers that the model sees"
    for quoted in ("data.csv", "The weather of Ghent", "Wrote rehearsal-notes.md (12 lines).", "12 rehearsal-notes.md"):
        assert quoted in summary
    assert "rehearsal" in summary


def test_the_script_answers_in_the_language_of_the_prompt() -> None:
    assert re.search("[一-鿿]", Talk().ask("看看这个文件夹"))
    assert not re.search("[一-鿿]", Talk().ask("look around"))


@pytest.mark.parametrize("denied", ALL)
@pytest.mark.parametrize("prompt", ["look around", "看看这个文件夹"])
def test_a_denial_is_acknowledged_and_ends_the_turn(denied: str, prompt: str) -> None:
    talk = Talk(results=RESULTS | {denied: DENIED})
    summary = talk.ask(prompt)
    assert talk.names == list(ALL[: ALL.index(denied) + 1])
    assert ("Denied" in summary or "已被拒绝" in summary) and f"`{denied}`" in summary
    assert DENIED in summary


@pytest.mark.parametrize(
    "failed", ["The call was interrupted before it returned.", "a.md cannot be written: disk full."]
)
def test_a_failed_write_is_said_and_nothing_runs_after_it(failed: str) -> None:
    talk = Talk(results=RESULTS | {"write_file": failed})
    summary = talk.ask("look around")
    assert "run_command" not in talk.names
    assert "did not succeed" in summary and failed in summary


@pytest.mark.parametrize("failed", ["wc: no such file\n[Exit code 1.]", "[Timed out: stopped after 5 s.]"])
def test_a_failed_command_is_said(failed: str) -> None:
    summary = Talk(results=RESULTS | {"run_command": failed}).ask("run a command")
    assert "`run_command` did not succeed" in summary and failed in summary


@pytest.mark.parametrize(
    ("prompt", "calls"),
    [
        ("write a file", ["write_file"]),
        ("写一个文件", ["write_file"]),
        ("run a command", ["run_command"]),
        ("运行一条命令", ["run_command"]),
        ("give me a long reply", []),
        ("来一段长回复", []),
        ("show a table", []),
        ("显示一个表格", []),
        ("What is the capital of Belgium?", []),
        ("比利时的首都是哪里？", []),
    ],
)
def test_each_known_prompt_plays_its_scene(prompt: str, calls: list[str]) -> None:
    talk = Talk()
    final = talk.ask(prompt)
    assert talk.names == calls
    assert all(talk.results[name] in final for name in calls)
    assert "rehearsal" in talk.messages[2]["content"], "said in the very first reply"
    assert talk.messages[2]["content"].count("```") % 2 == 0


def test_an_unknown_prompt_is_echoed_and_the_known_ones_are_named() -> None:
    reply = Talk().ask("What is the capital of\nBelgium?")
    assert "> What is the capital of Belgium?" in reply
    for known in ("look around", "write a file", "run a command", "long reply", "table"):
        assert known in reply
    long = Talk().ask("why " * 500)
    assert len(long) < 1500


def test_what_the_script_names_is_what_it_knows() -> None:
    for prompt in ("hello", "你好"):
        for known in re.findall(r"^- `([^`]+)`", Talk().ask(prompt), re.MULTILINE):
            assert "cannot answer" not in Talk().ask(known) and "无法回答" not in Talk().ask(known)


def test_every_turn_of_a_session_starts_anew() -> None:
    talk = Talk()
    talk.ask("look around")
    talk.ask("hello")
    talk.ask("look around")
    assert talk.names == list(ALL) * 2


def test_continue_goes_on_where_the_turn_before_stopped() -> None:
    talk = Talk()
    talk.ask("look around")
    # As after a budget of two rounds: the reply and everything after the second result is missing.
    second_result = [index for index, message in enumerate(talk.messages) if message["role"] == "tool"][1]
    del talk.messages[second_result + 1 :]
    talk.calls.clear()
    talk.ask("continue")
    assert talk.names == ["write_file", "run_command"]


@pytest.mark.parametrize("offered", [(), ("list_dir",), ("read_file", "run_command")])
def test_tools_that_were_not_offered_are_not_called_but_named(offered: tuple[str, ...]) -> None:
    talk = Talk(tools=offered)
    summary = talk.ask("look around")
    assert set(talk.names) <= set(offered)
    assert "not given" in summary and "`write_file`" in summary


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        ("a.py\nREADME.rst\nb.md", "README.rst"),
        ("a.py\nb.md", "b.md"),
        ("README.md   1.2 KB\nx/", "README.md"),
        ("my notes.txt  3 bytes", "my notes.txt"),
        ("README.md -> elsewhere.md\n.hidden.md  1 KB\nb.txt  2 KB", "b.txt"),
        ("a.md/\n", None),
        ("rehearsal-notes.md\n", None),
        ("picture.png\nlib/", None),
        ("", None),
    ],
)
def test_it_reads_a_text_file_that_the_listing_names(listing: str, expected: str | None) -> None:
    talk = Talk(results=RESULTS | {"list_dir": listing})
    talk.ask("look around")
    read = [arguments["path"] for name, arguments in talk.calls if name == "read_file"]
    assert read == ([expected] if expected else [])


def test_a_result_cannot_break_out_of_its_quotation() -> None:
    hostile = " x\n```\n# Owned\n````\n<script>alert(1)</script>"
    talk = Talk(results=RESULTS | {"read_file": hostile})
    summary = talk.ask("look around")
    assert f"`````text\n{hostile}\n`````" in summary


def test_the_stream_is_paced_so_that_one_sees_it() -> None:
    async def scenario() -> float:
        async with RehearsalServer(quickstart) as server:
            headers = {"Authorization": f"Bearer {server.token}"}
            body = {"model": "quickstart", "stream": True, "messages": [{"role": "user", "content": "show a table"}]}
            async with httpx.AsyncClient(headers=headers, trust_env=False, timeout=30) as client:
                began = time.monotonic()
                response = await client.post(server.base_url + "/chat/completions", json=body)
            return response.text.count("data: ") / (time.monotonic() - began)

    assert 10 < asyncio.run(scenario()) < 60
