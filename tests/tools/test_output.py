"""Long output: head and tail for the model, and the full text in a private file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxclaw_nb.protocol import ToolContext
from mxclaw_nb.tools.output import clip, present, save_output


def context(tmp_path: Path, call_id: str = "call-1") -> ToolContext:
    return ToolContext("s-1", "t-1", call_id, tmp_path, tmp_path / "home" / "outputs" / "s-1", tmp_path / "home")


def test_short_text_is_left_alone() -> None:
    assert clip("你好\n", 3) == "你好\n"


def test_long_text_keeps_head_and_tail_and_counts_what_was_cut() -> None:
    text = "".join(f"line {number}\n" for number in range(10_000))
    clipped = clip(text, 2_000)
    assert clipped.startswith("line 0\nline 1\n") and clipped.endswith("line 9998\nline 9999\n")
    head, _, rest = clipped.partition("[... ")
    notice, _, tail = rest.partition(" ...]\n")
    count, lines = notice.removesuffix(" lines) cut").split(" characters (")
    assert len(head) + len(tail) + int(count.replace(",", "")) == len(text)
    assert head.count("\n") + tail.count("\n") + int(lines.replace(",", "")) == 10_000


@given(st.text(min_size=0, max_size=3000), st.integers(0, 1500))
def test_the_result_is_never_longer_than_the_limit(text: str, limit: int) -> None:
    assert len(clip(text, limit)) <= max(limit, 0) or len(text) <= limit


@pytest.mark.parametrize(
    "cluster",
    [
        "👨‍👩‍👧‍👦",
        "e\u0301",
        "🇨🇳",
        "👍🏽",
        "❤️",
        "नि",
        "각",
        "한".encode().decode() + "\u0301",
        "\r\n",
        "🏴\U000e0067\U000e0062\U000e007f",
    ],
)
def test_no_cut_falls_inside_a_grapheme_cluster(cluster: str) -> None:
    text = cluster * 2_000
    for limit in range(400, 400 + 2 * len(cluster)):
        head, _, rest = clip(text, limit).partition("[... ")
        tail = rest.partition(" ...]\n")[2]
        assert (head if cluster == "\r\n" else head.removesuffix("\n")).replace(cluster, "") == ""
        assert tail.replace(cluster, "") == ""


def test_a_chain_of_marks_without_end_is_cut_all_the_same() -> None:
    assert len(clip("a" + "\u0301" * 100_000, 1_000)) <= 1_000


@pytest.mark.parametrize(
    "call_id", ["../../etc/passwd", "/abs", "", ".", "a\x00b", "x" * 5_000, "名字", "\ud800", "con:1", "a/b"]
)
def test_a_hostile_call_id_names_a_private_file_inside_the_folder(tmp_path: Path, call_id: str) -> None:
    folder = tmp_path / "outputs" / "s-1"
    path = save_output(folder, call_id, b"full")
    assert path.parent == folder and path.read_bytes() == b"full"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_a_second_output_of_one_call_never_replaces_the_first(tmp_path: Path) -> None:
    first, second = save_output(tmp_path, "c", b"1"), save_output(tmp_path, "c", b"2")
    assert first != second and first.read_bytes() == b"1"


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    first = save_output(tmp_path / "o", "c", b"1")
    first.unlink()
    os.symlink(victim, first)
    assert save_output(tmp_path / "o", "c", b"2") != first
    assert victim.read_text() == "mine"


def test_long_text_is_saved_in_full_and_the_model_is_told_where(tmp_path: Path) -> None:
    text = "行\n" * 30_000
    shown = present(text, context(tmp_path))
    assert shown.path is not None and shown.path in shown.content
    assert Path(shown.path).read_text() == text
    assert len(shown.content) <= 20_000


def test_a_folder_that_cannot_be_made_costs_the_file_only(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("in the way")
    shown = present("x" * 50_000, context(tmp_path))
    assert shown.path is None and "could not be saved" in shown.content
