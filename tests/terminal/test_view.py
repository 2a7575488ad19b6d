"""What a turn looks like at a terminal and in a pipe."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from mxclaw_nb.protocol import (
    Event,
    MessageCompleted,
    MessageDelta,
    ToolCompleted,
    ToolStarted,
    ToolStatus,
    TurnCompleted,
    TurnFailedEvent,
    TurnStarted,
    UsageEvent,
    WireToolCall,
)
from mxclaw_nb.terminal import TerminalFrontend
from tests.terminal.conftest import SCENES
from tests.terminal.scenes import BASE
from tests.terminal.terminal import Terminal

Play = Callable[..., Terminal]


def test_a_turn_is_shown_in_order_and_stays_on_the_screen(play: Play) -> None:
    terminal = play("whole_turn", rows=60)
    assert terminal.wait_for_end() == 0
    shown = terminal.text()
    for line in (
        "rehearsal/quickstart · ask",
        "Let me think about it.",
        "I'll look at the **data** `first.py` 你好。",
        "● run_command  pytest -q 测试",
        "│ line 9",
        "… 85 lines not shown …",
        "│ line 99",
        "✗ error · exit 3 · 2.3 s",
        "full output: /home/me/out.txt",
        "✗ read_file · invalid",
        "path: field required",
        "The reply was cut.",
        "8,120 in (6,000 cached) · 420 out · $0.0123",
    ):
        assert line in shown, line
        shown = shown[shown.index(line) :]
    assert "All done." not in terminal.text(), "the final text was streamed, it is not repeated"


def test_nothing_but_colours_is_ever_sent_while_text_streams(play: Play) -> None:
    terminal = play("whole_turn")
    terminal.wait_for_end()
    assert set(re.findall(rb"\x1b\[?[0-9;?]*([A-Za-z])", terminal.raw)) == {b"m"}


def test_hostile_text_cannot_control_the_terminal_and_is_no_markup(play: Play) -> None:
    terminal = play("hostile")
    assert terminal.wait_for_end() == 0
    assert terminal.screen.title == ""
    assert set(re.findall(rb"\x1b(.)", terminal.raw)) <= {b"["}, "no OSC, no link, no clipboard"
    assert set(re.findall(rb"\x1b\[[0-9;?]*([A-Za-z])", terminal.raw)) == {b"m"}
    assert "[bold]not markup[/bold] :smile:" in terminal.text()


@pytest.mark.parametrize("columns", [24, 40, 200])
def test_tool_lines_fit_any_width_and_text_is_whole(play: Play, columns: int) -> None:
    terminal = play("whole_turn", columns=columns, rows=100)
    assert terminal.wait_for_end() == 0
    joined = terminal.text().replace("\n", "")
    assert "`first.py` 你好。" in joined or "first.py" in joined
    assert all(len(line) <= columns for line in terminal.text().split("\n"))


def test_without_colour_none_is_sent(play: Play) -> None:
    terminal = play("whole_turn", environment={"NO_COLOR": "1"})
    terminal.wait_for_end()
    codes = {code for group in re.findall(rb"\x1b\[([0-9;]*)m", terminal.raw) for code in group.split(b";")}
    assert codes <= {b"0", b"1", b"2", b"3", b"7", b""}, "weights at most, no colours"


def test_a_dumb_terminal_gets_no_escape_at_all(play: Play) -> None:
    terminal = play("whole_turn", environment={"TERM": "dumb"})
    assert terminal.wait_for_end() == 0
    assert b"\x1b" not in terminal.raw


def test_a_terminal_that_knows_ascii_only_is_still_served(play: Play) -> None:
    terminal = play("whole_turn", environment={"PYTHONIOENCODING": "ascii"})
    assert terminal.wait_for_end() == 0
    assert "* run_command  pytest -q" in terminal.text()
    assert terminal.raw.isascii()


def run_scene(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCENES), name], capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=30,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"}, check=False,
    )  # fmt: skip


def test_in_a_pipe_only_the_final_text_goes_to_standard_output() -> None:
    done = run_scene("whole_turn")
    assert done.stdout == "All done.\n"
    assert "● run_command  pytest -q 测试" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_in_a_pipe_hostile_text_stays_harmless() -> None:
    done = run_scene("hostile")
    assert done.stdout == "click [bold]not markup[/bold] :smile:\n"


def test_in_a_pipe_an_approval_is_shown_and_nobody_is_asked() -> None:
    process = subprocess.Popen(
        [sys.executable, str(SCENES), "approval"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        shown = b""
        while b"Commands ask in this mode." not in shown:
            shown += process.stderr.readline()
        assert b"rm -rf build" in shown
        assert b"Allow?" not in shown
    finally:
        process.kill()
        process.communicate(timeout=10)


def test_a_record_says_what_was_asked_and_how_it_failed(capfd: pytest.CaptureFixture[str]) -> None:
    TerminalFrontend().show_record(
        [
            TurnStarted(**BASE, input="do it", model="a/b", mode="plan"),
            MessageCompleted(**BASE, message_id="m-1", text="Only the whole text is kept.", incomplete=True),
            TurnFailedEvent(**BASE, code="stream_interrupted", message="The stream broke."),
        ]
    )
    shown = capfd.readouterr().out
    assert shown.index("do it") < shown.index("Only the whole text is kept.") < shown.index("cut off here")
    assert shown.index("stream_interrupted: The stream broke.") < shown.index("failed")


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (TurnCompleted(**BASE, text="Done."), "completed · 10 in · 2 out\n"),
        (TurnFailedEvent(**BASE, code="cancelled", message="It ended early."), "It ended early.\ninterrupted · 10 in"),
        (TurnFailedEvent(**BASE, code="timeout", message="Too late."), "timeout: Too late.\nfailed · 10 in"),
    ],
    ids=["completed", "interrupted", "failed"],
)
def test_a_record_calls_its_ending_what_the_notebook_calls_it(
    capfd: pytest.CaptureFixture[str], last: Event, words: str
) -> None:
    TerminalFrontend().show_record([UsageEvent(**BASE, input_tokens=10, output_tokens=2), last])
    shown = capfd.readouterr().out
    assert words in shown and "cancelled" not in shown


def _refused(status: ToolStatus, arguments: str) -> list[Event]:
    asked = WireToolCall(id="c-1", name="write_file", arguments=arguments)
    return [
        MessageCompleted(**BASE, message_id="m-1", text="", tool_calls=(asked,)),
        ToolCompleted(**BASE, call_id="c-1", name="write_file", status=status, result="The reason."),
    ]


@pytest.mark.parametrize("status", ["denied", "duplicate", "invalid", "interrupted"])
def test_a_call_that_never_started_shows_what_it_would_have_done(
    capfd: pytest.CaptureFixture[str], status: ToolStatus
) -> None:
    content = "one\n" * 20 + "\u202e\x1b[31m"
    TerminalFrontend().show_record(_refused(status, json.dumps({"path": "a.py", "content": content, "n": 3})))
    shown = capfd.readouterr().out
    assert [line.strip(" │") for line in shown.split("\n")] == [
        f"✗ write_file · {status}", "path: a.py", "content: one", *["one"] * 5, "… 15 more lines", "n: 3",
        "The reason.", "",
    ]  # fmt: skip
    assert "\x1b" not in shown and "\u202e" not in shown


def test_arguments_without_end_are_bounded(capfd: pytest.CaptureFixture[str]) -> None:
    TerminalFrontend().show_record(_refused("denied", json.dumps({f"n{number}": "x" * 9999 for number in range(999)})))
    shown = capfd.readouterr().out
    assert "991 more arguments" in shown
    assert max(map(len, shown.split("\n"))) <= 120


def test_a_call_that_ran_does_not_show_its_arguments_again(capfd: pytest.CaptureFixture[str]) -> None:
    asked, ended = _refused("error", '{"path": "a.py"}')
    started = ToolStarted(**BASE, call_id="c-1", name="write_file", arguments="{}", summary="a.py (new)")
    TerminalFrontend().show_record([asked, started, ended])
    assert "path:" not in capfd.readouterr().out


def test_deltas_that_were_coalesced_away_are_made_good_by_the_whole_message(capfd: pytest.CaptureFixture[str]) -> None:
    TerminalFrontend().show_record(
        [
            MessageDelta(**BASE, message_id="m-1", delta="The beginning"),
            MessageCompleted(**BASE, message_id="m-1", text="The beginning and the end."),
        ]
    )
    assert capfd.readouterr().out == "The beginning and the end.\n"


def test_warnings_and_errors_go_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    frontend = TerminalFrontend()
    frontend.say("plain [red]text[/red]\x1b[31m")
    frontend.say("careful", level="warning")
    frontend.say("not_found: there is no such session.", level="error")
    captured = capfd.readouterr()
    assert captured.out == "plain [red]text[/red]\n"
    assert captured.err == "careful\nnot_found: there is no such session.\n"


def test_a_failed_question_where_nobody_answers_ends_at_once() -> None:
    with open(os.devnull) as nothing:
        frontend = TerminalFrontend(stdin=nothing)
        assert not frontend.can_answer
        assert asyncio.run(frontend.ask("Name", default="x")) == "x"
        assert asyncio.run(frontend.confirm("Sure?")) is False
        assert asyncio.run(frontend.read_secret("Key")) == ""
