"""Output that was written for a terminal, as plain text; whole, and while it comes."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxclaw_nb.tools.terminal_text import LiveText, mostly_no_text, terminal_text

CASES = [
    pytest.param(b"a\0b\x1b]0;title\x07c", "abc", id="H13"),
    pytest.param(b"\x1b[31mred\x1b[0m \x1b[1;38;5;9mbold\x1b[m", "red bold", id="colours"),
    pytest.param(b"a\x1b[2J\x1b[H\x1b[?25lb\x1b[?1049h", "ab", id="screen"),
    pytest.param(b"x\x1b]8;;http://e.test\x1b\\link\x1b]8;;\x1b\\y", "xlinky", id="hyperlink"),
    pytest.param(b"a\x1bP1$r0m\x1b\\b\x1b_apc\x1b\\c\x1b^pm\x1b\\d", "abcd", id="DCS-APC-PM"),
    pytest.param("a\u009b31mb\u009d0;t\u009cc".encode(), "abc", id="C1-as-UTF-8"),
    pytest.param(b"a\x9b31mb", "a\ufffd31mb", id="C1-as-a-lone-byte"),
    pytest.param(b"a\x1b(Bb\x1b=c\x1b>d\x1b7e", "abcde", id="two-characters"),
    pytest.param(b"\a\v\f\x7fbell\x1b", "bell", id="controls"),
    pytest.param(b"1%\r50%\r100%\ndone\n", "100%\ndone\n", id="progress"),
    pytest.param(b"50%\r\x1b[K100%\r\x1b[K\nx", "100%\nx", id="progress-erased"),
    pytest.param(b"dos\r\nlines\r\n", "dos\nlines\n", id="CRLF"),
    pytest.param(b"only\r", "only", id="a-return-at-the-end"),
    pytest.param(b"|\b/\b-\b\\\b ok", " ok", id="spinner"),
    pytest.param(b"N\bNA\bAM\bME\bE", "NAME", id="overstrike"),
    pytest.param("中文\tname\n\U0001f600".encode(), "中文\tname\n\U0001f600", id="text-stays"),
    pytest.param("中".encode()[:2] + b"x", "\ufffdx", id="broken-UTF-8"),
    pytest.param(b"a\x1b]0;never closed\nb", "a\nb", id="a-string-ends-with-its-line"),
]


@pytest.mark.parametrize(("data", "text"), CASES)
def test_a_programs_output_becomes_plain_text(data: bytes, text: str) -> None:
    assert terminal_text(data) == text


@given(st.binary(max_size=300))
def test_no_control_character_is_ever_left(data: bytes) -> None:
    for text in (terminal_text(data), live([data])):
        assert not [c for c in text if unicodedata.category(c) == "Cc" and c not in "\n\t"]


@given(
    st.lists(
        st.sampled_from(
            [b"\x1b[31m", b"\x1b]0;t\x07", "中".encode(), b"\r", b"\n", b"50%", b"\xff", b"\x1b", b"[", b"\0"]
        ),
        max_size=20,
    ),
    st.data(),
)
def test_pieces_cut_anywhere_hold_no_control_character(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    text = live([whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)])
    assert not [c for c in text if unicodedata.category(c) == "Cc" and c not in "\n\t"]


def live(pieces: list[bytes]) -> str:
    text = LiveText()
    return "".join([*map(text.feed, pieces), text.finish()])


REDRAWN = ("progress", "progress-erased", "a-return-at-the-end", "spinner", "overstrike")


@pytest.mark.parametrize(("data", "text"), [case for case in CASES if case.id not in REDRAWN])
def test_text_that_is_not_redrawn_is_the_same_byte_by_byte(data: bytes, text: str) -> None:
    assert live([data[i : i + 1] for i in range(len(data))]) == text


def test_a_line_redrawn_later_is_shown_as_a_new_one() -> None:
    text = LiveText()
    assert text.feed(b"1%\r5%\r10%") == "10%"
    assert text.feed(b"\r20%\r30%") == "\n30%"
    assert text.feed(b"\r") == ""
    assert text.feed(b"\ndone\n") == "\ndone\n"


def test_a_megabyte_of_anything_is_quick() -> None:
    for unit in (
        b"\r",
        b"\b",
        b"x\b",
        b"\x1b",
        b"\x1b[",
        b"\x1b]",
        b"\x1b]0;",
        b"\x1bP\x1b",
        b"\r ",
        b"x\r\n",
        b"\x1b[1;",
        b"\xc2\x9d",
    ):
        data = unit * (1_000_000 // len(unit))
        started = time.monotonic()
        terminal_text(data)
        live([data[i : i + 65_536] for i in range(0, len(data), 65_536)])
        assert time.monotonic() - started < 5, unit


@pytest.mark.parametrize(
    ("data", "strange"),
    [
        (b"\0" * 10_000, True), (bytes(range(256)) * 40, True), ("中文".encode("gb18030") * 500, True),
        (b"\0" * 100, False), ("é中\n".encode() * 500, False), (b"caf\xe9 au lait and more text\n" * 50, False),
        (b"\x1b[31mred\x1b[0m \r10%\r" * 200, False), (b"", False),
    ],
)  # fmt: skip
def test_output_that_is_no_text_is_told_from_text_with_stray_bytes(data: bytes, strange: bool) -> None:
    assert mostly_no_text(data) is strange
