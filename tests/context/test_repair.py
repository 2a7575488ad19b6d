"""Whatever was stored, the model is sent a transcript that its wire format allows."""

from __future__ import annotations

import gc
import random
import re
from collections.abc import Sequence
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxclaw_nb.context import build_view
from mxclaw_nb.protocol import Attachment, Message, ToolCall, ToolCompleted

READ_ONLY = {"read_file", "list_dir"}


def effects(name: str) -> bool:
    return name not in READ_ONLY


def user(text: str = "go on") -> Message:
    return Message(role="user", content=text, turn_id="t-1")


def says(text: str = "", *calls: tuple[str, str] | str, turn: str = "t-1", **more: object) -> Message:
    made = tuple(
        ToolCall(call, "read_file", "{}") if isinstance(call, str) else ToolCall(call[0], call[1], "{}")
        for call in calls
    )
    return Message(role="assistant", content=text, tool_calls=made, turn_id=turn, **more)  # type: ignore[arg-type]


def result(call_id: str, text: str = "ok", name: str = "read_file") -> Message:
    return Message(role="tool", content=text, tool_call_id=call_id, name=name, turn_id="t-1", status="ok")


def view(*messages: Message, **options: object) -> list[Message]:
    return list(build_view(messages, has_side_effects=effects, **options).messages)  # type: ignore[arg-type]


def shape(messages: Sequence[Message]) -> list[str]:
    """The view in words: roles, calls and what answers them."""
    out = []
    for message in messages:
        if message.role == "tool":
            out.append(f"tool {message.tool_call_id}={message.content}")
        elif message.tool_calls:
            out.append("calls " + ",".join(call.id for call in message.tool_calls))
        else:
            out.append(f"{message.role} {message.content}".strip())
    return out


def assert_valid(messages: Sequence[Message]) -> None:
    """The wire's rule: each reply's calls are followed by exactly their results, in order; ids are unique."""
    seen: set[str] = set()
    index = 0
    while index < len(messages):
        message = messages[index]
        assert message.role != "tool", "a result without its call"
        index += 1
        for call in message.tool_calls:
            assert call.id and call.id not in seen
            seen.add(call.id)
            assert index < len(messages), "a call without its result"
            answer = messages[index]
            assert answer.role == "tool" and answer.tool_call_id == call.id
            index += 1


def test_t01_a_missing_result_at_the_tail_is_stood_in_for_before_the_next_user_message() -> None:
    rows = [user("a"), says("", "c1"), user("go on")]
    before = list(rows)
    shown = view(*rows)
    assert [message.role for message in shown] == ["user", "assistant", "tool", "user"]
    assert "interrupted before a result was recorded" in shown[2].content
    assert "retried if it is still needed" in shown[2].content
    assert rows == before


def test_t02_a_missing_result_in_mid_history_stands_right_after_its_call() -> None:
    shown = view(user("a"), says("", "c1"), user("b"), says("done"))
    assert [message.role for message in shown] == ["user", "assistant", "tool", "user", "assistant"]


def test_t04_an_orphan_result_is_left_out_and_said() -> None:
    built = build_view([user("a"), result("x")])
    assert shape(built.messages) == ["user a"]
    assert len(built.warnings) == 1


def test_t05_of_two_results_the_first_wins() -> None:
    assert shape(view(says("", "a"), result("a", "1"), result("a", "2"))) == ["calls a", "tool a=1"]


def test_t07_the_second_use_of_an_id_gets_its_own_result() -> None:
    shown = view(says("", "c0"), result("c0", "1"), says("", "c0"), user("x"))
    assert_valid(shown)
    assert shown[1].content == "1"
    assert "interrupted" in shown[3].content


def test_t07_two_results_after_two_uses_of_one_id_are_shared_out_in_order() -> None:
    shown = view(says("", "c0"), says("", "c0"), result("c0", "1"), result("c0", "2"))
    assert [message.content for message in shown if message.role == "tool"] == ["1", "2"]


def test_t08_ids_that_start_anew_in_each_turn_are_renamed_the_same_way_each_time() -> None:
    rows = [m for n in range(3) for m in (user(str(n)), says("", "call_0"), result("call_0", str(n)))]
    first = view(*rows)
    assert_valid(first)
    assert view(*rows, user("more"))[: len(first)] == first
    assert [message.content for message in first if message.role == "tool"] == ["0", "1", "2"]


def test_t09_a_result_behind_a_user_message_is_brought_back_to_its_call() -> None:
    assert shape(view(says("", "a"), user("x"), result("a", "1"))) == ["calls a", "tool a=1", "user x"]


def test_t10_results_out_of_order_are_put_into_the_order_of_the_calls() -> None:
    shown = view(says("", "a", "b"), result("b", "2"), result("a", "1"))
    assert shape(shown) == ["calls a,b", "tool a=1", "tool b=2"]


def test_t15_a_call_that_completed_before_the_crash_keeps_its_real_result() -> None:
    done = ToolCompleted(
        sequence=1,
        session_id="s",
        turn_id="t-1",
        timestamp="",
        call_id="a",
        name="write_file",
        status="ok",
        result="12 bytes",
    )
    shown = view(says("", ("a", "write_file")), user("x"), finished={("t-1", "a"): done})
    assert shown[1].content == "12 bytes" and shown[1].status == "ok"


@pytest.mark.parametrize("arguments", ['{"file_path":5}', '{"a": "\\u00e9"}', "{}"])
def test_t16_arguments_that_are_an_object_are_sent_as_they_were_written(arguments: str) -> None:
    rows = [Message(role="assistant", tool_calls=(ToolCall("a", "read_file", arguments),)), result("a")]
    assert view(*rows)[0].tool_calls[0].arguments == arguments


@pytest.mark.parametrize(
    "arguments", ["", '{"a":', "[1]", "null", "5", '"x"', "nonsense", '{"a":1}{"b":2}', "{'a': 1}"]
)
def test_t16_arguments_that_are_no_object_are_sent_as_an_empty_one(arguments: str) -> None:
    rows = [Message(role="assistant", tool_calls=(ToolCall("a", "read_file", arguments),)), result("a")]
    assert view(*rows)[0].tool_calls[0].arguments == "{}"


def test_t17_a_broken_off_reply_with_half_a_call_is_left_out() -> None:
    broken = says("", "a", incomplete=True)
    assert shape(view(user("x"), broken, user("y"))) == ["user x", "user y"]


def test_t17_a_broken_off_reply_keeps_the_text_that_was_shown_and_loses_its_calls() -> None:
    broken = says("so far", "a", incomplete=True)
    assert shape(view(user("x"), broken, result("a"), user("y"))) == ["user x", "assistant so far", "user y"]


def test_a_reply_that_hit_the_output_limit_keeps_its_refused_call() -> None:
    cut = says("", "a", incomplete=True, finish_reason="length")
    assert shape(view(cut, result("a", "truncated"))) == ["calls a", "tool a=truncated"]


def test_t18_one_id_twice_in_one_reply_becomes_two() -> None:
    shown = view(says("", "a", "a"), result("a", "ran"), result("a", "duplicate id"))
    assert_valid(shown)
    assert [message.content for message in shown[1:]] == ["ran", "duplicate id"]


def test_t19_an_interrupted_call_with_side_effects_claims_nothing_about_its_outcome() -> None:
    text = view(says("", ("a", "write_file")), user("x"))[1].content
    assert "outcome is unknown" in text and "Check before" in text
    assert "not executed" not in text
    assert "outcome" not in view(says("", "a"), user("x"))[1].content


@pytest.mark.parametrize("name", ["functions.read_file", "", "a" * 80, "名字", "x y"])
def test_a_name_that_the_wire_refuses_is_made_sendable(name: str) -> None:
    shown = view(Message(role="assistant", tool_calls=(ToolCall("a", name, "{}"),)), result("a", name=name))
    sent = shown[0].tool_calls[0].name
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", sent)


def test_an_empty_id_gets_one() -> None:
    assert_valid(view(Message(role="assistant", tool_calls=(ToolCall("", "x", "{}"),)), user("y")))


def test_a_generated_name_that_collides_with_a_later_id_stays_unique() -> None:
    assert_valid(view(says("", "a"), result("a"), says("", "a"), result("a"), says("", "a-2"), result("a-2")))


def test_an_empty_reply_is_left_out() -> None:
    assert shape(view(user("a"), says("  "), user("b"))) == ["user a", "user b"]


def test_what_was_mentioned_is_part_of_the_words_and_the_same_object_each_round() -> None:
    mentioned = Message("user", "look", attachments=(Attachment("df", "1 2 3"), Attachment("a.py", "x = 1")))
    first = view(mentioned, says("", "c1"), result("c1"))
    second = view(mentioned, says("", "c1"))
    assert first[0].content == (
        'look\n\n<attachment name="df">\n1 2 3\n</attachment>\n\n<attachment name="a.py">\nx = 1\n</attachment>'
    )
    assert first[0].attachments == ()
    assert first[0] is second[0], "so that it is encoded once"
    assert view(*first)[0] is first[0]


def test_two_messages_that_say_the_same_are_rendered_each_for_itself() -> None:
    twins = [Message("user", "look", id=name, attachments=(Attachment("df", "1"),)) for name in ("m-1", "m-2")]
    assert [message.id for message in view(*twins)] == ["m-1", "m-2"]


def test_a_rendering_is_forgotten_with_its_message() -> None:
    mentioned = Message("user", "look", attachments=(Attachment("df", "1 2 3"),))
    rendered = ref(view(mentioned)[0])
    del mentioned
    gc.collect()
    assert rendered() is None


def _valid_transcript(numbers: random.Random) -> list[Message]:
    rows = [Message(role="system", content="be good")]
    made = 0
    for turn in range(numbers.randint(1, 4)):
        rows.append(user(f"question {turn}"))
        for _ in range(numbers.randint(0, 3)):
            names = [f"call-{made + index}" for index in range(numbers.randint(1, 3))]
            made += len(names)
            rows.append(says("", *names, turn=f"t-{turn}"))
            rows.extend(result(name, f"result of {name}") for name in names)
        rows.append(says(f"answer {turn}"))
    return rows


@given(st.integers())
def test_a_valid_transcript_comes_back_unchanged(seed: int) -> None:
    rows = _valid_transcript(random.Random(seed))
    shown = build_view(rows)
    assert len(shown.messages) == len(rows)
    assert all(new is old for new, old in zip(shown.messages, rows, strict=True))
    assert not shown.warnings


@given(st.integers(), st.data())
def test_any_damage_to_a_valid_transcript_is_mended_and_mending_twice_is_once(seed: int, data: st.DataObject) -> None:
    numbers = random.Random(seed)
    rows = _valid_transcript(numbers)
    kind = data.draw(st.sampled_from(["prefix", "delete", "duplicate", "shuffle", "everything"]))
    if kind in {"prefix", "everything"}:
        rows = rows[: data.draw(st.integers(0, len(rows)))]
    if kind in {"delete", "everything"}:
        rows = [row for row in rows if numbers.random() > 0.3]
    if kind in {"duplicate", "everything"}:
        rows = [copy for row in rows for copy in [row] * numbers.choice([1, 1, 2, 3])]
    if kind in {"shuffle", "everything"}:
        numbers.shuffle(rows)
    once = build_view(rows)
    assert_valid(once.messages)
    twice = build_view(once.messages)
    assert twice.messages == once.messages and not twice.warnings
    assert build_view(rows) == once


@given(st.integers(), st.integers(0, 30))
def test_the_prefix_of_the_view_does_not_change_when_the_session_goes_on(seed: int, more: int) -> None:
    numbers = random.Random(seed)
    rows = [*_valid_transcript(numbers), user("next")]
    shown = build_view(rows).messages
    longer = rows + [user(str(n)) for n in range(more)]
    assert build_view(longer).messages[: len(shown)] == shown
