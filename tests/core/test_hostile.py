"""Whatever a model sends, the turn ends with a clear state, every call is answered, and the next request is valid."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mxclaw_nb.protocol import Event, MessageCompleted, ToolCompleted, TurnCompleted, TurnFailedEvent, event_to_json
from mxclaw_nb.providers.rehearsal import ChatRequest, RawFrames, Reply, raw, say
from tests.end_to_end.program import assert_events_sound, assert_prefix_stable, assert_wire_valid

from .conftest import Play, Stage

DONE = b"data: [DONE]\n\n"
DEEP = "[" * 100_000 + "]" * 100_000


def delta(content: dict[str, Any], **more: Any) -> bytes:
    choice = {"index": 0, "delta": content, **more}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def calls(*made: tuple[str, str, str]) -> RawFrames:
    """A reply of calls: name, arguments, id."""
    frames = [
        delta({"tool_calls": [{"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}]})
        for index, (name, arguments, call_id) in enumerate(made)
    ]
    return raw(*frames, DONE)


def one(name: str, arguments: str, call_id: str = "c") -> RawFrames:
    return calls((name, arguments, call_id))


HOSTILE: dict[str, Callable[[], RawFrames]] = {
    "a thousand calls of no tool": lambda: calls(*((f"no{i}", "{}", f"c{i}") for i in range(1000))),
    "a hundred calls of one id": lambda: calls(
        *(("list_dir", json.dumps({"path": "./" * i + "."}), "same") for i in range(100))
    ),
    "the same call a hundred times": lambda: calls(*(("list_dir", "{}", f"c{i}") for i in range(100))),
    "ten megabytes of arguments": lambda: one("write_file", json.dumps({"path": "big", "content": "x" * 10_000_000})),
    "a field name of ten megabytes": lambda: one("list_dir", json.dumps({"k" * 10_000_000: 1})),
    "a thousand unknown fields": lambda: one("list_dir", json.dumps({f"k{i}": 1 for i in range(1000)})),
    "a name of control characters": lambda: one("read\0\x1b[31m_file\r\n\u202e", "{}"),
    "a name of a megabyte": lambda: one("n" * 1_000_000, "{}"),
    "a name of half a character": lambda: one("re\ud800ad", "{}"),
    "a name with markup": lambda: one("<img src=x onerror=alert(1)>", "{}"),
    "an id that is a path": lambda: one("run_command", '{"command":"seq 100000"}', "../../../../etc/passwd"),
    "an id of a megabyte": lambda: one("list_dir", "{}", "i" * 1_000_000),
    "an id of anything": lambda: one("list_dir", "{}", "\0\ud800\n 中"),
    "ids that are prefixes of each other": lambda: calls(
        ("list_dir", '{"path":"."}', "a"), ("list_dir", '{"path":"./."}', "a-2"), ("list_dir", '{"path":"././."}', "a")
    ),
    "NUL everywhere": lambda: raw(
        delta({"content": "a\0b\ud800c", "reasoning_content": "\0\udfff"}),
        delta({"tool_calls": [{"id": "a", "function": {"name": "write_file", "arguments": '{"path":"\\u0000"}'}}]}),
        DONE,
    ),
    "NUL in a command": lambda: one("run_command", '{"command":"echo a\\u0000b"}'),
    "half characters in arguments": lambda: one("write_file", '{"path":"\\ud800","content":"\\udfff"}'),
    "a half character as a field name": lambda: one("list_dir", '{"\\ud800":1}'),
    "arguments nested 100,000 deep": lambda: one("list_dir", '{"path":' + DEEP + "}"),
    "arguments nested, with half a character": lambda: one(
        "list_dir", '{"path":' + "[" * 900 + '"\\ud800"' + "]" * 900 + "}"
    ),
    "numbers without end": lambda: one("read_file", '{"path":"a","offset":' + "9" * 1_000_000 + "}"),
    "numbers that are none": lambda: one("run_command", '{"command":"true","timeout_s":NaN}'),
    "arguments that are a list": lambda: one("list_dir", "[1]"),
    "arguments that are prose": lambda: one("list_dir", "please list the folder"),
    "a frame nested 100,000 deep": lambda: raw(
        b'data: {"choices":' + DEEP.encode() + b"}\n\n", delta({"content": "x"}), DONE
    ),
    "a reply of twenty megabytes": lambda: raw(*[delta({"content": "y" * 100_000})] * 200, DONE),
    "reasoning of twenty megabytes": lambda: raw(
        *[delta({"reasoning_content": "y" * 100_000})] * 200, delta({"content": "x"}), DONE
    ),
    "reasoning and nothing else": lambda: raw(delta({"reasoning_content": "hm"}), DONE),
    "finish reasons of any type": lambda: raw(
        delta({"content": "x"}, finish_reason={"a": 1}),
        delta({}, finish_reason=["x"]),
        delta({}, finish_reason=5),
        DONE,
    ),
    "a finish reason of a megabyte": lambda: raw(delta({"content": "x"}, finish_reason="f" * 1_000_000), DONE),
    "usage of any type": lambda: raw(
        delta({"content": "x"}),
        b'data: {"choices":[],"usage":{"prompt_tokens":-5,"completion_tokens":1e300,"total_tokens":"x"}}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":99999999999999999999999,"completion_tokens":true}}\n\n',
        DONE,
    ),
    "choices of any type": lambda: raw(
        b'data: {"choices":{"0":1}}\n\n',
        b'data: {"choices":[null,5,"x",{"delta":5},{"delta":{"content":{"a":1},"tool_calls":{"x":1}}}]}\n\n',
        b'data: {"choices":[{"delta":{"tool_calls":[5,null,{"function":5},{"function":{"name":5}}]}}]}\n\n',
        delta({"content": "x"}),
        DONE,
    ),
    "a command of 100,000 characters": lambda: one("run_command", json.dumps({"command": "a" * 100_000})),
    "wrappers without end": lambda: one("run_command", json.dumps({"command": "env " * 20_000, "timeout_s": 1})),
    "a path of a megabyte": lambda: one("read_file", json.dumps({"path": "a/" * 500_000})),
    "a pattern that explodes": lambda: one("glob", json.dumps({"pattern": "{a,b}" * 30})),
    "a regular expression that explodes": lambda: one("grep", json.dumps({"pattern": "(a|a)*$"})),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_whatever_a_model_sends_the_turn_ends_and_the_next_request_is_valid(kind: str, play: Play) -> None:
    def script(request: ChatRequest) -> Reply:
        return say("Enough.") if request.messages[-1].role == "tool" else HOSTILE[kind]()

    async def scenario(stage: Stage) -> None:
        (stage.workspace / "a").write_text("a" * 40 + "b\n")
        session = await stage.session(mode="allow-all")
        events: list[Event] = []
        for prompt in ("one", "two"):
            events += await stage.turn(session, prompt)
            assert isinstance(events[-1], TurnCompleted | TurnFailedEvent)
        assert (await stage.store.session(session.id)).state in ("idle", "failed")
        assert_events_sound([json.loads(event_to_json(event)) for event in events])
        for request in stage.server.requests:
            assert_wire_valid(request)
        assert_prefix_stable(list(stage.server.requests))
        for event in events:
            if isinstance(event, ToolCompleted):
                assert len(event.result) <= 21_000
                assert len(event.call_id) <= 140 and len(event.name) <= 256
            if isinstance(event, MessageCompleted):
                assert len(event.finish_reason or "") <= 1000
        outputs = stage.home / "outputs" / session.id
        assert not outputs.exists() or all(path.parent == outputs for path in outputs.rglob("*"))

    play(script, scenario)


def test_half_a_character_in_any_field_of_an_event_stays_off_the_wire() -> None:
    event = ToolCompleted(
        sequence=1, session_id="s", turn_id="t", timestamp="", call_id="\ud800", name="n", status="ok",
        result="a\ud83c\udf78b\udfff",
    )  # fmt: skip
    line = event_to_json(event)
    line.encode()
    assert json.loads(line)["result"] == "a🍸b\ufffd"
