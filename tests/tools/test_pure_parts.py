"""The pure parts, by property: splicing, diffs, encodings, patterns and ignore rules."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxclaw_nb.tools.diff import unified_diff
from mxclaw_nb.tools.encodings import decode_whole, detect
from mxclaw_nb.tools.search.patterns import Glob, expand_braces
from mxclaw_nb.tools.search.walking import Walk
from mxclaw_nb.tools.splicing import NotFound, NotUnique, splice

CODECS = ["utf-8", "utf-8-sig", "utf-16", "utf-32", "gb18030"]
pieces = st.lists(st.sampled_from(["a", "b", "\n", "\r\n", "\r", "é", "设", "𝒳", " ", "\t"]), max_size=12).map("".join)

whole_lines = pieces.map(lambda text: text.replace("\r\n", "\n").replace("\r", "").replace("\t\n", "\r\n"))


@given(
    pieces, whole_lines, pieces, whole_lines.filter(bool), st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"])
)
@settings(max_examples=400, deadline=None)
def test_bytes_around_an_edit_are_untouched(before: str, old: str, after: str, new: str, codec: str) -> None:
    data = (before + "[" + old + "]" + after).encode(codec)
    decoded = decode_whole(data)
    assert decoded is not None and decoded.text == before + "[" + old + "]" + after
    wanted = "[" + old.replace("\r\n", "\n") + "]"
    done = splice(data, decoded, wanted, "<" + new + ">", replace_all=False)
    mark = decoded.encoding.mark
    assert done.data.startswith(mark + decoded.encoding.encode(before + "<"))
    assert done.data.endswith(decoded.encoding.encode(">" + after))
    assert done.data == mark + decoded.encoding.encode(done.text) and done.count == 1
    middle = done.text[len(before) + 1 : len(done.text) - len(after) - 1]
    assert middle.replace("\r\n", "\n") == new.replace("\r\n", "\n")


@given(pieces, pieces.filter(bool), pieces)
@settings(max_examples=300, deadline=None)
def test_replace_all_is_what_replace_is_on_text_with_one_ending(text: str, old: str, new: str) -> None:
    text, old, new = (each.replace("\r", "") for each in (text, old, new))
    data = text.encode()
    decoded = decode_whole(data)
    assert decoded is not None
    try:
        done = splice(data, decoded, old, new, replace_all=True)
    except NotFound:
        assert not old or old not in text
    else:
        assert done.data == text.replace(old, new).encode() and done.count == text.count(old)
        if done.count > 1:
            with pytest.raises(NotUnique):
                splice(data, decoded, old, new, replace_all=False)


@given(st.binary(max_size=300))
@settings(max_examples=400, deadline=None)
def test_any_bytes_decode_to_what_gives_them_back_or_are_binary(data: bytes) -> None:
    decoded = decode_whole(data)
    if decoded is not None:
        encoding = decoded.encoding
        assert encoding.mark + decoded.text.encode(encoding.name, encoding.errors) == data
        assert "\ufffd" not in decoded.text or b"\xef\xbf\xbd" in data or encoding.name != "utf-8"


@pytest.mark.parametrize("codec", CODECS)
def test_a_sample_that_ends_inside_a_character_is_still_told(codec: str) -> None:
    data = ("设计代码测试一下编码" * 200).encode(codec)
    whole = detect(data, whole=True)
    assert whole is not None
    for end in range(400, 410):
        assert detect(data[:end], whole=False) == whole


def test_legacy_text_behind_a_long_plain_start_is_told() -> None:
    data = b"x = 1\n" * 20_000 + "注释：中文代码，测试一下编码\n".encode("gbk")
    decoded = decode_whole(data)
    assert decoded is not None and decoded.encoding.name == "gb18030" and "测试一下" in decoded.text


@given(pieces, pieces)
@settings(max_examples=300, deadline=None)
def test_a_diff_holds_all_that_changes_and_is_empty_only_for_equals(old: str, new: str) -> None:
    diff = unified_diff("f", old, new)
    assert (diff == "") == (old == new)
    assert "\r" not in diff
    for header in re.finditer(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@$", diff, re.MULTILINE):
        start, count = int(header[3]), int(header[4] or 1)
        assert start + count - 1 <= len(new.split("\n"))


@pytest.mark.skipif(not shutil.which("patch"), reason="patch is missing")
@given(st.lists(st.sampled_from("abcd"), max_size=60), st.lists(st.sampled_from("abcd"), max_size=60))
@settings(max_examples=40, deadline=None)
def test_patch_makes_the_new_file_from_the_diff(
    tmp_path_factory: pytest.TempPathFactory, a: list[str], b: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("patch")
    old, new = ("".join(f"{each}\n" for each in lines) for lines in (a, b))
    (folder / "f").write_text(old)
    diff = unified_diff("f", old, new)
    if diff:
        subprocess.run(["patch", "-s", "f"], input=diff + "\n", text=True, cwd=folder, timeout=30, check=True)
    assert (folder / "f").read_text() == new if (folder / "f").exists() else new == ""


def test_braces_expand_like_a_shell_does() -> None:
    assert sorted(expand_braces("a{b,c{d,e}}f")) == ["abf", "acdf", "acef"]
    for same in ("{}", "{a}", "a{", "a}b", r"\{a,b\}"):
        assert expand_braces(same) == [same]


@given(st.text("ab*?/[]!-{},.\\", max_size=14), st.text("ab/.", max_size=12))
@settings(max_examples=500, deadline=None)
def test_no_pattern_raises_anything_but_its_own_error(pattern: str, path: str) -> None:
    try:
        glob = Glob(pattern)
    except ValueError:
        return
    if glob.matches(path) and "/" in path:
        folder = path.rsplit("/", 1)[0]
        assert not folder or glob.may_match_below(folder)


RULES = [
    "*.log", "/build", "build/", "doc/*.txt", "doc/**/x", "**/cache", "a/**", "!keep.log", "foo/bar", "/*.py", "**/",
    "*~", "[ab].c", "[!a].h", r"\#x", r"\!x", "# comment", "", "   ", "trailing ", r"space\ ", "deep/**/y/z", "*",
    "!*/", "!/src", "a?c", "/a/b/", "x[", "**", "!**/x", "dir/**/", r"w\*d", "é*",
]  # fmt: skip
TREE = [
    "a.log", "keep.log", "build/f", "src/build/f", "src/build.txt", "doc/a.txt", "doc/s/a.txt", "doc/s/t/x", "doc/x",
    "cache/f", "s/cache", "a/b/f", "a/f", "foo/bar", "src/foo/bar", "m.py", "src/m.py", "f~", "a.c", "b.h", "#x", "!x",
    "trailing", "space ", "deep/y/z", "deep/1/2/y/z", "abc", "x[", "dir/q", "w*d", "wxd", "été", "x",
]  # fmt: skip


@pytest.mark.skipif(not shutil.which("git"), reason="git is missing")
@given(st.lists(st.sampled_from(RULES), max_size=6), st.lists(st.sampled_from(RULES), max_size=3))
@settings(max_examples=60, deadline=None)
def test_ignore_rules_mean_what_git_means(
    tmp_path_factory: pytest.TempPathFactory, rules: list[str], inner: list[str]
) -> None:
    top = tmp_path_factory.mktemp("repo")
    for name in TREE:
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    environment = {"HOME": str(top), "PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q"], cwd=top, env=environment, timeout=30, check=True)
    (top / ".gitignore").write_text("\n".join(rules) + "\n")
    (top / "src" / ".gitignore").write_text("\n".join(inner) + "\n")
    listed = subprocess.run(
        ["git", "-c", "core.quotePath=false", "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=top, env=environment, timeout=30, check=True, capture_output=True,
    ).stdout  # fmt: skip
    expected = sorted(name for name in listed.decode().split("\0") if name)
    assert sorted(each.path for each in Walk(str(top), lambda *_: True) if not each.is_folder) == expected


def test_a_walk_closes_what_it_opened_even_if_left_early(tmp_path: Path) -> None:
    import os

    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    before = len(os.listdir("/dev/fd"))
    for each in Walk(str(tmp_path), lambda *_: True):
        if each.path == "a/b":
            break
    del each
    assert len(os.listdir("/dev/fd")) == before
