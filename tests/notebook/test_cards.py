"""What a card and a question say of a call."""

from __future__ import annotations

import json

import pytest

from mxclaw_nb.notebook.approvals import question_html
from mxclaw_nb.notebook.cards import arguments_html, card_html, diff_lines, size_words
from mxclaw_nb.notebook.folding import Call, fold
from mxclaw_nb.protocol import Detail, DetailKind
from tests.notebook.events import Told, call
from tests.notebook.pages import Page, harmless

NEW = "--- /dev/null\n+++ a.py\n@@ -0,0 +1,{n} @@\n{lines}"


@pytest.mark.parametrize(
    ("arguments", "expected", "absent"),
    [
        pytest.param('{"path": "a.py", "limit": 20}', ["path: a.py", "limit: 20"], ["{", '"'], id="short values"),
        pytest.param('{"command": "ls -l | wc"}', ["command:", "ls -l | wc"], ["{", '"'], id="a command"),
        pytest.param('{"content": "one\\ntwo\\n"}', ["content: one\ntwo"], ["\\n", "{"], id="several lines"),
        pytest.param('{"names": ["a", "价格"]}', ['names: ["a", "价格"]'], ["\\u"], id="a list"),
        pytest.param('{"path": "\\u202ea\\u200b.py"}', ["path: ⟨U+202E⟩a⟨U+200B⟩.py"], ["\u202e"], id="invisible"),
        pytest.param('{"path": "<img src=x onerror=alert(1)>"}', ["path: <img src=x"], [], id="markup"),
        pytest.param('{"<b>": "<i>"}', ["<b>: <i>"], [], id="markup in a name"),
        pytest.param('{"path": "half', ['{"path": "half'], [], id="broken JSON"),
        pytest.param("[" * 100_000, ["[[[["], [], id="nested without end"),
        pytest.param('["a"]', ['["a"]'], [], id="no object"),
        pytest.param("{}", [], ["{"], id="none"),
        pytest.param("", [], ["arguments"], id="nothing"),
    ],
)
def test_arguments_are_names_and_values(arguments: str, expected: list[str], absent: list[str]) -> None:
    page = harmless(arguments_html(arguments, 1000))
    for words in expected:
        assert words in page.text, page.text[:400]
    for words in absent:
        assert words not in page.text


def test_long_values_and_many_arguments_are_clipped_and_say_so() -> None:
    shown = arguments_html(json.dumps({"content": "x" * 50_000, "path": "a.py"}), 1000, more="; look there")
    assert "characters left out; look there" in shown and "path: " in shown
    assert len(shown) < 2000
    shown = arguments_html(json.dumps({f"name{number}": "v" for number in range(5000)}), 1000)
    assert "4,988 more arguments" in shown
    assert len(shown) < 2000


@pytest.mark.parametrize("status", ["denied", "duplicate", "invalid", "interrupted"])
def test_a_call_that_nobody_was_asked_about_shows_what_it_would_have_done(status: str) -> None:
    told = Told()
    told.started()
    told.message("", (call(name="write_file", arguments='{"path": "a.py", "content": "one\\ntwo\\n"}'),))
    told.tool_completed("Permission denied.", status=status, name="write_file")  # type: ignore[arg-type]
    only = fold(told.events).calls[0]
    page = Page(card_html(only, 4000))
    assert "path: a.py" in page.text and "one\ntwo" in page.text
    assert "{" not in page.text
    head = page.text.split("path:")[0]
    assert "a.py" in head and "two" not in head, "the line names the file, not all that would be in it"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n z", ["hunk", "hunk", "hunk", "del", "add", ""]),
        ("--- a\n+++ a\n@@ -1 +1 @@\n--- x\n+++ y", ["hunk", "hunk", "hunk", "del", "add"]),
        ("--- a\n+++ a\n@@ -1 +1 @@\n-@@\n+@@ -1 @@\n@@ -9 +9 @@", ["hunk", "hunk", "hunk", "del", "add", "hunk"]),
        ("(a note)\n--- a\n+++ a\n@@ -1 +1 @@\n-x\n\\ No newline", ["", "hunk", "hunk", "hunk", "del", ""]),
        ("(no change)", [""]),
    ],
    ids=["a change", "lines that look like a file's name", "lines that look like a heading", "a note", "none"],
)
def test_every_line_of_a_diff_has_its_kind(text: str, kinds: list[str]) -> None:
    assert [kind for kind, _ in diff_lines(text)] == kinds


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("diff", NEW.format(n=5, lines="\n".join("+x" for _ in range(5))), ""),
        ("diff", NEW.format(n=13, lines="\n".join("+x" for _ in range(13))), "scroll to see all"),
        ("diff", "--- a\n+++ a\n@@ -1 +1,2 @@\n-x\n+y\n+z", "2 lines added, 1 line removed"),
        ("diff", "--- a\n+++ a\n@@ -1 +0,0 @@\n--- x", "1 line removed"),
        ("diff", "--- a\n+++ a\n@@ -0,0 +1,20 @@" + "\n+x" * 20, "20 lines added, scroll to see all"),
        ("diff", "(no change)", ""),
        ("command", "ls", ""),
        ("command", "ls\n" * 29 + "ls", "30 lines, scroll to see all"),
    ],
)
def test_the_size_of_a_change_is_that_of_the_file_and_not_of_its_picture(
    kind: DetailKind, text: str, words: str
) -> None:
    assert size_words(Detail(kind=kind, text=text)) == words
    assert words in Page(question_html(Told().asked(text, kind=kind))).text


def test_a_call_without_anything_has_a_card() -> None:
    assert "no output" in card_html(Call("c-1", "x", status="denied"), 1000)
