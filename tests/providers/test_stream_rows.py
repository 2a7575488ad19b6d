"""Known ways in which providers' streams go wrong, each against a real server."""

# ruff: noqa: E501  (a row of a table is one line)

from __future__ import annotations

import asyncio
import gzip
import json
import zlib

import pytest

from mxclaw_nb.protocol import (
    Completion,
    EmptyStream,
    ModelError,
    ProviderNotice,
    ReasoningDelta,
    StreamInterrupted,
    StreamItem,
    TextDelta,
    ToolCall,
    Usage,
)
from tests.providers.loopback import (
    STOP,
    USAGE,
    Peer,
    Script,
    answer,
    calls,
    chunked,
    closing,
    delta,
    frames,
    head,
    play,
    stream,
)

FOUND = {"index": 0, "id": "a", "function": {"name": "read", "arguments": '{"path":"a"}'}}


def completion(items: list[StreamItem]) -> Completion:
    last = items[-1]
    assert isinstance(last, Completion)
    assert not any(isinstance(item, Completion) for item in items[:-1])
    return last


def texts(items: list[StreamItem]) -> str:
    return "".join(item.text for item in items if isinstance(item, TextDelta))


def got(*datas: object, done: bool = True) -> Completion:
    """The completion of a stream of these frames; what was shown is what it holds."""
    outcome, _ = play(stream(frames(*datas, done=done)))
    assert outcome.error is None, outcome.error
    result = completion(outcome.items)
    assert texts(outcome.items) == result.text
    assert "".join(item.text for item in outcome.items if isinstance(item, ReasoningDelta)) == result.reasoning
    return result


HI = delta(content="hi")


@pytest.mark.parametrize(
    ("datas", "usage"),
    [
        pytest.param([HI, USAGE], Usage(3, 1), id="S01"),
        pytest.param([HI, {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}], Usage(3, 1), id="S02"),
        pytest.param([HI, {"choices": None, "usage": {"prompt_tokens": 3, "completion_tokens": 1}}], Usage(3, 1), id="S02-null"),
        pytest.param(
            [HI, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 1}}]}],
            Usage(3, 1), id="S03",
        ),
        pytest.param([HI, {"choices": [], "x_groq": {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}}], Usage(3, 1), id="S03-groq"),
        pytest.param(
            [HI, {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 5}}, {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 9}}],
            Usage(4, 9), id="S04",
        ),
        pytest.param(
            [HI, {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 9}}, {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}],
            Usage(4, 9), id="S04-zeros-last",
        ),
        pytest.param([HI, {"choices": [], "usage": None}, USAGE], Usage(3, 1), id="S01-null-usage"),
        pytest.param(
            [HI, {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}}],
            Usage(10, 2, 8), id="cached",
        ),
        pytest.param([HI, {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 8}}], Usage(10, 2, 8), id="cached-hit"),
        pytest.param([HI, {"choices": [], "usage": {"input_tokens": 3, "output_tokens": 1}}], Usage(3, 1), id="other-names"),
    ],
)  # fmt: skip
def test_usage_is_found_wherever_it_stands_and_counted_once(datas: list[object], usage: Usage) -> None:
    result = got(*datas)
    assert result.text == "hi"
    assert result.usage == usage


def test_without_usage_an_estimate_is_marked_as_one() -> None:
    result = got(delta(content="你好，世界" * 20), STOP)
    assert result.usage is not None
    assert result.usage.estimated
    assert 50 <= result.usage.output_tokens <= 130
    assert result.usage.cost is None


def piece(**fields: object) -> dict[str, object]:
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return {**fields, **({"function": function} if function else {})}


A1, B2 = '{"p":1}', '{"p":2}'
ONE_READ = [("read", '{"path":"a"}')]


@pytest.mark.parametrize(
    ("datas", "expected"),
    [
        pytest.param([calls(piece(id="a", name="read", arguments=A1), piece(id="b", name="read", arguments=B2))], [("read", A1), ("read", B2)], id="S06"),
        pytest.param([calls(piece(id="a", name="read", arguments=A1)), calls(piece(id="b", name="read", arguments=B2))], [("read", A1), ("read", B2)], id="S06-two-chunks"),
        pytest.param([calls(piece(name="read", arguments=A1), piece(name="read", arguments=B2))], [("read", A1), ("read", B2)], id="S06-no-ids"),
        pytest.param([calls(piece(name="ls"), piece(name="ls"))], [("ls", "{}"), ("ls", "{}")], id="S06-no-ids-no-arguments"),
        pytest.param([calls(piece(name="read", arguments=A1)), calls(piece(name="read", arguments=B2))], [("read", A1), ("read", B2)], id="S06-no-ids-two-chunks"),
        pytest.param([calls(piece(index=None, id="a", name="read", arguments='{"path":"a"')), calls(piece(index=None, arguments="}"))], ONE_READ, id="S07"),
        pytest.param([calls(piece(index=0, id="a", name="read", arguments='{"path":"a"')), calls(piece(index=None, arguments="}"))], ONE_READ, id="S07-index-then-null"),
        pytest.param([calls(piece(index=0, id="a", name="read", arguments='{"path":"a"}')), calls(piece(index=0, id="b", name="read", arguments='{"path":"b"}'))], [*ONE_READ, ("read", '{"path":"b"}')], id="S08"),
        pytest.param([calls(piece(index=0, name="read", arguments=A1)), calls(piece(index=0, name="read", arguments=B2))], [("read", A1), ("read", B2)], id="S08-no-ids"),
        pytest.param([calls(piece(index=0, id="a", name="read", arguments='{"p'), piece(index=0, id="b", name="read", arguments='{"p')), calls(piece(index=0, id="a", arguments='":1}')), calls(piece(index=0, id="b", arguments='":2}'))], [("read", A1), ("read", B2)], id="S08-interleaved"),
        pytest.param([calls(piece(index=0, id="a", name="read", arguments='{"path"')), calls(piece(index=0, id="a", arguments=':"a"')), calls(piece(index=0, id="a", arguments="}"))], ONE_READ, id="S11"),
        pytest.param([calls(piece(id="a", name="read", arguments='{"path"')), calls(piece(id="a", arguments=':"a"}'))], ONE_READ, id="S11-no-index"),
        pytest.param([calls(piece(index=0, id="a", name="read", arguments='{"path"')), calls(piece(index=0, id="zz", arguments=':"a"}'))], ONE_READ, id="S11-other-id-each-time"),
        pytest.param([calls(piece(index=0, name="x", arguments="{}"))], [("x", "{}")], id="S12"),
        pytest.param([calls(piece(index=0, id="", name="x", arguments="{}")), calls(piece(index=1, id="", name="y", arguments="{}"))], [("x", "{}"), ("y", "{}")], id="S12-empty-ids"),
        pytest.param([calls(piece(index=0, id="c", name="x", arguments="{}")), calls(piece(index=1, id="c", name="y", arguments="{}"))], [("x", "{}"), ("y", "{}")], id="S13"),
        pytest.param([calls(piece(index=0, id="c", name="x", arguments='{"a":')), calls(piece(index=1, id="c", arguments="1}"))], [("x", '{"a":1}')], id="S13-continued"),
        pytest.param([calls(piece(id="c", name="x", arguments=A1)), calls(piece(id="c", name="x", arguments=B2))], [("x", A1), ("x", B2)], id="S13-no-index"),
        pytest.param([calls(piece(index=0, id="a", name="read_file", arguments="{")), calls(piece(index=0, name="read_file", arguments='"p":')), calls(piece(index=0, name="read_file", arguments="1}"))], [("read_file", A1)], id="S14"),
        pytest.param([calls(piece(index=0, id="a", name="read_file", arguments="")), calls(piece(index=0, name="read_file", arguments="")), calls(piece(index=0, name="read_file", arguments=A1))], [("read_file", A1)], id="S14-empty-arguments"),
        pytest.param([calls(piece(index=0, id="a", name="read")), calls(piece(index=0, name="_file", arguments=A1))], [("read_file", A1)], id="S14-in-parts"),
        pytest.param([calls(piece(index=0, id="a", name="read")), calls(piece(index=0, name="read_file", arguments=A1))], [("read_file", A1)], id="S14-grows"),
        pytest.param([calls(piece(name="read_file", arguments="{")), calls(piece(name="read_file", arguments='"p":1}'))], [("read_file", A1)], id="S14-no-index-no-id"),
        pytest.param([calls(piece(index=0, id="a", arguments="{")), calls(piece(index=0, name="x", arguments="}"))], [("x", "{}")], id="S17"),
        pytest.param([calls(piece(index=None, arguments="{")), calls(piece(name="x", arguments="}"))], [("x", "{}")], id="S17-no-index-no-id"),
        pytest.param([calls(piece(index=0, id="a", name="x", arguments=None))], [("x", "{}")], id="S19-null"),
        pytest.param([calls(piece(index=0, id="a", name="x"))], [("x", "{}")], id="S19-absent"),
        pytest.param([calls(piece(index=0, id="a", name="read", arguments={"path": "a"}))], ONE_READ, id="S19-object"),
        pytest.param([calls(piece(index=0, id="a", name="read", arguments={}), piece(index=1, id="b", name="read", arguments={}))], [("read", "{}"), ("read", "{}")], id="S19-two-empty-objects"),
        pytest.param([calls({"index": 0, "id": "a", "name": "read", "arguments": {"path": "a"}})], ONE_READ, id="S19-flat"),
        pytest.param([calls(piece(index=0, id="a", name="x", arguments="  "))], [("x", "{}")], id="S20"),
        pytest.param([calls(FOUND, finish="stop")], ONE_READ, id="S21"),
        pytest.param([calls(piece(index=0, id="a", name="read", arguments='{"path":"a'), finish="tool_calls")], [("read", '{"path":"a')], id="S24"),
        pytest.param([delta(content=None, tool_calls=[FOUND])], ONE_READ, id="S50"),
        pytest.param([delta(content="", tool_calls=[FOUND])], ONE_READ, id="S50-empty"),
        pytest.param([calls(piece(index=0, id="a", name="read", arguments=A1), piece(index=1, id="b", name="read", arguments=B2))], [("read", A1), ("read", B2)], id="S70"),
        pytest.param([calls(piece(index=1, id="a", name="read", arguments=A1)), calls(piece(index=2, id="b", name="read", arguments=B2))], [("read", A1), ("read", B2)], id="S70-from-one"),
        pytest.param([calls(piece(index="0", id="a", name="read", arguments='{"path"')), calls(piece(index="0", arguments=':"a"}'))], ONE_READ, id="index-as-text"),
        pytest.param([calls(piece(index=0, id="a", name="read", arguments="{}")), calls(piece(index=0, arguments='{"path"')), calls(piece(index=0, arguments=':"a"}'))], ONE_READ, id="empty-stand-in-first"),
        pytest.param([calls(FOUND), calls(FOUND)], ONE_READ, id="sent-twice"),
        pytest.param([calls(FOUND), calls(piece(index=0, id=None, name=None, arguments=""))], ONE_READ, id="empty-piece-last"),
        pytest.param([calls(None, FOUND, 7)], ONE_READ, id="junk-among-pieces"),
        pytest.param([delta(tool_calls=FOUND)], ONE_READ, id="not-a-list"),
        pytest.param([delta(function_call={"name": "read", "arguments": '{"path"'}), delta(function_call={"arguments": ':"a"}'})], ONE_READ, id="legacy"),
        pytest.param([delta(function_call={"name": "read", "arguments": "{"}, tool_calls=[FOUND])], ONE_READ, id="legacy-beside-new"),
        pytest.param([{"choices": [{"index": 0, "delta": None, "message": {"tool_calls": [FOUND]}}]}], ONE_READ, id="message-for-delta"),
    ],
)  # fmt: skip
def test_tool_calls_are_told_apart(datas: list[object], expected: list[tuple[str, str]]) -> None:
    result = got(*datas)
    assert [(call.name, call.arguments) for call in result.tool_calls] == expected
    ids = [call.id for call in result.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert result.text == ""


def test_S13_the_first_of_two_calls_keeps_its_id() -> None:
    result = got(
        calls(piece(index=0, id="c", name="x", arguments="{}")), calls(piece(index=1, id="c", name="y", arguments="{}"))
    )
    assert result.tool_calls == (ToolCall("c", "x", "{}"), ToolCall("c-2", "y", "{}"))


def test_S12_a_made_up_id_is_the_same_for_the_same_request() -> None:
    from tests.providers.loopback import ask

    request, script = ask(), stream(frames(calls(piece(index=0, name="x", arguments="{}"))))
    first, _ = play(script, request=request)
    second, _ = play(script, request=request)
    other, _ = play(script, request=ask("something else"))
    assert completion(first.items).tool_calls == completion(second.items).tool_calls
    assert completion(first.items).tool_calls != completion(other.items).tool_calls


def test_S22_a_promise_of_calls_that_never_come_is_an_end() -> None:
    result = got(delta("tool_calls"))
    assert (result.tool_calls, result.finish_reason, result.text) == ((), "stop", "")


def test_S23_a_call_cut_by_the_length_limit_keeps_what_it_has() -> None:
    result = got(calls(piece(index=0, id="a", name="read", arguments='{"path":"a'), finish="length"))
    assert result.tool_calls == (ToolCall("a", "read", '{"path":"a'),)
    assert (result.finish_reason, result.incomplete) == ("length", True)


@pytest.mark.parametrize(
    ("datas", "text"),
    [
        pytest.param([delta(content=[{"type": "text", "text": "a"}]), STOP], "a", id="S53"),
        pytest.param([delta(content=[{"type": "text", "text": "a"}, "b", {"text": ["c", {"text": "d"}]}, None]), STOP], "abcd", id="S53-mixed"),
        pytest.param([{"choices": [{"delta": {"content": "a"}}]}, STOP], "a", id="no-index"),
        pytest.param([{"choices": [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "a"}}]}, STOP], "a", id="several-choices"),
        pytest.param([{"choices": [{"index": 1, "delta": {"content": "b"}}]}, delta(content="a"), STOP], "a", id="other-choice-only"),
        pytest.param([{"choices": None}, {"choices": [None]}, {"choices": [{"delta": None}]}, delta(content="a"), STOP], "a", id="nulls"),
        pytest.param([{"choices": [{"index": 0, "message": {"content": "a"}}]}, {"choices": [{"index": 0, "message": {"content": "b"}}]}, STOP], "ab", id="message-pieces"),
        pytest.param([delta(content="ab"), {"choices": [{"index": 0, "delta": None, "message": {"content": "ab"}, "finish_reason": "stop"}]}], "ab", id="message-repeats-all"),
        pytest.param([{"choices": [{"index": 0, "text": "a"}]}, STOP], "a", id="text-completion"),
        pytest.param([delta(refusal="no"), STOP], "no", id="refusal"),
        pytest.param([delta(content="a\u2028b\u2029c\x85d\u000be"), STOP], "a\u2028b\u2029c\x85d\u000be", id="line-separators"),
        pytest.param(['{"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}', STOP], "�", id="lone-surrogate"),
        pytest.param(['{"choices":[{"index":0,"delta":{"content":"\\ud83c"}}]}', '{"choices":[{"index":0,"delta":{"content":"\\udf78"}}]}', STOP], "\U0001f378", id="S43-in-text"),
        pytest.param(['{"choices":[{"index":0,"delta":{"content":"\\udf78x\\ud83c"}}]}', delta(content="y"), STOP], "�x�y", id="wrong-surrogates"),
    ],
)  # fmt: skip
def test_text_is_found_in_every_shape(datas: list[object], text: str) -> None:
    assert got(*datas).text == text


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"reasoning_content": "t"}, id="S54"),
        pytest.param({"reasoning": "t"}, id="S54-reasoning"),
        pytest.param({"reasoning_text": "t"}, id="S54-reasoning-text"),
        pytest.param({"reasoning_content": "t", "reasoning": "t", "content": ""}, id="S54-both"),
        pytest.param({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}]}, id="S54-parts"),
    ],
)
def test_reasoning_is_shown_once_and_is_no_text(fields: dict[str, object]) -> None:
    result = got({"choices": [{"index": 0, "delta": fields}]}, delta(content="answer"), STOP)
    assert (result.reasoning, result.text) == ("t", "answer")


def test_S43_a_surrogate_pair_split_in_arguments_is_one_character() -> None:
    result = got(
        calls(piece(index=0, id="a", name="x", arguments='{"t":"\\ud83c')), calls(piece(index=0, arguments='\\udf78"}'))
    )
    assert json.loads(result.tool_calls[0].arguments) == {"t": "\U0001f378"}


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        pytest.param('{"t":"\\ud83d"}', {"t": "�"}, id="S44"),
        pytest.param('{"t":"\\udc00\\ud83d"}', {"t": "��"}, id="S44-reversed"),
        pytest.param('{"t":"\\\\ud83d"}', {"t": "\\ud83d"}, id="S44-escaped-backslash"),
        pytest.param('{"t":"\\ud83c\\udf78\\ud83c"}', {"t": "\U0001f378�"}, id="S44-pair-kept"),
    ],
)
def test_lone_surrogates_in_arguments_are_replaced(arguments: str, value: object) -> None:
    result = got(calls(piece(index=0, id="a", name="x", arguments=arguments)))
    text = result.tool_calls[0].arguments
    text.encode()
    assert json.loads(text) == value


# Endings


def test_S26_text_without_an_end_is_interrupted() -> None:
    outcome, requests = play(closing(frames(delta(content="par"), done=False)))
    assert texts(outcome.items) == "par"
    assert isinstance(outcome.error, StreamInterrupted)
    assert (outcome.error.partial.text, outcome.error.partial.incomplete) == ("par", True)
    assert len(requests) == 1


@pytest.mark.parametrize("reset", [False, True])
def test_S27_a_half_received_call_is_never_given_out(reset: bool) -> None:
    half = frames(calls(piece(index=0, id="a", name="read", arguments='{"path":')), done=False)
    outcome, requests = play(closing(half, reset=reset))
    assert isinstance(outcome.error, ModelError)
    assert not any(isinstance(item, Completion) for item in outcome.items)
    if isinstance(outcome.error, StreamInterrupted):
        assert outcome.error.partial.tool_calls == ()
    assert len(requests) == (4 if reset else 1)


def test_S27_text_and_a_half_received_call_keep_the_text_only() -> None:
    outcome, _ = play(closing(frames(delta(content="par"), calls(FOUND), done=False)))
    assert isinstance(outcome.error, StreamInterrupted)
    assert outcome.error.partial.text == "par"
    assert outcome.error.partial.tool_calls == ()


@pytest.mark.parametrize("reset", [False, True])
def test_an_end_after_the_finish_reason_is_an_end(reset: bool) -> None:
    outcome, _ = play(closing(frames(delta(content="all"), STOP, done=False), reset=reset))
    assert outcome.error is None
    assert completion(outcome.items).text == "all"


def test_a_chunked_body_without_its_last_chunk_is_no_matter_after_the_finish_reason() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(
            head(200, [("Transfer-Encoding", "chunked")]) + chunked(frames(delta(content="all"), STOP, done=False))
        )
        peer.writer.close()

    outcome, _ = play(script)
    assert outcome.error is None
    assert completion(outcome.items).text == "all"


def test_text_and_done_without_a_finish_reason_is_complete() -> None:
    result = got(HI)
    assert (result.text, result.incomplete, result.finish_reason) == ("hi", False, None)


@pytest.mark.parametrize(
    "junk",
    [b"", b"data: {\n\n", b": x\n\n", b"data: " + json.dumps(delta(content="no")).encode() + b"\n\n", b"\xff\xfe"],
)
def test_what_follows_done_is_not_read(junk: bytes) -> None:
    outcome, _ = play(stream(frames(HI, STOP) + junk))
    assert outcome.error is None
    assert texts(outcome.items) == "hi"


@pytest.mark.parametrize("mark", [b"data: [DONE]", b"data:[DONE]\n\n", b"data:  [DONE] \r\n\r\n", b"data: [DONE]\n"])
def test_the_end_mark_in_every_spelling(mark: bytes) -> None:
    outcome, _ = play(closing(frames(HI, done=False) + mark))
    assert outcome.error is None
    assert texts(outcome.items) == "hi"


ERROR = {"choices": [], "error": {"code": 502, "message": "upstream broke"}}


@pytest.mark.parametrize(
    ("body", "words", "status", "tries"),
    [
        pytest.param(frames(ERROR), "upstream broke", 502, 4, id="S29"),
        pytest.param(frames({"error": {"code": "503", "message": "busy"}}), "busy", 503, 4, id="S29-code-as-text"),
        pytest.param(frames({"error": {"type": "overloaded_error", "message": "Overloaded"}}), "Overloaded", 529, 4, id="S29-overloaded"),
        pytest.param(frames({"error": {"code": 400, "message": "bad tool"}}), "bad tool", 400, 1, id="S29-final"),
        pytest.param(frames({"error": "just words"}), "just words", None, 1, id="S29-text"),
        pytest.param(frames({"detail": "no such model"}), "no such model", None, 1, id="S29-detail"),
        pytest.param(frames({"detail": [{"loc": ["body"], "msg": "field required"}]}), "field required", None, 1, id="S29-detail-list"),
        pytest.param(frames({"message": "boom", "code": 500}), "boom", 500, 4, id="S29-message"),
        pytest.param(frames({"object": "error", "message": "boom", "code": 404}), "boom", 404, 1, id="S29-object"),
        pytest.param(frames({"choices": [{"index": 0, "delta": {}, "error": {"message": "in the choice", "code": 400}}]}), "in the choice", 400, 1, id="S29-choice"),
        pytest.param(frames({"choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]}), "ended with error", 502, 4, id="S29-finish"),
        pytest.param(b"event: error\nid: 1\n\n", "without saying which", None, 1, id="S31"),
        pytest.param(b'event: error\ndata: {"error":{"message":"named","code":400}}\n\n', "named", 400, 1, id="S31-data"),
        pytest.param(b"event: error\ndata: plain words\n\n", "plain words", None, 1, id="S31-plain"),
    ],
)  # fmt: skip
def test_an_error_inside_a_successful_answer(body: bytes, words: str, status: int | None, tries: int) -> None:
    outcome, requests = play(stream(body))
    assert type(outcome.error) is ModelError
    assert words in outcome.error.message
    assert outcome.error.status == status
    assert len(requests) == tries
    assert sum(isinstance(item, ProviderNotice) for item in outcome.items) == tries - 1


def test_S32_an_error_after_text_keeps_the_text_and_asks_no_more() -> None:
    outcome, requests = play(stream(frames(delta(content="a"), delta(content="b"), delta(content="c"), ERROR)))
    assert texts(outcome.items) == "abc"
    assert isinstance(outcome.error, StreamInterrupted)
    assert outcome.error.partial.text == "abc"
    assert "upstream broke" in outcome.error.message
    assert len(requests) == 1


def test_S32_words_without_a_status_are_told_too() -> None:
    outcome, _ = play(stream(frames(HI, {"error": "just words"})))
    assert isinstance(outcome.error, StreamInterrupted)
    assert "just words" in outcome.error.message


def test_an_overflow_after_text_keeps_the_text() -> None:
    outcome, _ = play(stream(frames(HI, {"error": {"code": "context_length_exceeded", "message": "too long"}})))
    assert type(outcome.error) is StreamInterrupted
    assert outcome.error.partial.text == "hi"


@pytest.mark.parametrize(
    "keep_alive", [{"status": "queued", "message": "3rd"}, {"type": "ping"}, {"type": "ping", "message": "x"}, {}]
)
def test_frames_that_only_keep_the_stream_alive_are_no_errors(keep_alive: object) -> None:
    assert got(keep_alive, HI, keep_alive, STOP).text == "hi"


def test_S64_a_reset_after_text_keeps_the_text() -> None:
    outcome, requests = play(closing(frames(delta(content="a"), delta(content="b"), done=False), reset=True))
    assert texts(outcome.items) == "ab"
    assert isinstance(outcome.error, StreamInterrupted)
    assert len(requests) == 1


def test_S64_a_reset_before_text_is_tried_again() -> None:
    outcome, requests = play(closing(b": hello\n\n", reset=True), stream(frames(HI, STOP)))
    assert outcome.error is None
    assert texts(outcome.items) == "hi"
    assert len(requests) == 2
    assert isinstance(outcome.items[0], ProviderNotice)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n", id="S37"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\n\n\n", id="blank-lines"),
        pytest.param(b"data: [DONE]\n\n", id="done-only"),
        pytest.param(
            b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\ndata: [DONE]\n\n', id="role-only"
        ),
        pytest.param(b"data: junk\n\n", id="junk-only"),
    ],
)
def test_nothing_at_all_is_an_empty_stream(body: bytes) -> None:
    outcome, requests = play(stream(body))
    assert type(outcome.error) is EmptyStream
    assert len(requests) == 1


# Framing

HELLO = frames(delta(content="好"), delta(content="\U0001f378"), STOP, USAGE)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(HELLO.replace(b"data: ", b"data:"), id="S33"),
        pytest.param(HELLO.replace(b"\n", b"\r\n"), id="S34"),
        pytest.param(HELLO.replace(b"\n", b"\r"), id="cr-only"),
        pytest.param(b": ping\n\n:\n\n" + HELLO.replace(b"\n\n", b"\n\n: ping\n:\n\n"), id="S36"),
        pytest.param(b"\xef\xbb\xbf" + HELLO, id="bom"),
        pytest.param(
            b"retry: 3000\nid: 7\n" + HELLO.replace(b"data: {", b"event: message\nid: 1\ndata: {"), id="other-fields"
        ),
        pytest.param(HELLO.replace(b'"choices"', b'\ndata: "choices"'), id="S40"),
        pytest.param(HELLO.replace(b'{"id"', b'   {"id"'), id="blanks"),
    ],
)
@pytest.mark.parametrize("size", [None, 1, 3])
def test_frames_in_every_spelling(body: bytes, size: int | None) -> None:
    outcome, _ = play(stream(body, size=size))
    assert outcome.error is None, outcome.error
    assert texts(outcome.items) == "好\U0001f378"
    assert completion(outcome.items).usage == Usage(3, 1)


def test_S41_a_character_cut_in_two_reads_is_whole() -> None:
    raw = json.dumps(delta(content="好"), ensure_ascii=False).encode()
    at = raw.index(b"\xe5\xa5\xbd") + 1

    async def script(peer: Peer) -> None:
        await peer.send(head() + b"data: " + raw[:at])
        await asyncio.sleep(0.05)
        await peer.send(raw[at:] + b"\n\n" + frames(STOP))
        peer.writer.close()

    outcome, _ = play(script)
    assert texts(outcome.items) == "好"


def test_S42_a_character_cut_by_the_end_does_not_hang() -> None:
    outcome, _ = play(closing(frames(HI, done=False) + b'data: {"choices":[{"delta":{"content":"\xf0\x9f'))
    assert isinstance(outcome.error, StreamInterrupted)
    assert outcome.error.partial.text == "hi"


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    outcome, _ = play(stream(b'data: {"choices":[{"delta":{"content":"a\xffb"}}]}\n\n' + frames(STOP)))
    assert texts(outcome.items) == "a�b"


@pytest.mark.parametrize("size", [2**20, 3 * 2**20])
def test_S45_a_long_line_is_read(size: int) -> None:
    outcome, _ = play(stream(frames(delta(content="x" * size), STOP), size=65536))
    assert outcome.error is None
    assert len(texts(outcome.items)) == size


def endless(first: bytes, filler: bytes, content_type: str) -> Script:
    async def script(peer: Peer) -> None:
        await peer.send(head(200, [("Connection", "close")], content_type) + first)
        while True:
            await peer.send(filler)

    return script


@pytest.mark.parametrize(
    ("first", "filler", "content_type"),
    [
        pytest.param(b"data: ", b"x" * 2**16, "text/event-stream", id="S45-no-end-of-line"),
        pytest.param(b"data: {\n", b"data: " + b" " * 2**16 + b"\n", "text/event-stream", id="S45-no-end-of-event"),
        pytest.param(b"x", b"x" * 2**16, "text/event-stream", id="S46"),
        pytest.param(b'{"a":"', b"x" * 2**16, "application/json", id="S46-json"),
        pytest.param(b"<html>", b"x" * 2**16, "text/html", id="S46-html"),
        pytest.param(b"\0", b"\0" * 2**16, "application/octet-stream", id="S46-binary"),
        pytest.param(
            b"",
            frames(calls(piece(index=0, name="x", arguments="a" * 2**20)), done=False),
            "text/event-stream",
            id="S46-arguments",
        ),
    ],
)
def test_an_endless_body_is_given_up(first: bytes, filler: bytes, content_type: str) -> None:
    outcome, requests = play(endless(first, filler, content_type))
    assert isinstance(outcome.error, ModelError)
    assert len(requests) == 1


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw-deflate"])
def test_S47_a_compressed_stream_is_read_as_it_comes(encoding: str) -> None:
    window = {"gzip": 31, "deflate": 15, "raw-deflate": -15}[encoding]

    async def script(peer: Peer) -> None:
        deflate = zlib.compressobj(wbits=window)
        name = encoding.removeprefix("raw-")
        await peer.send(head(200, [("Transfer-Encoding", "chunked"), ("Content-Encoding", name)]))
        for frame in (delta(content="a"), delta(content="b"), STOP):
            data = deflate.compress(frames(frame, done=False)) + deflate.flush(zlib.Z_SYNC_FLUSH)
            await peer.send(chunked(data))
            await asyncio.sleep(0.02)
        await peer.send(chunked(deflate.compress(b"data: [DONE]\n\n") + deflate.flush()) + b"0\r\n\r\n")

    outcome, _ = play(script)
    assert outcome.error is None, outcome.error
    assert [item.text for item in outcome.items if isinstance(item, TextDelta)] == ["a", "b"]


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "gzip, br"])
def test_a_body_in_an_encoding_that_was_not_asked_for_fails_with_its_name(encoding: str) -> None:
    bomb = gzip.compress(gzip.compress(b"data: " + b"x" * (64 * 2**20)))
    outcome, requests = play(answer(200, bomb, [("Content-Encoding", encoding)], "text/event-stream"))
    assert type(outcome.error) is ModelError
    assert encoding in outcome.error.message
    assert len(requests) == 1


def test_a_decompression_bomb_is_given_up() -> None:
    outcome, _ = play(
        answer(200, gzip.compress(b"data: " + b"x" * (64 * 2**20)), [("Content-Encoding", "gzip")], "text/event-stream")
    )
    assert type(outcome.error) is ModelError


def test_frames_that_are_not_json_are_skipped_with_one_notice() -> None:
    outcome, _ = play(stream(frames(HI, "junk", "{", "[1]", "7", STOP)))
    assert outcome.error is None
    notices = [item for item in outcome.items if isinstance(item, ProviderNotice)]
    assert len(notices) == 1
    assert "4 frames" in notices[0].text


WHOLE = {
    "id": "x",
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi", "tool_calls": [FOUND]}, "finish_reason": "tool_calls"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1},
}  # fmt: skip


@pytest.mark.parametrize(
    "content_type", ["application/json", "text/plain", "text/event-stream", "application/json; charset=utf-8"]
)
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b" \r\n"])
def test_a_whole_completion_is_a_completion(content_type: str, before: bytes) -> None:
    outcome, _ = play(answer(200, before + json.dumps(WHOLE, indent=1).encode(), content_type=content_type))
    assert outcome.error is None
    result = completion(outcome.items)
    assert (texts(outcome.items), result.text) == ("hi", "hi")
    assert result.tool_calls == (ToolCall("a", "read", '{"path":"a"}'),)
    assert result.usage == Usage(3, 1)


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", "application/json", None])
def test_a_stream_under_a_wrong_content_type_is_a_stream(content_type: str | None) -> None:
    outcome, _ = play(stream(frames(HI, STOP), content_type=content_type, size=1))
    assert outcome.error is None
    assert texts(outcome.items) == "hi"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"<!doctype html><title>Sign in</title>", "text/html"),
        (b"OK", "text/plain"),
        (b'{"ok":true}', "application/json"),
        (b'{"model":"m","message":{"content":"a"}}\n{"done":true}\n', "application/x-ndjson"),
        (b"[]", "application/json"),
        (b"\x89PNG\r\n", "image/png"),
        (b"datum", "text/plain"),
    ],
)
def test_a_success_that_is_no_completion_names_its_content_type(body: bytes, content_type: str) -> None:
    outcome, requests = play(answer(200, body, content_type=content_type))
    assert type(outcome.error) is ModelError
    assert content_type in outcome.error.message
    assert len(requests) == 1
