"""edit_file: one exact text for another, and not a byte beside it."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from mxclaw_nb.protocol import ToolFailure

Desk = Any


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        pytest.param(b"a\r\nb\r\n", "a\nb", "a\nc", b"a\r\nc\r\n", id="F01"),
        pytest.param(b"a\r\nb\r\n", "a\nb\n", "x\ny\nz\n", b"x\r\ny\r\nz\r\n", id="F01-more-lines"),
        pytest.param(b"a\r\nb\r\n", "b", "b\nc", b"a\r\nb\r\nc\r\n", id="F01-new-line-in-a-crlf-file"),
        pytest.param(b"a\nb\n", "a\r\nb", "a\r\nc", b"a\nc\n", id="F02"),
        pytest.param(b"a\r\nb\nc\r\nd\n", "b\nc", "B\nC", b"a\r\nB\nC\r\nd\n", id="F02-mixed-keeps-each"),
        pytest.param(b"a\r\nb\nc\r\n", "a\nb\nc", "a\nb\nX", b"a\r\nb\nX\r\n", id="F02-mixed-unchanged-lines"),
        pytest.param(b"a\r\nb\nc\n", "a", "a\na2", b"a\r\na2\r\nb\nc\n", id="F02-mixed-nearest"),
        pytest.param(b"a\nb\r\nc", "c", "c\nd", b"a\nb\r\nc\r\nd", id="F02-mixed-last-line"),
        pytest.param(b"p1\rp2\nx\n", "x", "y", b"p1\rp2\ny\n", id="F04"),
        pytest.param(b"p1\rp2\r\nx\r\n", "p1\rp2\nx", "p1\rp3\nx", b"p1\rp3\r\nx\r\n", id="F04-in-crlf"),
        pytest.param(b"\xef\xbb\xbfone\ntwo\n", "one", "1", b"\xef\xbb\xbf1\ntwo\n", id="F06"),
        pytest.param(b"\xef\xbb\xbfone\n", "\ufeffone", "\ufeff1", b"\xef\xbb\xbf1\n", id="F06-mark-given"),
        pytest.param(b"const x = 1;\n// caf\xe9\n", "x = 1", "x = 2", b"const x = 2;\n// caf\xe9\n", id="F07"),
        pytest.param("设计 ok\n".encode() + b"\xff\xfe\xe9\n", "设计", "design 设",
                     "design 设 ok\n".encode() + b"\xff\xfe\xe9\n", id="F07-stray-bytes-in-utf-8"),
        pytest.param("中文代码，测试一下编码\nx = 1\n".encode("gbk"), "测试", "检验",
                     "中文代码，检验一下编码\nx = 1\n".encode("gbk"), id="F07-gbk"),
        pytest.param("日本語のテキストです\nソ表\n".encode("cp932"), "です", "だ",
                     "日本語のテキストだ\nソ表\n".encode("cp932"), id="F07-sjis"),
        pytest.param("eins\r\nzwei 设\r\n".encode("utf-16-le").join([b"\xff\xfe", b""]), "zwei", "drei\nvier",
                     "eins\r\ndrei\r\nvier 设\r\n".encode("utf-16-le").join([b"\xff\xfe", b""]), id="F09-le"),
        pytest.param(b"\xfe\xff" + "eins\nzwei\n".encode("utf-16-be"), "eins", "設",
                     b"\xfe\xff" + "設\nzwei\n".encode("utf-16-be"), id="F09-be"),
        pytest.param("“x” and word\n".encode(), "word", "term", "“x” and term\n".encode(), id="F11"),
        pytest.param(b"a", "a", "b", b"b", id="F13"),
        pytest.param(b"a\n", "a\n", "b", b"b", id="F13-newline-taken-away"),
        pytest.param(b"a", "a", "", b"", id="everything-removed"),
        pytest.param(b"x\n" * 3 + b"y\n", "y\n", "", b"x\n" * 3, id="a-line-removed"),
        pytest.param("e\u0301 é\n".encode(), "é", "E", "e\u0301 E\n".encode(), id="no-unicode-form-is-changed"),
        pytest.param(b"a\0", "", "", None, id="empty-old"),
    ],
)  # fmt: skip
def test_only_what_was_meant_changes(desk: Desk, before: bytes, old: str, new: str, after: bytes | None) -> None:
    path = desk.file("file", before)
    if after is None:
        desk.fails("edit_file", path="file", old=old, new=new)
        return
    text = desk.call("edit_file", path="file", old=old, new=new)
    assert path.read_bytes() == after
    assert "replaced 1 occurrence" in text and "It now reads:" in text


def test_f08_what_the_encoding_has_no_bytes_for_is_refused(desk: Desk) -> None:
    before = "日本語のテキストです\n".encode("cp932")
    path = desk.file("file", before)
    sentence = desk.fails("edit_file", path="file", old="日本", new="é")
    assert "'é' (U+00E9) cannot be written" in sentence and "CP932" in sentence
    assert path.read_bytes() == before


def test_f08_nothing_beyond_ascii_is_put_into_an_encoding_that_is_only_guessed(desk: Desk) -> None:
    before = b"x = 1 # \xe9\n"
    path = desk.file("file", before)
    assert "cannot be told for sure" in desk.fails("edit_file", path="file", old="x = 1", new="x = é")
    assert path.read_bytes() == before
    desk.call("edit_file", path="file", old="x = 1", new="x = 2")
    assert path.read_bytes() == b"x = 2 # \xe9\n"


def test_half_a_character_is_refused(desk: Desk) -> None:
    path = desk.file("file", "a\n")
    tool = desk.tools["edit_file"]
    arguments = tool.arguments.model_construct(path="file", old="a", new="\ud83d", replace_all=False)
    with pytest.raises(ToolFailure, match="cannot be written"):
        asyncio.run(tool.preview(arguments, desk.context()))
    assert path.read_text() == "a\n"


def test_f10_a_text_that_is_not_unique_is_refused_with_its_lines(desk: Desk) -> None:
    path = desk.file("file", "a\nb\na\n")
    assert "occurs 2 times in file, at lines 1, 3" in desk.fails("edit_file", path="file", old="a", new="x")
    assert path.read_text() == "a\nb\na\n"
    desk.file("file", "a\n" * 500)
    assert "500 times" in desk.fails("edit_file", path="file", old="a", new="x")


@pytest.mark.parametrize(
    ("content", "old"),
    [("def f():\n    return 1\n", "def f():\n  return 1"), ("“x”\n", '"x"'), ("a  b\n", "a b"), ("Hello\n", "hello"),
     ("e\u0301\n", "é"), ("a\u00a0b\n", "a b"), ("a\n", "a "), ("a\n\nb\n", "a\nb")],
    ids=lambda text: f"F12-{text!r}",
)  # fmt: skip
def test_f12_what_is_only_alike_is_never_matched(desk: Desk, content: str, old: str) -> None:
    path = desk.file("file", content)
    assert "was not found in file" in desk.fails("edit_file", path="file", old=old, new="X")
    assert path.read_text() == content


def test_f16_overlapping_places_are_counted_and_replaced_from_the_left(desk: Desk) -> None:
    path = desk.file("file", "aaa")
    assert "occurs 2 times" in desk.fails("edit_file", path="file", old="aa", new="b")
    assert "replaced 1 occurrence." in desk.call("edit_file", path="file", old="aa", new="b", replace_all=True)
    assert path.read_text() == "ba"
    desk.file("file", "x\r\nx\r\nx\r\n")
    assert "replaced 3 occurrences" in desk.call("edit_file", path="file", old="x\n", new="yy\nz\n", replace_all=True)
    assert path.read_bytes() == b"yy\r\nz\r\n" * 3


def test_f17_a_difference_in_white_space_is_shown(desk: Desk) -> None:
    desk.file("file", "def f():\n\tif x:\n\t\treturn 1\n")
    sentence = desk.fails("edit_file", path="file", old="    if x:\n        return 1", new="x")
    assert "Line 2 differs from it only in white space" in sentence
    assert "\n→if·x:\n" in sentence and "\n····if·x:" in sentence


@pytest.mark.parametrize(
    ("content", "old", "hint"),
    [("“x” is\n", '"x" is', "look alike"), ("a\u200bb = 1\n", "ab = 1", "look alike"),
     ("a b \n", "a b\n", "white space"),
     ("compute_total(x)\n", "compute_totals(x)", "The nearest line is 1"),
     ("x\n", "     1\tx", "leave out each number"),
     ("日本\n", "nothing like it", "")],
)  # fmt: skip
def test_f17_other_differences_are_explained(desk: Desk, content: str, old: str, hint: str) -> None:
    desk.file("file", content)
    sentence = desk.fails("edit_file", path="file", old=old, new="y")
    assert hint in sentence and "\u200b" not in sentence


@pytest.mark.parametrize(
    ("old", "new", "word"), [("a", "a", "are the same."), ("a\n", "a\r\n", "line endings"), ("", "x", "empty")]
)
def test_an_edit_that_changes_nothing_is_refused(desk: Desk, old: str, new: str, word: str) -> None:
    desk.file("file", "a\n")
    assert word in desk.fails("edit_file", path="file", old=old, new=new)


def test_f20_the_mode_is_kept(desk: Desk) -> None:
    path: Path = desk.file("run.sh", "echo a\n")
    path.chmod(0o755)
    desk.call("edit_file", path="run.sh", old="a", new="b")
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    path.chmod(0o555)
    assert "read-only" in desk.fails("edit_file", path="run.sh", old="b", new="c")


def test_a_missing_binary_or_huge_file_is_explained(desk: Desk) -> None:
    desk.file("model.py")
    assert 'Did you mean "model.py"?' in desk.fails("edit_file", path="modle.py", old="a", new="b")
    desk.file("a.bin", b"a\0b")
    assert "binary" in desk.fails("edit_file", path="a.bin", old="a", new="b")
    with desk.file("huge", "a").open("r+b") as file:
        file.truncate(33 << 20)
    assert "larger than the 32.0 MB" in desk.fails("edit_file", path="huge", old="a", new="b")


def test_the_preview_shows_the_diff_and_run_refuses_another_file(desk: Desk) -> None:
    path = desk.file("file", "one\ntwo\n")
    arguments = {"path": "file", "old": "two", "new": "2"}
    preview = desk.preview("edit_file", **arguments)
    assert "-two\n+2" in preview.detail and preview.detail_kind == "diff"
    path.write_text("one\ntwo\nthree\n")
    with pytest.raises(ToolFailure, match="has changed since the change was shown"):
        desk.run("edit_file", preview, **arguments)
    assert path.read_text() == "one\ntwo\nthree\n"


def test_j29_the_result_is_what_is_on_disk(desk: Desk) -> None:
    desk.file("file", "".join(f"line {n}\n" for n in range(1, 21)))
    text = desk.call("edit_file", path="file", old="line 10\n", new="ten\nand a half\n")
    assert "    10\tten\n    11\tand a half\n    12\tline 11" in text


def test_a_hard_link_and_attributes(desk: Desk) -> None:
    path = desk.file("file", "a\n")
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        kept = None
    else:
        kept = b"kept"
    desk.call("edit_file", path="file", old="a", new="b")
    assert kept is None or os.getxattr(path, "user.note") == kept


def test_a_windows_path_in_the_text_survives(desk: Desk) -> None:
    path = desk.file("file", 'open("C:\\Users\\new\\table.txt")\n')
    desk.call("edit_file", path="file", old="C:\\Users\\new\\table", new="C:\\temp\\unicorn")
    assert path.read_text() == 'open("C:\\temp\\unicorn.txt")\n'


def test_another_unicode_form_is_explained_in_escapes_since_both_look_the_same(desk: Desk) -> None:
    desk.file("a.txt", "x = cafe\u0301\n")
    said = desk.fails("edit_file", path="a.txt", old="x = caf\u00e9", new="y")
    assert "only in Unicode form" in said and "cafe\\u0301" in said and "caf\\u00e9" in said
