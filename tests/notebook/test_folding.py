"""Folding events into what a screen shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxclaw_nb.notebook.folding import REASONING_CHARACTERS, TAIL_CHARACTERS, Call, Remark, Reply, TurnState, fold
from mxclaw_nb.protocol import Event
from tests.notebook.events import Told, a_whole_turn, call


def test_a_whole_turn_keeps_what_happened_in_its_order() -> None:
    state = fold(a_whole_turn("Fine.").events)
    assert [type(item) for item in state.items] == [Reply, Call, Reply]
    assert state.final_text == "Fine."
    assert (state.phase, state.rounds, state.input_tokens, state.output_tokens) == ("completed", 2, 200, 40)
    only = state.calls[0]
    assert (only.status, only.answer, only.result, only.duration_ms) == ("ok", "allow_once", "total 0\n", 1234)


def test_phases_follow_the_turn() -> None:
    state, told = TurnState(), Told()
    seen = []
    for event in (
        told.started(), told.delta("x"), told.message("x", (call(),)), told.asked(), told.answered(),
        told.tool_started(), told.tool_completed(), told.completed(),
    ):  # fmt: skip
        state.apply(event)
        seen.append(state.phase)
    assert seen == ["waiting", "writing", "waiting", "asking", "waiting", "running", "waiting", "completed"]


def test_a_model_that_only_reasons_is_thinking_until_it_writes() -> None:
    state, told = TurnState(), Told()
    seen = []
    for event in (
        told.started(), told.thought("Let me "), told.thought("see."), told.delta("x"), told.thought("Hm."),
        told.message("x"), told.thought("Next."),
    ):  # fmt: skip
        state.apply(event)
        seen.append((state.phase, state.reasoning_tail))
    assert seen == [
        ("waiting", ""), ("thinking", "Let me "), ("thinking", "Let me see."), ("writing", "Let me see."),
        ("writing", "Let me see.Hm."), ("waiting", ""), ("thinking", "Next."),
    ]  # fmt: skip


def test_of_reasoning_without_end_only_the_end_is_kept() -> None:
    told = Told()
    for number in range(3000):
        told.thought(f"{number:05d} ")
    state = fold(told.events)
    assert len(state.reasoning_tail) == REASONING_CHARACTERS
    assert state.reasoning_tail.endswith("02999 ")


@pytest.mark.parametrize("after", ["notice", "delta", "thought", "message", "asked", "tool_started", "tool_completed"])
def test_the_newest_notice_stands_until_something_comes(after: str) -> None:
    told = Told()
    told.started()
    told.notice("try 2 of 4")
    told.usage()
    told.notice("try 3 of 4")
    state = fold(told.events)
    assert state.remark is not None and state.remark.text == "try 3 of 4"
    happen = getattr(told, after)
    state.apply(happen("more") if after in ("notice", "delta", "thought") else happen())
    assert (state.remark is None) is (after != "notice")
    assert state.items[:2] == [Remark("warning", "try 2 of 4"), Remark("warning", "try 3 of 4")]


def test_the_same_call_id_in_a_later_reply_is_another_call() -> None:
    told = Told()
    told.started()
    told.message("", (call("call_0", "read_file"),), "m-1")
    told.tool_completed("one", call="call_0", name="read_file")
    told.message("", (call("call_0", "read_file"),), "m-2")
    told.tool_completed("two", call="call_0", name="read_file")
    assert [one.result for one in fold(told.events).calls] == ["one", "two"]


def test_a_call_without_a_result_is_shown_as_interrupted_when_the_turn_ends() -> None:
    told = Told()
    told.started()
    told.tool_started()
    told.failed("cancelled", "The turn was stopped.")
    state = fold(told.events)
    assert state.phase == "interrupted"
    assert state.calls[0].status == "interrupted"


def test_a_growing_reply_keeps_only_its_tail_for_the_live_view() -> None:
    told = Told()
    told.started()
    for number in range(3000):
        told.delta(f"{number:05d} ")
    state = fold(told.events)
    assert len(state.reply_tail) == TAIL_CHARACTERS
    assert state.reply_cut
    assert state.reply_tail.endswith("02999 ")
    assert len(state.final_text) == 3000 * 6


def test_notices_stand_where_they_happened() -> None:
    told = Told()
    told.started()
    told.message("one", message="m-1")
    told.notice("The reply was cut by the output limit.")
    told.message("two", message="m-2")
    assert [type(item) for item in fold(told.events).items] == [Reply, Remark, Reply]


def _some_events() -> list[Event]:
    told = a_whole_turn()
    told.asked(call="c-2", request="a-2")
    told.tool_completed(call="never-seen", name="x")
    told.output("late", call="c-9")
    told.answered(call="c-9", request="a-9")
    told.failed()
    return told.events


@given(st.lists(st.sampled_from(_some_events()), max_size=40))
def test_any_events_in_any_order_are_folded_without_a_complaint(events: list[Event]) -> None:
    state = fold(events)
    assert len({id(one) for one in state.calls}) == len(state.calls)
    assert all(one in state.calls for one in state.pending)
