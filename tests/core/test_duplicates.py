"""What counts as a duplicate call within one turn."""

from __future__ import annotations

from mxclaw_nb.core.duplicates import REPEATED, STUCK, DuplicateGuard, call_key


def made(guard: DuplicateGuard, key: str, result: str = "x", *, effects: bool = False) -> str | None:
    """Make a call as the loop would; the refusal if it was refused."""
    refusal = guard.refusal(key)
    if refusal is None:
        guard.begin(key)
        guard.finished(key, result, side_effects=effects)
    return refusal


def test_the_same_call_again_is_refused_whatever_the_order_and_spacing_of_its_arguments() -> None:
    guard = DuplicateGuard()
    assert made(guard, call_key("grep", {"a": 1, "b": {"x": [1, 2], "y": None}})) is None
    assert made(guard, call_key("grep", {"b": {"y": None, "x": [1, 2]}, "a": 1})) == REPEATED


def test_other_arguments_or_another_tool_is_another_call() -> None:
    guard = DuplicateGuard()
    assert made(guard, call_key("grep", {"a": 1})) is None
    assert made(guard, call_key("grep", {"a": "1"})) is None
    assert made(guard, call_key("glob", {"a": 1})) is None


def test_test_edit_test_works() -> None:
    guard = DuplicateGuard()
    assert made(guard, "pytest", "1 failed", effects=True) is None
    assert made(guard, "edit", "ok", effects=True) is None
    assert made(guard, "pytest", "1 passed", effects=True) is None
    assert made(guard, "pytest", effects=True) == REPEATED


def test_a_read_in_between_does_not_allow_a_repetition() -> None:
    guard = DuplicateGuard()
    made(guard, "a")
    made(guard, "b")
    assert made(guard, "a") == REPEATED


def test_a_call_with_side_effects_does_not_allow_itself() -> None:
    guard = DuplicateGuard()
    made(guard, "a", effects=True)
    assert made(guard, "a", effects=True) == REPEATED


def test_a_denied_interrupted_or_timed_out_call_may_be_made_again() -> None:
    guard = DuplicateGuard()
    guard.begin("a")
    guard.forget("a")
    assert made(guard, "a") is None


def test_a_permitted_repetition_is_refused_from_the_fourth_time_when_it_returned_the_same_thrice() -> None:
    guard = DuplicateGuard()
    answers = []
    for _ in range(5):
        answers.append(made(guard, "pytest", "same failure", effects=True))
        made(guard, f"edit {len(answers)}", "ok", effects=True)
    assert answers == [None, None, None, STUCK, STUCK]


def test_a_repetition_with_ever_new_results_goes_on() -> None:
    guard = DuplicateGuard()
    for number in range(6):
        assert made(guard, "pytest", f"{number} passed", effects=True) is None
        made(guard, f"edit {number}", "ok", effects=True)


def test_two_calls_that_alternate_without_end_are_stopped() -> None:
    guard = DuplicateGuard()
    answers = [made(guard, "AB"[number % 2], "same", effects=True) for number in range(10)]
    assert STUCK in answers[6:8] and None not in answers[7:]


def test_a_second_call_of_a_parallel_batch_is_refused_while_the_first_still_runs() -> None:
    guard = DuplicateGuard()
    guard.begin("a")
    assert guard.refusal("a") == REPEATED
