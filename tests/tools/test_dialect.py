"""One expression, two engines: the same lines, or the same refusal."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mxclaw_nb.tools.search.dialect import DialectError, translate

TEXT = "abc\nABC a-b\n中文 é\n\nb{2} [x]\n  c\tc \n_9 8\naab bcc(cc)\n#&~^-]\ncafe\u0301"
LINES = TEXT.split("\n")
RIPGREP = shutil.which("rg")


def found_by_python(pattern: str) -> list[int]:
    regex = re.compile(translate(pattern).python)
    return [number for number, line in enumerate(LINES, 1) if regex.search(line)]


def found_by_ripgrep(pattern: str, path: Path) -> list[int] | None:
    """The numbers of the lines, None if ripgrep refuses."""
    command = ["rg", "--no-config", "--crlf", "-n", "--no-heading", "--color=never", "-e", pattern, "--", str(path)]
    done = subprocess.run(command, capture_output=True, timeout=20, text=True)
    return None if done.returncode == 2 else [int(line.partition(":")[0]) for line in done.stdout.splitlines()]


FOUND: dict[str, list[int]] = {
    "abc": [1], "(?i)abc": [1, 2], "(?i:A)bc": [1], "x(?i)y|ABC": [1, 2], "^$": [4], r"^\s*$": [4], r"\A\w": [1, 2,
    3, 5, 7, 8, 10],
    r"\w\z": [1, 2, 3, 7, 10], "b{": [5], r"b\{2\}": [5], "a{,2}b": [1, 2, 5, 8], "a{1}{2}b": [8], "a++b": [1, 8],
    r"\[x\]": [5], "[]]": [5, 9], r"[^\W_]\)": [8], "[[:upper:]]": [2], r"\p{Han}": [3], r"\p{Lu}": [2],
    r"[\p{Han}é]$": [3], "[a-c&&[^ab]]": [1, 6, 8, 10], r"[\w--[a-z]]\s": [2, 3, 7], r"\x{4e2d}": [3], r"\u6587": [3],
    r"\<a-b\>": [2], r"\"|\'|\/|\#": [9], "(?P<n>a)b": [1, 8], "(?<n>a)b": [1, 8], "(?x) a  b # c\n c": [1],
    "(?U)a+b": [1, 8],
    r"\t": [6], "[~^-]": [2, 9], "|x": list(range(1, 11)), r"e\w": [10],
}  # fmt: skip


@pytest.mark.parametrize("pattern", FOUND)
def test_an_expression_finds_the_same_lines_with_both_engines(pattern: str, tmp_path: Path) -> None:
    assert found_by_python(pattern) == FOUND[pattern]
    if RIPGREP:
        (tmp_path / "f").write_text(TEXT, "utf-8")
        assert found_by_ripgrep(translate(pattern).ripgrep, tmp_path / "f") == FOUND[pattern]


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "[", "[a", "[]", "*", "a|*", "{2}", "(?", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?#a)",
        "(?P=n)", "(?|a)", "(?a)", "(?-u)a",
        r"\1", r"(a)\1", r"\0", r"\h", r"\Z", r"\K", "\\", r"\é", r"\x", r"\x{110000}", r"\ud800", "a{2,1}",
        "a{1001}", "[z-a]", r"[\w-z]",
        r"[a-\w]", "[[:foo:]]", r"\p{Klingon}", r"\p", "\n", r"\n", r"a\nb", r"\r", r"[\n]", "\x00", r"\x00",
        r"\x{a}", "((a{1,999}){1,999}){1,999}",
        "(" * 500 + ")" * 500, "[" * 500, "(?:" * 3000,
    ],
)  # fmt: skip
def test_what_one_engine_could_not_do_is_refused_by_a_sentence(pattern: str) -> None:
    with pytest.raises(DialectError) as caught:
        translate(pattern)
    assert str(caught.value).endswith(".") and len(str(caught.value)) < 200


PIECES = [
    "a", "b", "c", "é", "中", " ", "-", "]", "[", "[^", "(", "(?:", "(?i)", "(?i:", "(?x)", "(?-i)", ")", "|", "*",
    "+", "?", "??", "{1,2}", "{,2}",
    "{", "}", r"\d", r"\w", r"\s", r"\S", r"\W", ".", r"\.", r"\-", r"\]", r"\p{L}", "[:alpha:]", "[a-c]", r"[\w-]",
    "&&", "--", "~~", r"\x41", "#",
]  # fmt: skip


@pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed")
def test_random_expressions_mean_for_both_engines_what_ripgrep_says_they_mean(tmp_path: Path) -> None:
    chance = random.Random(20)
    (tmp_path / "f").write_text(TEXT, "utf-8")
    compared = 0
    while compared < 150:
        pattern = "".join(chance.choice(PIECES) for _ in range(chance.randrange(1, 9)))
        try:
            expression = translate(pattern)
        except DialectError:
            continue
        found = found_by_ripgrep(expression.ripgrep, tmp_path / "f")
        if found is None:  # such as a set that is empty
            continue
        assert found_by_python(pattern) == found, pattern
        as_given = found_by_ripgrep(pattern, tmp_path / "f")
        assert as_given in (None, found), pattern
        compared += 1
