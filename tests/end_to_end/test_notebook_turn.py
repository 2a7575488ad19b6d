"""A turn in a real page: approving, denying, interrupting, and what is left of it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from mxclaw_nb.providers.rehearsal import HttpError, call, calls, say, sequence
from tests.end_to_end.agents import (
    MODELS,
    ScriptedAgent,
    milliseconds,
    report,
    scripted,
    wait_for_question,
)
from tests.end_to_end.harness import FrontendName, JupyterServer, NotebookPage, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

OpenNotebook = Callable[..., NotebookPage]
TURN = "%%agent\nWrite the file."
__all__ = ["scripted"]


def write_then(reply: str = "Written.") -> object:
    return sequence(call("write_file", path="made.txt", content="one\n").saying("I will write it."), say(reply))


def test_a_click_allows_and_the_turn_goes_on(
    open_notebook: OpenNotebook,
    scripted: ScriptedAgent,
    server: JupyterServer,
    capsys: pytest.CaptureFixture[str],
    frontend: FrontendName,
) -> None:
    agent = scripted(write_then())  # type: ignore[arg-type]
    page = open_notebook([agent.setup, TURN])
    (server.root / "made.txt").unlink(missing_ok=True)
    page.execute(0)
    before = len(str(page.save()))
    run = page.run_cell(1)
    wait_for_question(page, "write_file")
    assert "+one" in page.output_text(1)
    page.evaluate("() => document.addEventListener('click', () => { window.__clicked = Date.now() }, true)")
    page.click("Allow once")
    run.wait()
    assert (server.root / "made.txt").read_text() == "one\n"
    page.wait_for_text("Written.")
    assert "allowed once" in page.output_text(1)
    events = agent.events()
    resolved = next(event for event in events if event["type"] == "permission.resolved")
    assert (resolved["answer"], resolved["by"]) == ("allow_once", "user")
    started = next(event for event in events if event["type"] == "tool.started")
    resumed = milliseconds(started["timestamp"]) - float(page.evaluate("() => window.__clicked"))
    models = page.kernel_value(MODELS)
    growth = len(str(page.save())) - before
    report(capsys, f"{frontend}: click to resumed tool {resumed:.0f} ms; models left {models}; growth {growth} bytes")
    assert resumed < 200
    assert models == "0"
    assert growth <= 20_000
    assert page.kernel_value("__import__('ipywidgets').Widget.get_manager_state()['state']") == "{}"
    assert page.outputs(1)[0]["output_type"] == "display_data"
    assert set(page.outputs(1)[0]["data"]) == {"text/html", "text/markdown", "text/plain"}


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_the_keyboard_allows(
    open_notebook: OpenNotebook, scripted: ScriptedAgent, server: JupyterServer, key: str
) -> None:
    agent = scripted(write_then())  # type: ignore[arg-type]
    page = open_notebook([agent.setup, TURN])
    (server.root / "made.txt").unlink(missing_ok=True)
    page.execute(0)
    run = page.run_cell(1)
    wait_for_question(page, "write_file")
    page.focus("Stop")
    for _ in range(2):  # from Stop over the diff to the first button
        page.press("Tab")
    assert page.evaluate("() => document.activeElement.innerText.trim()") == "Allow once"
    page.press(key)
    run.wait()
    assert (server.root / "made.txt").exists()


def test_a_click_denies_and_the_model_is_told(
    open_notebook: OpenNotebook, scripted: ScriptedAgent, server: JupyterServer
) -> None:
    agent = scripted(write_then("Then I will not."))  # type: ignore[arg-type]
    page = open_notebook([agent.setup, TURN])
    (server.root / "made.txt").unlink(missing_ok=True)
    page.execute(0)
    run = page.run_cell(1)
    wait_for_question(page, "write_file")
    page.click("Deny")
    run.wait()
    assert not (server.root / "made.txt").exists()
    assert "denied" in page.output_text(1)
    assert agent.server.requests[-1].messages[-1].role == "tool"


@pytest.mark.parametrize("key", ["Tab", "Enter"])
def test_the_keyboard_denies_with_a_word_to_the_model(
    open_notebook: OpenNotebook, scripted: ScriptedAgent, server: JupyterServer, key: str
) -> None:
    """By the button behind the field, or by Enter in it."""
    agent = scripted(write_then("I see."))  # type: ignore[arg-type]
    page = open_notebook([agent.setup, TURN])
    (server.root / "made.txt").unlink(missing_ok=True)
    page.execute(0)
    run = page.run_cell(1)
    wait_for_question(page, "write_file")
    page.focus("Deny")
    page.press("Tab")
    page.type("use another name, 换个名字")
    if key == "Tab":
        page.press("Tab")
    page.press("Enter")
    run.wait()
    assert not (server.root / "made.txt").exists()
    assert "use another name, 换个名字" in agent.server.requests[-1].messages[-1].text


def test_allowing_for_the_session_asks_once(
    open_notebook: OpenNotebook, scripted: ScriptedAgent, server: JupyterServer
) -> None:
    agent = scripted(
        sequence(
            call("write_file", path="made.txt", content="one\n"),
            call("write_file", path="made.txt", content="two\n"),
            say("Twice."),
        )
    )
    page = open_notebook([agent.setup, TURN])
    page.execute(0)
    run = page.run_cell(1)
    wait_for_question(page, "write_file")
    page.click("Allow for this session")
    run.wait()
    assert (server.root / "made.txt").read_text() == "two\n"


def test_a_terminal_can_answer_too(open_notebook: OpenNotebook, scripted: ScriptedAgent) -> None:
    agent = scripted(write_then())  # type: ignore[arg-type]
    page = open_notebook([agent.setup, TURN])
    page.execute(0)
    run = page.run_cell(1)
    wait_for_question(page, "write_file")
    request = wait_until(
        lambda: next((e["requestId"] for e in agent.events() if e["type"] == "permission.requested"), ""),
        what="the request is in the store",
    )
    agent.mxclaw("deny", request)
    run.wait()
    assert "from a terminal" in page.output_text(1)


def test_stop_ends_the_turn_and_run_all(open_notebook: OpenNotebook, scripted: ScriptedAgent) -> None:
    agent = scripted(sequence(say("word " * 2000, pause_s=0.02)))
    page = open_notebook([agent.setup, TURN, "print('never')"])
    page.execute(0)
    run = page.run_all()
    page.wait_for_text("word word", cell=1)
    page.click("Stop")
    run.wait()
    assert page.outputs(1)[-1]["ename"] == "TurnFailed"
    assert len(page.outputs(1)[-1]["traceback"]) == 1
    assert "never" not in page.output_text(2)


SLOW = "sleep 60"


WAYS = {
    "streaming": say("word " * 5000, pause_s=0.02),
    "awaiting approval": call("write_file", path="made.txt", content="one\n"),
    "running a command": call("run_command", command="echo begun; sleep 60"),
}


@pytest.mark.parametrize("situation", WAYS)
def test_an_interrupt_ends_it_at_once(
    open_notebook: OpenNotebook,
    scripted: ScriptedAgent,
    situation: str,
    capsys: pytest.CaptureFixture[str],
    frontend: FrontendName,
) -> None:
    """The best of three, since a busy machine only adds to it."""
    bar = 1.0 if situation == "running a command" else 0.5
    agent = scripted(lambda _request: WAYS[situation])
    page = open_notebook([agent.setup, TURN, "print('the kernel is fine')"])
    page.execute(0)
    times: list[float] = []
    while len(times) < 3 and (not times or min(times) >= bar):
        run = page.run_cell(1)
        if situation == "streaming":
            page.wait_for_text("word word", cell=1)
        else:
            wait_for_question(page, "write_file" if situation == "awaiting approval" else "run_command")
        if situation == "running a command":
            page.click("Allow once")
            page.wait_for_text("begun", cell=1)
        moment = page.interrupt()
        run.wait(10)
        times.append(time.monotonic() - moment)
    shown = ", ".join(f"{took * 1000:.0f}" for took in times)
    report(capsys, f"{frontend}: interrupt while {situation}: {shown} ms to the cell's end")
    assert min(times) < bar
    error = page.outputs(1)[-1]
    assert error["ename"] == "TurnInterrupted"
    assert len(error["traceback"]) == 1 and "interrupted" in error["traceback"][0]
    assert page.output_text(1).count("ended early") == 1
    assert "cancelled" not in page.output_text(1)
    page.execute(2)
    assert "the kernel is fine" in page.output_text(2)
    assert page.kernel_value(MODELS) == "0"
    last = agent.events()[-1]
    assert (last["type"], last["code"]) == ("turn.failed", "cancelled")


def test_cells_after_the_turn_run_after_it_in_order(open_notebook: OpenNotebook, scripted: ScriptedAgent) -> None:
    agent = scripted(write_then("The reply."))  # type: ignore[arg-type]
    page = open_notebook(
        [
            agent.setup,
            "order = []",
            "%%agent --to reply\nWrite the file.",
            "order.append(reply)",
            "order.append(2); order",
        ]
    )
    run = page.run_all()
    wait_for_question(page, "write_file")
    assert page.output_text(4).strip() == ""
    page.click("Allow once")
    run.wait()
    assert page.outputs(4)[0]["data"]["text/plain"] == "['The reply.', 2]"
    assert [page.execution_count(index) for index in range(5)] == [1, 2, 3, 4, 5]


def test_a_failed_turn_stops_run_all_with_one_line(open_notebook: OpenNotebook, scripted: ScriptedAgent) -> None:
    agent = scripted(lambda request: call("list_dir", path=f"./{'./' * request.number}"))
    page = open_notebook([agent.setup, "%%agent --max-iterations 2\nGo on for ever.", "print('never')"])
    page.run_all().wait()
    error = page.outputs(1)[-1]
    assert error["ename"] == "TurnFailed"
    assert len(error["traceback"]) == 1 and "max_iterations" in error["traceback"][0]
    assert page.output_text(2).strip() == ""


def test_a_retry_is_seen_while_it_waits_and_a_failure_is_said_once(
    open_notebook: OpenNotebook, scripted: ScriptedAgent
) -> None:
    agent = scripted(
        lambda request: (
            HttpError(500, "overloaded", headers={"retry-after": "2"}) if request.number == 0 else HttpError(400, "no")
        )
    )
    page = open_notebook([agent.setup, TURN])
    page.execute(0)
    run = page.run_cell(1)
    page.wait_for_text("trying again in", cell=1)
    assert not run.done and "Stop" in page.visible_buttons()
    run.wait()
    shown = page.output_text(1)
    assert shown.count("(status 400)") == 1
    assert page.outputs(1)[-1]["ename"] == "TurnFailed" and "(status 400)" in page.outputs(1)[-1]["evalue"]


def test_the_prompt_arrives_byte_for_byte(open_notebook: OpenNotebook, scripted: ScriptedAgent) -> None:
    prompt = ">>> {x} $HOME ${y} 'a' \"b\" \\n \\t\n\n\t!ls\n?help %time  \n价格 \u202e end "
    agent = scripted(sequence(say("Read.")))
    page = open_notebook([agent.setup, f"\n%%agent\n{prompt}", "[name for name in dir() if not name.startswith('_')]"])
    page.run_all().wait()
    assert agent.server.requests[0].messages[-1].text == prompt
    assert page.outputs(2)[0]["data"]["text/plain"] == "['In', 'Out', 'exit', 'get_ipython', 'open', 'os', 'quit']"


def test_a_long_reply_does_not_make_the_page_jump(open_notebook: OpenNotebook, scripted: ScriptedAgent) -> None:
    text = "\n\n".join(f"Paragraph {number} of a long reply." for number in range(300))
    agent = scripted(sequence(call("write_file", path="made.txt", content="one").saying(text), say(text)))
    page = open_notebook([agent.setup, TURN, "print('below')"])
    page.execute(0)
    height = """() => document.querySelectorAll('.jp-CodeCell')[1].querySelector('.jp-Cell-outputWrapper')
                             .getBoundingClientRect().height"""
    run = page.run_cell(1)
    wait_for_question(page, "write_file")
    page.wait_for_text("Paragraph 299 ", cell=1)
    page.wait_for_script(
        """() => { const b = document.querySelector('.mxc-stream').getBoundingClientRect();
                   const t = document.querySelector('.mxc-stream .mxc-text').lastElementChild.getBoundingClientRect();
                   return t.top >= b.top && t.bottom <= b.bottom + 2 }""",
        timeout_s=5,
    )
    assert float(page.evaluate(height)) < 650
    page.evaluate("() => { window.__asked = document.querySelector('.mxc-asks').getBoundingClientRect() }")
    assert page.evaluate("() => window.__asked.bottom <= window.innerHeight"), "the question is in sight"
    page.click("Deny")
    run.wait()
    assert float(page.evaluate(height)) < 650


def test_parallel_reads_are_shown_as_cards(open_notebook: OpenNotebook, scripted: ScriptedAgent) -> None:
    agent = scripted(
        sequence(calls(call("list_dir", path="."), call("read_file", path="missing.txt"), text="Both."), say("Seen."))
    )
    page = open_notebook([agent.setup, TURN])
    page.run_all().wait()
    cards = page.evaluate("() => Array.from(document.querySelectorAll('details.mxc-call')).map(d => d.innerText)")
    assert len(cards) == 2
    assert "list_dir" in cards[0] and "failed" in cards[1]
