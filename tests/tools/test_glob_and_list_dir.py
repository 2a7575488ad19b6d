"""glob and list_dir: what is there, and no more than asked."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest

Desk = Any
glob_module = importlib.import_module("mxclaw_nb.tools.glob")


def found(text: str) -> list[str]:
    return sorted(line for line in text.split("\n") if not line.startswith("(") and not line.startswith("No path"))


TREE = ["a.py", ".hidden.py", "modules/one.nix", "modules/x/two.nix", "modules/x/y/three.nix", "src/b.py", "src/b.ts",
        "src/deep/c.tsx", "设计/d.py", "we[i]rd/e.py"]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", ["a.py", ".hidden.py"]),
        ("**/*.py", ["a.py", ".hidden.py", "src/b.py", "设计/d.py", "we[i]rd/e.py"]),
        ("modules/**/*.nix", ["modules/one.nix", "modules/x/two.nix", "modules/x/y/three.nix"]),
        ("modules/*/*.nix", ["modules/x/two.nix"]),
        ("**/x/**", ["modules/x/two.nix", "modules/x/y/three.nix"]),
        ("**/*.{ts,tsx}", ["src/b.ts", "src/deep/c.tsx"]),
        ("src/?.py", ["src/b.py"]),
        ("[!a].py", []),
        ("设计/*", ["设计/d.py"]),
        ("we\\[i\\]rd/*.py", ["we[i]rd/e.py"]),
        ("**", TREE),
        ("src/b.py", ["src/b.py"]),
        ("modules/*/", ["modules/x"]),
        ("**/nothing", []),
        ("./src/*.ts", ["src/b.ts"]),
    ],
    ids=lambda value: f"F37-{value}" if isinstance(value, str) else "",
)
def test_f37_patterns_find_what_they_say(desk: Desk, pattern: str, expected: list[str]) -> None:
    for name in TREE:
        desk.file(name)
    assert found(desk.call("glob", pattern=pattern)) == sorted(expected)


def test_absolute_patterns_and_start_folders(desk: Desk) -> None:
    for name in TREE:
        desk.file(name)
    assert found(desk.call("glob", pattern=f"{desk.workspace}/src/*.py")) == ["src/b.py"]
    assert found(desk.call("glob", pattern="*.py", path="src")) == ["src/b.py"]
    assert found(desk.call("glob", pattern="deep/*", path="src")) == ["src/deep/c.tsx"]
    for pattern in ("/etc/*", "../*", "~/*", "src/../../*"):
        desk.fails("glob", status="denied", pattern=pattern)
    assert "`..`" in desk.fails("glob", pattern="*/../../*")


def test_the_newest_comes_first(desk: Desk) -> None:
    for age, name in enumerate(["c", "a", "b"]):
        os.utime(desk.file(name), ns=(0, 10**18 - age))
    assert desk.call("glob", pattern="*").split("\n")[:3] == ["c", "a", "b"]


def test_gitignore_is_obeyed_and_said(desk: Desk) -> None:
    desk.file(".gitignore", "*.log\n/build/\n")
    for name in ("a.log", "sub/b.log", "build/x", "sub/build/x", ".git/config"):
        desk.file(name)
    text = desk.call("glob", pattern="**")
    assert found(text) == [".gitignore", "sub/build/x"] and ".gitignore excludes is left out" in text


def test_links_are_listed_but_not_followed_and_loops_end(desk: Desk) -> None:
    desk.file("real/a.txt")
    (desk.workspace / "loop").symlink_to(".")
    (desk.workspace / "out").symlink_to("/etc")
    (desk.workspace / "inside").symlink_to("real")
    assert found(desk.call("glob", pattern="**")) == ["inside", "loop", "out", "real/a.txt"]
    assert found(desk.call("glob", pattern="inside/*")) == ["real/a.txt"]
    desk.fails("glob", status="denied", pattern="out/*")


def test_at_most_1000_paths_and_the_rest_is_counted(desk: Desk) -> None:
    for number in range(1_005):
        desk.file(f"f{number}")
    text = desk.call("glob", pattern="*")
    assert len(found(text)) == 1_000 and "1,005 paths, newest first; 5 not shown" in text


def test_the_time_is_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glob_module, "TIME_LIMIT_S", 0.0)
    desk.file("a")
    assert "not everything was searched" in desk.call("glob", pattern="*")


@pytest.mark.parametrize(
    "pattern", ["*a" * 60 + "b", "**/" * 30 + "x", "**/a" * 20 + "/b", "[" * 50, "{a," * 20, "a" * 200]
)
def test_no_pattern_takes_long(desk: Desk, pattern: str) -> None:
    desk.file("/".join(["a"] * 40) + "/" + "a" * 200)
    assert "No path matches" in desk.call("glob", pattern=pattern)


def test_a_brace_bomb_is_refused(desk: Desk) -> None:
    assert "more than 64" in desk.fails("glob", pattern="{a,b}" * 30)


def test_our_own_home_in_the_workspace_is_left_out(desk: Desk) -> None:
    desk.home = desk.workspace / ".mx-claw"
    desk.file(".mx-claw/secrets.json")
    desk.file("a")
    assert found(desk.call("glob", pattern="**")) == ["a"]


def test_list_dir_shows_kinds_sizes_and_targets_by_name(desk: Desk) -> None:
    desk.file("b.txt", "x" * 2048)
    desk.file(".hidden", "x")
    desk.file("sub/inner")
    (desk.workspace / "link").symlink_to("b.txt")
    (desk.workspace / "broken").symlink_to("no\nwhere")
    os.mkfifo(desk.workspace / "pipe")
    assert desk.call("list_dir").split("\n") == [
        ".hidden  1 B", "b.txt  2.0 KB", r"broken -> no\nwhere", "link -> b.txt", "pipe  (named pipe)", "sub/",
    ]  # fmt: skip
    assert desk.call("list_dir", path="sub") == "inner  0 B"


def test_list_dir_says_what_it_is_not(desk: Desk) -> None:
    assert "empty folder" in desk.call("list_dir")
    desk.file("a")
    assert "not a folder" in desk.fails("list_dir", path="a")
    assert "does not exist" in desk.fails("list_dir", path="none")


def test_list_dir_shows_1000_entries_and_counts_the_rest(desk: Desk) -> None:
    for number in range(1_003):
        desk.file(f"f{number:04}")
    lines = desk.call("list_dir").split("\n")
    assert len(lines) == 1_001 and lines[0].startswith("f0000") and "1,003 entries; the last 3" in lines[-1]


def test_a_folder_that_may_not_be_listed_is_explained_and_what_is_in_it_can_still_be_read(desk: Desk) -> None:
    desk.file("dark/a.txt", "seen")
    (desk.workspace / "dark").chmod(0o311)
    try:
        if os.geteuid() != 0:
            assert "dark cannot be listed: Permission denied" in desk.fails("list_dir", path="dark")
            assert "1 folder could not be entered" in desk.call("glob", pattern="**/*.txt")
            assert "could not be read" in desk.call("grep", pattern="seen")
        assert "seen" in desk.call("read_file", path="dark/a.txt")
        desk.call("edit_file", path="dark/a.txt", old="seen", new="changed")
    finally:
        (desk.workspace / "dark").chmod(0o755)


def test_names_cannot_play_tricks(desk: Desk) -> None:
    for name in ("a\nb", "\x1b[31mred", "rtl\u202etxt", "tab\t"):
        desk.file(name)
    Path(os.fsdecode(os.fsencode(str(desk.workspace)) + b"/caf\xe9")).write_text("")
    lines = [line.split("  ")[0] for line in desk.call("list_dir").split("\n")]
    assert lines == [r"\x1b[31mred", r"a\nb", r"caf\xe9", r"rtl\u202etxt", r"tab\t"]
    assert len(found(desk.call("glob", pattern="*"))) == 5
