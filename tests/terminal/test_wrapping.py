"""Prose at a terminal is broken between words, in whatever pieces it comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxclaw_nb.terminal.wrapping import WordWrapper
from mxclaw_nb.text import text_width


def wrapped(pieces: list[str], width: int) -> str:
    written: list[str] = []
    wrapper = WordWrapper(lambda text, _style: written.append(text), lambda: width)
    for piece in pieces:
        wrapper.feed(piece, "")
    wrapper.flush()
    return "".join(written)


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("the quick brown fox", 10, "the quick\nbrown fox"),
        ("exactly ten", 11, "exactly ten"),
        ("one\n\ntwo  three", 20, "one\n\ntwo  three"),
        ("- item one two", 9, "- item\none two"),
        ("数据分析，很好。再来", 8, "数据分\n析，很\n好。再来"),
        ("用 pandas 读取", 8, "用\npandas\n读取"),
        ("a" * 25, 10, "a" * 25),
        ("see `code` here", 10, "see `code`\nhere"),
        ("    indented", 20, "    indented"),
    ],
)
def test_lines_break_where_a_reader_expects_it(text: str, width: int, lines: str) -> None:
    assert wrapped([text], width) == lines


@given(st.text(alphabet="ab 你，。\n", max_size=60), st.integers(min_value=4, max_value=20), st.data())
def test_the_pieces_make_no_difference_and_no_character_is_lost(text: str, width: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(min_value=0, max_value=len(text)))
    whole = wrapped([text], width)
    assert wrapped([text[:cut], text[cut:]], width) == whole
    assert "".join(whole.split()) == "".join(text.split())


@given(st.lists(st.text(alphabet="ab", min_size=1, max_size=6), max_size=30), st.integers(min_value=6, max_value=30))
def test_no_line_of_short_words_is_too_wide(words: list[str], width: int) -> None:
    assert all(text_width(line) <= width for line in wrapped([" ".join(words)], width).split("\n"))
