"""The static record: what stays in the saved notebook."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxclaw_nb.notebook.folding import fold
from mxclaw_nb.notebook.record import RECORD_BYTES, SHOW_BYTES, record, saved_bytes
from mxclaw_nb.notebook.styles import STYLE
from tests.notebook.events import Told, a_whole_turn, call
from tests.notebook.pages import Page, harmless


def test_a_record_reads_well_in_all_three_forms() -> None:
    shown = record(fold(a_whole_turn("**Fine**, 价格 included.").events))
    page = harmless(shown["text/html"], ours=STYLE)
    for expected in ("completed", "rehearsal/quickstart", "run_command", "allowed once", "Fine, 价格 included."):
        assert expected in page.text, expected
    assert "**Fine**, 价格 included." in shown["text/markdown"]
    assert shown["text/plain"].startswith("[agent turn completed · rehearsal/quickstart")


def test_without_its_style_sheet_the_record_is_still_structured() -> None:
    page = Page(record(fold(a_whole_turn().events))["text/html"].removeprefix(STYLE))
    tags = [tag for tag, _ in page.elements]
    assert {"details", "summary", "pre", "b"} <= set(tags)


@pytest.mark.parametrize(
    ("code", "message", "words"),
    [
        ("cancelled", "The turn was stopped (user).", "interrupted"),
        ("max_iterations", "The turn used its 8 rounds.", "max_iterations"),
        ("provider_error", "<b>no</b>", "provider_error"),
    ],
)
def test_a_turn_that_did_not_complete_says_why(code: str, message: str, words: str) -> None:
    told = Told()
    told.started()
    told.failed(code, message)  # type: ignore[arg-type]
    shown = record(fold(told.events))
    for form in shown.values():
        assert words.replace("_", "\\_") in form or words in form
    assert message in harmless(shown["text/html"], ours=STYLE).text


ENDINGS = [("cancelled", "The turn ended early."), ("provider_error", "Provider mine refused (status 500).")]


@pytest.mark.parametrize(("code", "message"), ENDINGS)
def test_how_and_why_it_ended_is_said_once(code: str, message: str) -> None:
    told = Told()
    told.started()
    told.failed(code, message)  # type: ignore[arg-type]
    shown = record(fold(told.events))
    text = Page(shown["text/html"].removeprefix(STYLE)).text
    assert text.count(message) == 1
    assert "cancelled" not in text
    word = "interrupted" if code == "cancelled" else "failed"
    assert text.count(word) == 1
    for form in shown.values():
        assert form.replace("\\", "").count(message) == 1


def test_a_turn_that_broke_off_without_an_end_says_where_to_look() -> None:
    state = fold(a_whole_turn().events[:3])
    state.end("interrupted")
    assert "%mxclaw show t-0987654321" in Page(record(state)["text/html"]).text


@pytest.mark.parametrize(("messages", "words"), [(0, ""), (1, "resumed, 1 message"), (1200, "resumed, 1,200 messages")])
def test_a_session_that_was_taken_up_again_is_named_with_that(messages: int, words: str) -> None:
    state = fold(a_whole_turn().events)
    state.resumed = messages
    shown = record(state)
    assert f"session s-1234567890 {words}".strip() in shown["text/plain"]
    assert ("resumed" in shown["text/html"]) is bool(messages)
    # The narrowest page hides what is optional; this is not.
    assert f'<span class="mxc-{"main" if messages else "opt"}">session s-1234567890' in shown["text/html"]


def _monsters() -> dict[str, Told]:
    long_reply = a_whole_turn('A line of a reply with "quotes" and \\ and <tags>.\n' * 5000)
    chinese = a_whole_turn("这是一个很长的回答。" * 20_000)
    newlines = a_whole_turn("x\n\n" * 30_000)
    dollars = a_whole_turn("$\\ " * 30_000)
    output = Told()
    output.started()
    for number in range(300):
        output.message("", (call(f"c-{number}"),), f"m-{number}")
        output.asked("\u202e" * 5000, call=f"c-{number}", request=f"a-{number}")
        output.answered(call=f"c-{number}", request=f"a-{number}")
        output.tool_completed("\x1b[31mred\x1b[0m <b>\n" * 4000, call=f"c-{number}", path="/" + "p" * 4000)
    output.completed()
    notices = Told()
    notices.started("p" * 100_000, "m" * 100_000)
    for _ in range(500):
        notices.notice("<script>" * 1000)
    notices.failed("error", "<" * 100_000)
    replies = Told()
    replies.started()
    for number in range(500):
        replies.message(f"Reply {number} `code` " * 50, message=f"m-{number}")
    replies.completed()
    names = Told()
    names.started()
    names.message("", tuple(call(f"c-{number}", "n" * 5000, "{" * 50_000) for number in range(100)))
    names.failed("cancelled", "stopped")
    return {
        "a long reply": long_reply,
        "a long Chinese reply": chinese,
        "a reply of newlines": newlines,
        "a reply of dollars and backslashes": dollars,
        "hundreds of calls with long output": output,
        "notices and a failure without end": notices,
        "hundreds of replies": replies,
        "names and arguments without end": names,
    }


MONSTERS = _monsters()


@pytest.mark.parametrize("name", MONSTERS)
def test_no_turn_adds_more_than_20_kb_to_a_saved_notebook(name: str, tmp_path: Path) -> None:
    shown = record(fold(MONSTERS[name].events))
    harmless(shown["text/html"], ours=STYLE)
    assert _growth(shown, tmp_path) <= RECORD_BYTES


def _growth(shown: dict[str, str], folder: Path) -> int:
    """How much larger the file gets, written as Jupyter writes it."""
    sizes = []
    for outputs in ([], [nbformat.v4.new_output("display_data", shown)]):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("%%agent", outputs=outputs)])
        path = folder / "n.ipynb"
        nbformat.write(notebook, path)
        sizes.append(path.stat().st_size)
    return sizes[1] - sizes[0]


def test_what_is_left_out_is_said_and_can_be_had() -> None:
    told = MONSTERS["a long reply"]
    shown = record(fold(told.events))
    for form in ("text/html", "text/markdown"):
        assert "characters left out" in shown[form]
        assert f"show {told.turn_id}" in Page(shown[form]).text
    more = record(fold(told.events), limit=SHOW_BYTES)
    assert saved_bytes(more) > 3 * saved_bytes(shown)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40)
@given(st.text(max_size=3000), st.text(max_size=3000), st.integers(0, 30))
def test_the_estimate_of_the_saved_size_is_never_too_small(reply: str, output: str, calls: int) -> None:
    told = Told()
    told.started()
    for number in range(calls):
        told.tool_completed(output, call=f"c-{number}")
    told.message(reply)
    told.completed(reply)
    shown = record(fold(told.events))
    harmless(shown["text/html"], ours=STYLE)
    cell = nbformat.v4.new_code_cell("x", outputs=[nbformat.v4.new_output("display_data", shown)])
    notebook = nbformat.v4.new_notebook(cells=[cell])
    written = len(nbformat.writes(notebook).encode("utf-8", "surrogatepass"))
    cell.outputs = []
    assert written - len(nbformat.writes(notebook).encode()) <= saved_bytes(shown) <= RECORD_BYTES


def test_a_record_is_plain_json() -> None:
    json.dumps(record(fold(a_whole_turn("\ud800 lone").events))).encode()
