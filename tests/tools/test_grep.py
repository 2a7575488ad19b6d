"""grep: both engines give the same lines in the same order, within the same bounds."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from mxclaw_nb.protocol import Settings
from mxclaw_nb.tools import Grep
from mxclaw_nb.tools.search.engine import find_ripgrep
from mxclaw_nb.tools.search.matcher import request

Desk = Any

ENGINES = [
    pytest.param(True, id="ripgrep", marks=pytest.mark.skipif(not shutil.which("rg"), reason="ripgrep is missing")),
    pytest.param(False, id="own"),
]


@pytest.fixture(params=ENGINES)
def grep(desk: Desk, request: pytest.FixtureRequest) -> Desk:
    """The desk, with one of the two engines."""
    desk.tools["grep"] = Grep(ripgrep=request.param)
    return desk


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if not line.startswith("(")]


def test_lines_come_with_path_and_number_in_order(grep: Desk) -> None:
    grep.file("b.txt", "no\nneedle two\n")
    grep.file("a/z.txt", "needle one")
    grep.file("a.txt", "x\r\nneedle \r\n")
    grep.file(".hidden", "needle hidden\n")
    assert grep.call("grep", pattern="needle").split("\n") == [
        ".hidden:1:needle hidden", "a/z.txt:1:needle one", "a.txt:2:needle ", "b.txt:2:needle two",
    ]  # fmt: skip


def test_path_may_be_a_folder_or_a_file(grep: Desk) -> None:
    grep.file("sub/a.txt", "needle\n")
    grep.file("b.txt", "needle\n")
    assert grep.call("grep", pattern="needle", path="sub") == "sub/a.txt:1:needle"
    assert grep.call("grep", pattern="needle", path="b.txt") == "b.txt:1:needle"
    assert "does not exist" in grep.fails("grep", pattern="needle", path="none")


@pytest.mark.parametrize("pattern", ["needle$", "^needle$"])
def test_crlf_line_ends_are_line_ends(grep: Desk, pattern: str) -> None:
    grep.file("a.txt", b"x\r\nneedle\r\ny\r\nneedle")
    assert grep.call("grep", pattern=pattern) == "a.txt:2:needle\na.txt:4:needle"


def test_ignore_case_in_every_alphabet(grep: Desk) -> None:
    grep.file("a.txt", "Straße ÄPFEL\n")
    assert "No matches" in grep.call("grep", pattern="äpfel")
    assert grep.call("grep", pattern="äpfel", ignore_case=True) == "a.txt:1:Straße ÄPFEL"


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "a)", "*x", "(?P<n", "[a", "\\"], ids=lambda text: f"F33-{text}")
def test_f33_a_pattern_that_is_none_is_an_error(grep: Desk, pattern: str) -> None:
    grep.file("a.txt", "( [z-a] a) *x\n")
    assert "cannot be searched for" in grep.fails("grep", pattern=pattern)


def test_f34_no_match_the_end_and_an_error_are_three_things(grep: Desk) -> None:
    grep.file("a.txt", "x\n" * 250)
    assert grep.call("grep", pattern="nothing").startswith('No matches for "nothing" in .')
    text = grep.call("grep", pattern="x")
    assert len(lines(text)) == 100 and "100 matches shown, there are more" in text
    grep.file("a.txt", "x\n" * 100)
    assert len(lines(grep.call("grep", pattern="x"))) == 100 and "more" not in grep.call("grep", pattern="x")


def test_f35_a_deny_rule_keeps_matches_back(grep: Desk) -> None:
    grep.file(".env", "KEY=1\n")
    grep.file("sub/.env", "KEY=2\n")
    grep.file("a.py", "KEY\n")
    assert len(lines(grep.call("grep", pattern="KEY"))) == 3
    grep.settings = Settings(deny=("read_file(.env)",))
    text = grep.call("grep", pattern="KEY")
    assert lines(text) == ["a.py:1:KEY"] and "2 files kept back by a deny rule" in text
    assert "deny rule" in grep.fails("grep", status="denied", pattern="KEY", path="sub/.env")
    grep.settings = Settings(deny=("grep(*/sub/*)",))
    assert lines(grep.call("grep", pattern="KEY")) == [".env:1:KEY=1", "a.py:1:KEY"]


@pytest.mark.parametrize("pattern", ["--pre=x", "-e", "--", "-f", "--help", "-"], ids=lambda text: f"F36-{text}")
def test_f36_a_pattern_is_never_an_option(grep: Desk, pattern: str) -> None:
    grep.file("a.txt", f"see {pattern} here\n")
    assert grep.call("grep", pattern=pattern) == f"a.txt:1:see {pattern} here"


@pytest.mark.parametrize("name", ["-rf", "--pre=x", "a b", "-", "*", "a\nb", "设计 'x'", "$(touch pwned)", "[a]", "!x"])
def test_f36_a_path_is_never_an_option_and_any_name_is_right(grep: Desk, name: str) -> None:
    grep.file(name, "needle\n")
    grep.file(f"dir{name}/{name}", "needle\n")
    said = name.replace("\n", r"\n")
    assert grep.call("grep", pattern="needle", path=name) == f"{said}:1:needle"
    assert grep.call("grep", pattern="needle", path=f"dir{name}") == f"dir{said}/{said}:1:needle"
    assert set(grep.call("grep", pattern="needle").split("\n")) == {f"{said}:1:needle", f"dir{said}/{said}:1:needle"}
    assert not (grep.workspace / "pwned").exists()


def test_f38_gitignore_is_obeyed_without_a_repository_and_through_a_link(grep: Desk) -> None:
    grep.file("rules", "*.log\nbuild/\n!keep.log\n")
    (grep.workspace / ".gitignore").symlink_to("rules")
    for name in ("a.log", "keep.log", "build/x.py", "src/b.log", "src/a.py"):
        grep.file(name, "needle\n")
    grep.file("src/.gitignore", "a.py\n")
    assert grep.call("grep", pattern="needle") == "keep.log:1:needle"
    assert grep.call("grep", pattern="needle", glob="*.log") == "keep.log:1:needle"
    assert "No matches" in grep.call("grep", pattern="needle", path="src")
    assert grep.call("grep", pattern="needle", path="build") == "build/x.py:1:needle"
    assert grep.call("grep", pattern="needle", path="a.log") == "a.log:1:needle"


def test_a_repository_hears_nothing_from_above_and_git_is_not_searched(grep: Desk) -> None:
    grep.file(".gitignore", "*.py\n")
    grep.file("inner/.git/config", "needle\n")
    grep.file("inner/.git/info/exclude", "excluded.py\n")
    for name in ("a.py", "inner/a.py", "inner/excluded.py", ".git/config"):
        grep.file(name, "needle\n")
    assert grep.call("grep", pattern="needle") == "inner/a.py:1:needle"
    assert grep.call("grep", pattern="needle", path=".git") == ".git/config:1:needle"


@pytest.mark.parametrize(
    ("glob", "found"),
    [("*.py", ["a.py", "src/b.py", "src/x/c.py"]), ("src/*.py", ["src/b.py"]),
     ("src/**/*.py", ["src/b.py", "src/x/c.py"]), ("[", []),
     ("![", ["a.py", "include:x", "src/b.py", "src/d.ts", "src/x/c.py"]),
     ("\\a.py", ["a.py"]),
     ("**/*.{py,ts}", ["a.py", "src/b.py", "src/d.ts", "src/x/c.py"]), ("!*.py", ["include:x", "src/d.ts"]),
     ("!src", ["a.py", "include:x"]), ("[ab].py", ["a.py", "src/b.py"]), ("[!a].py", ["src/b.py", "src/x/c.py"]),
     ("include:*", ["include:x"]), ("{a,src/b}.py", ["a.py", "src/b.py"]), ("/a.py", ["a.py"]), ("src/", [])],
)  # fmt: skip
def test_the_glob_chooses_files(grep: Desk, glob: str, found: list[str]) -> None:
    for name in ("a.py", "src/b.py", "src/x/c.py", "src/d.ts", "include:x"):
        grep.file(name, "needle\n")
    text = grep.call("grep", pattern="needle", glob=glob)
    assert [line.rsplit(":", 2)[0] for line in text.split("\n") if line.endswith(":needle")] == found


@pytest.mark.parametrize("glob", ["../*.txt", "{" + "a,b}{" * 8 + "a,b}"])
def test_a_glob_that_cannot_be_used_is_explained(grep: Desk, glob: str) -> None:
    assert "cannot be used" in grep.fails("grep", pattern="x", glob=glob)


def test_f39_a_catastrophic_pattern_ends_in_time_and_leaves_nothing(desk: Desk) -> None:
    desk.tools["grep"] = Grep(ripgrep=False, time_limit_s=1)
    desk.file("a.txt", "a" * 40 + "b\n")
    before, start = threading.active_count(), time.monotonic()
    assert "stopped after 1 s" in desk.fails("grep", pattern="(a+)+$")
    assert time.monotonic() - start < 4 and threading.active_count() == before


def test_f39_the_matcher_ends_by_itself_when_its_starter_is_gone() -> None:
    asked = request("(a+)+$", ignore_case=False, include=None, exclude=None, home=None, limit_s=1, standard_input=True)
    code = "from mxclaw_nb.tools.search.matcher import main; main()"
    with subprocess.Popen([sys.executable, "-c", code, asked], stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        child.stdin.write(b"a" * 40 + b"b\n")
        child.stdin.close()
        assert child.wait(30) == -signal.SIGALRM


def test_cancelling_ends_the_search_and_its_child_within_a_second(desk: Desk) -> None:
    desk.file("a.txt", "a" * 40 + "b\n")
    tool = Grep(ripgrep=False)
    parsed = tool.arguments.model_validate_json('{"pattern": "(a+)+$"}')

    async def main() -> float:
        preview = await tool.preview(parsed, desk.context())
        task = asyncio.create_task(tool.run(parsed, desk.context(), preview))
        await asyncio.wait_for(asyncio.to_thread(wait_for_a_child), 30)
        start = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - start

    assert asyncio.run(main()) < 1
    assert not children()


def wait_for_a_child() -> None:
    deadline = time.monotonic() + 20
    while not children():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def children() -> list[str]:
    found = []
    for task in Path("/proc/self/task").iterdir():
        found += (task / "children").read_text().split()
    return found


def test_binary_files_are_left_out_and_said_when_named(grep: Desk) -> None:
    grep.file("a.bin", b"needle\n\0\0\0")
    grep.file("a.txt", "needle\n")
    assert grep.call("grep", pattern="needle") == "a.txt:1:needle"
    assert "binary file" in grep.fails("grep", pattern="needle", path="a.bin")


def test_other_encodings_with_a_mark_are_searched(grep: Desk) -> None:
    grep.file("a.txt", "eins\r\nzwei 设计\r\n".encode("utf-16"))
    grep.file("b.txt", b"\xef\xbb\xbfeins\n")
    assert grep.call("grep", pattern="设计") == "a.txt:2:zwei 设计"
    assert grep.call("grep", pattern="^eins$") == "a.txt:1:eins\nb.txt:1:eins"
    assert grep.call("grep", pattern="设计", path="a.txt") == "a.txt:2:zwei 设计"


def test_bytes_that_are_no_text_are_shown_escaped(grep: Desk) -> None:
    grep.file("a.txt", b"caf\xe9 needle\n")
    assert grep.call("grep", pattern="needle") == r"a.txt:1:caf\xe9 needle"


@pytest.mark.parametrize("before", [0, 100, 400, 3900, 4090, 10_000, 200_000])
@pytest.mark.parametrize("filler", ["x", "设"], ids=["ascii", "wide"])
def test_a_long_line_is_cut_around_its_match(grep: Desk, before: int, filler: str) -> None:
    grep.file("a.txt", "first\n" + filler * before + "NEEDLE" + "y" * 10_000 + "\n")
    for path in (".", "a.txt"):
        text = grep.call("grep", pattern="NEED.E", path=path).removeprefix("a.txt:2:")
        assert "NEEDLE" in text and 300 < len(text) <= 500 and text.endswith("…")
        assert text.startswith("…") == (before > 120) and "\ufffd" not in text and "\\x" not in text


def test_a_cut_falls_between_characters(grep: Desk) -> None:
    grep.file("a.txt", "👩‍👩‍👧‍👦" * 300 + "NEEDLE" + "👩‍👩‍👧‍👦" * 300 + "\n")
    text = grep.call("grep", pattern="NEEDLE").removeprefix("a.txt:1:").strip("…")
    left, right = text.split("NEEDLE")
    assert left == "👩‍👩‍👧‍👦" * (len(left) // 7) and right == "👩‍👩‍👧‍👦" * (len(right) // 7)


def test_very_many_matches_give_the_first_hundred_by_path(grep: Desk) -> None:
    for number in range(120):
        grep.file(f"d{number % 7}/f{number:03}.txt", "x needle\n" * 200)
    first = [line.split(":")[0] for line in lines(grep.call("grep", pattern="needle"))]
    assert first == ["d0/f000.txt"] * 100
    again = grep.call("grep", pattern="needle", glob="f1*.txt")
    assert {line.split(":")[0] for line in lines(again)} == {"d0/f105.txt"}


def test_a_configuration_file_and_the_keys_in_the_environment_stay_out(
    grep: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "rc"
    config.write_text("--invert-match\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(config))
    grep.file("a.txt", "needle\nother\n")
    assert grep.call("grep", pattern="needle") == "a.txt:1:needle"


def test_a_ripgrep_that_lies_in_the_workspace_is_not_run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = desk.file("bin/rg", f"#!/bin/sh\ntouch {desk.workspace}/pwned\n")
    evil.chmod(0o755)
    for path in (str(evil.parent), "bin", "."):
        monkeypatch.setenv("PATH", path)
        assert find_ripgrep(desk.workspace) is None
    desk.file("a.txt", "needle\n")
    assert "a.txt:1:needle" in desk.call("grep", pattern="needle")
    assert not (desk.workspace / "pwned").exists()


def test_our_own_home_is_not_searched_when_it_lies_in_the_workspace(grep: Desk) -> None:
    grep.home = grep.workspace / ".mx-[claw]"
    grep.file(".mx-[claw]/secrets.json", "needle\n")
    grep.file("sub/a.txt", "needle\n")
    assert grep.call("grep", pattern="needle") == "sub/a.txt:1:needle"
    grep.home = grep.workspace / "sub"
    assert grep.call("grep", pattern="needle") == ".mx-[claw]/secrets.json:1:needle"


def test_links_are_not_followed(grep: Desk) -> None:
    (grep.workspace / "out").symlink_to("..")
    (grep.workspace / "out.txt").symlink_to("../secret.txt")
    (grep.workspace / "loop").symlink_to(".")
    grep.file("a.txt", "inside outside\n")
    assert grep.call("grep", pattern="outside") == "a.txt:1:inside outside"


def test_a_pipe_in_the_tree_does_not_hang_the_search(grep: Desk) -> None:
    os.mkfifo(grep.workspace / "pipe")
    grep.file("a.txt", "needle\n")
    assert grep.call("grep", pattern="needle") == "a.txt:1:needle"
    assert "named pipe" in grep.fails("grep", pattern="needle", path="pipe")


@pytest.mark.parametrize("pattern", ["a\nb", r"a\nb", "a\0b"])
def test_what_no_line_can_hold_is_refused(grep: Desk, pattern: str) -> None:
    grep.file("a.txt", "a\nb\n")
    grep.fails("grep", pattern=pattern)


def test_an_escaped_backslash_before_n_is_no_line_break(grep: Desk) -> None:
    grep.file("a.txt", "a\\nb\n")
    assert grep.call("grep", pattern=r"a\\nb") == r"a.txt:1:a\nb"


def test_an_empty_workspace_has_no_matches(grep: Desk) -> None:
    assert "No matches" in grep.call("grep", pattern=json.dumps("x"))


@pytest.mark.parametrize("pattern", ["$", "x*$", r"\z", "end|$"])
def test_an_empty_match_at_the_very_end_is_a_match_like_any_other(grep: Desk, pattern: str) -> None:
    grep.file("a.txt", "7:8:9\n12:34:the end")
    assert grep.call("grep", pattern=pattern) == "a.txt:1:7:8:9\na.txt:2:12:34:the end"


def test_a_file_with_a_nul_in_its_first_64_kilobytes_is_binary_and_a_later_one_ends_the_search_of_it(
    grep: Desk,
) -> None:
    grep.file("early", b"needle\n" * 5_000 + b"\0\nneedle\n")
    grep.file("late", b"needle\n" + b"x" * 99 + b"\n" + b"y\n" * 100_000 + b"\0\nneedle\n")
    assert lines(grep.call("grep", pattern="needle")) == ["late:1:needle"]


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", r"\h", "a{3,2}", "x\ny", "\0", "[z-a]", r"\p{Nope}"])
def test_both_engines_refuse_an_expression_by_the_same_sentence(grep: Desk, pattern: str) -> None:
    grep.file("a.txt", "ab\n")
    own = grep.fails("grep", pattern=pattern)
    grep.tools["grep"] = Grep(ripgrep=False)
    assert own == grep.fails("grep", pattern=pattern) and "\n" not in own.replace("regex parse error", "")


@pytest.mark.parametrize(
    "rule", ["read_file", "*(secrets/)", "read_file(secrets)", "grep(SECRETS)", "read_file(secrets/**)"]
)
def test_a_deny_rule_hides_a_folder_and_all_that_is_in_it(grep: Desk, rule: str) -> None:
    grep.settings = Settings(deny=(rule,))
    grep.file("secrets/deep/a.txt", "needle\n")
    assert "1 file kept back by a deny rule" in grep.call("grep", pattern="needle")
