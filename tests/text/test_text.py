"""Untrusted text on its way to a screen: nothing controls the terminal, nothing hides, nothing is too wide."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxclaw_nb.text import (
    ControlStripper,
    escape_invisible,
    fit,
    last_words,
    named_values,
    one_line,
    plain,
    text_width,
)

HOSTILE = [
    ("\x1b[31mred\x1b[0m", "red"),
    ("a\x1b[2J\x1b[Hb", "ab"),
    ("\x1b]0;title\x07text", "text"),
    ("\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("\x1b]52;c;ZXZpbA==\x07clipboard", "clipboard"),
    ("\x1bP1;2|payload\x1b\\after", "after"),
    ("\x9b31mC1\x9b0m", "C1"),
    ("\x9d0;title\x9cC1 string", "C1 string"),
    ("\x1b]never closed\nnext line", "\nnext line"),
    ("50%\r100%\r\ndone", "50%\n100%\ndone"),
    ("bell\x07 back\x08space nul\x00 del\x7f", "bell backspace nul del"),
    ("\x1bc reset", " reset"),
    ("\x1b(0 charset", " charset"),
    ("中文\ttab\n", "中文\ttab\n"),
    ("half \ud83d emoji", "half \ufffd emoji"),
]


@pytest.mark.parametrize(("text", "shown"), HOSTILE)
def test_no_sequence_reaches_the_terminal(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize(("text", "shown"), HOSTILE)
def test_a_stream_may_be_cut_anywhere(text: str, shown: str) -> None:
    for cut in range(len(text) + 1):
        stripper = ControlStripper()
        assert stripper.feed(text[:cut]) + stripper.feed(text[cut:]) + stripper.finish() == shown


@given(st.lists(st.text(alphabet="\x1b[]0;m\x07\\\r\n\x9b\x9c\x9dP31Jab中"), max_size=8))
def test_in_whatever_pieces_it_comes_no_control_character_is_left(pieces: list[str]) -> None:
    stripper = ControlStripper()
    shown = "".join(map(stripper.feed, pieces)) + stripper.finish()
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown) is None
    assert shown == plain("".join(pieces))


def test_an_unclosed_string_is_not_held_back_for_ever() -> None:
    stripper = ControlStripper()
    assert stripper.feed("\x1b]0;" + "x" * 100_000) == ""
    assert stripper.feed("\nseen") == "\nseen"


@pytest.mark.parametrize(
    "hidden",
    ["\u202e", "\u2066", "\u200b", "\u00a0", "\u3000", "\ufeff", "\u3164", "\U000e0041", "\ufe0f", "\x1b", "\u2028"],
)
def test_what_a_person_decides_by_hides_nothing(hidden: str) -> None:
    assert escape_invisible(f"rm {hidden}-rf") == f"rm ⟨U+{ord(hidden):04X}⟩-rf"


def test_what_can_be_seen_stays_as_it_is() -> None:
    text = "echo 你好 é e\u0301 😀\n\tdone"
    assert escape_invisible(text) == text


@given(st.text(), st.integers(min_value=0, max_value=40))
def test_fitted_text_is_never_too_wide(text: str, width: int) -> None:
    assert text_width(fit(text, width)) <= width
    assert text_width(one_line(text, width)) <= width


def test_chinese_is_cut_at_its_width() -> None:
    assert fit("数据分析报告", 7) == "数据分…"
    assert fit("数据分析", 8) == "数据分析"
    assert one_line("first\nsecond\t third") == "first second third"


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("short", 10, "short"),
        ("", 10, ""),
        ("one\n two   three", 40, "one two three"),
        ("one two three", 10, "…two three"),
        ("价格价格价格", 7, "…格价格"),
        ("x" * 1000, 5, "…xxxx"),
        ("a\u202eb", 20, "a⟨U+202E⟩b"),
    ],
)
def test_the_last_words_are_the_end_of_a_text(text: str, width: int, shown: str) -> None:
    assert last_words(text, width) == shown


@given(st.text(), st.integers(2, 60))
def test_the_last_words_are_one_line_that_fits(text: str, width: int) -> None:
    shown = last_words(text, width)
    assert text_width(shown) <= width and "\n" not in shown


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (
            '{"a": "x", "b": 1, "c": null, "d": {"e": "价"}}',
            [("a", "x"), ("b", "1"), ("c", "null"), ("d", '{"e": "价"}')],
        ),
        ("{}", []),
        ("  ", []),
        ("[1]", [("", "[1]")]),
        ('{"a": ', [("", '{"a": ')]),
        ("[" * 100_000, [("", "[" * 100_000)]),
        ('{"a": ' * 100_000, [("", '{"a": ' * 100_000)]),
        ("9" * 10_000, [("", "9" * 10_000)]),
    ],
    ids=["an object", "empty", "blank", "a list", "broken", "deep", "deep objects", "a long number"],
)
def test_arguments_come_as_names_and_values(arguments: str, named: list[tuple[str, str]]) -> None:
    assert named_values(arguments) == named
