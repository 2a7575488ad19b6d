"""Turns in a real kernel without a page: what a front end sends and receives, message by message."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

from mxclaw_nb.providers.rehearsal import call, say, sequence
from tests.end_to_end.agents import MODELS, Agent, ScriptedAgent, scripted
from tests.end_to_end.harness import wait_until

pytestmark = pytest.mark.timeout(180)
__all__ = ["scripted"]

WAIT_S = 30.0
Message = dict[str, Any]
TURN = "%%agent\nWrite the file."


class Kernel:
    """A kernel and the client of a person who watches it."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self.client = client
        self.seen: list[Message] = []

    def start(self, code: str, *, stdin: bool = True) -> str:
        """Send a cell without waiting; returns its message id."""
        return str(self.client.execute(code, allow_stdin=stdin))

    def next(self) -> Message:
        """The next message that every front end gets."""
        message: Message = self.client.get_iopub_msg(timeout=WAIT_S)
        self.seen.append(message)
        return message

    def until(self, found: Callable[[Message], bool]) -> Message:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            message = self.next()
            if found(message):
                return message
        raise AssertionError("the message did not come")

    def until_streaming(self, cell: str) -> None:
        """Until the reply of a turn can be seen."""
        self.until(lambda m: "word word" in str(m["content"]) and m["parent_header"].get("msg_id") == cell)

    def finish(self, cell: str) -> list[Message]:
        """Wait for the end of a cell; returns its own messages."""
        self.until(
            lambda m: (
                m["msg_type"] == "status"
                and m["content"]["execution_state"] == "idle"
                and m["parent_header"].get("msg_id") == cell
            )
        )
        return [message for message in self.seen if message["parent_header"].get("msg_id") == cell]

    def run(self, code: str, *, stdin: bool = False) -> list[Message]:
        return self.finish(self.start(code, stdin=stdin))

    def printed(self, code: str) -> str:
        """What a cell prints; fails if it raises."""
        messages = self.run(code)
        for message in messages:
            assert message["msg_type"] != "error", message["content"]
        return "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")

    def answer_input(self, text: str) -> str:
        """Answer the next input request; returns its prompt."""
        request = self.client.get_stdin_msg(timeout=WAIT_S)
        self.client.input(text)
        return str(request["content"]["prompt"])

    def button(self, name: str) -> str:
        """The model id of the newest button with this name, once it was opened."""

        def opened(message: Message) -> bool:
            state = message["content"].get("data", {}).get("state", {}) if message["msg_type"] == "comm_open" else {}
            return bool(state.get("description") == name)

        known = [message for message in self.seen if opened(message)]
        message = known[-1] if known else self.until(opened)
        return str(message["content"]["comm_id"])

    def click(self, name: str, *, subshell: str | None = None) -> None:
        """What a page sends when a button is clicked; VS Code uses no subshell."""
        content = {"comm_id": self.button(name), "data": {"method": "custom", "content": {"event": "click"}}}
        message = self.client.session.msg("comm_msg", content)
        if subshell:
            message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)

    def new_subshell(self) -> str:
        message = self.client.session.msg("create_subshell_request", {})
        self.client.control_channel.send(message)
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            reply = self.client.get_control_msg(timeout=WAIT_S)
            if reply["msg_type"] == "create_subshell_reply":
                return str(reply["content"]["subshell_id"])
        raise AssertionError("no subshell")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(workspace))
    try:
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=False)
        with contextlib.suppress(RuntimeError):
            manager.cleanup_resources()


def write_then(reply: str = "Written.") -> Any:
    return sequence(call("write_file", path="made.txt", content="one\n"), say(reply))


def errors(messages: list[Message]) -> list[Message]:
    return [message["content"] for message in messages if message["msg_type"] == "error"]


def prepared(kernel: Kernel, agent: Agent) -> Kernel:
    assert errors(kernel.run(agent.setup)) == []
    return kernel


def test_loading_takes_less_than_10_ms_and_unloading_leaves_nothing(kernel: Kernel, capsys: Any) -> None:
    look = (
        "import threading, time, sys; ip = get_ipython()\n"
        "def look(): return (sorted(ip.magics_manager.magics['line']), sorted(ip.magics_manager.magics['cell']),\n"
        "    [type(t).__name__ for t in ip.input_transformers_cleanup], len(ip.Completer.custom_matchers),\n"
        "    sorted(t.name for t in threading.enumerate()))\n"
        "before = look()"
    )
    kernel.run(look)
    times = []
    for _ in range(3):
        script = (
            "began = time.perf_counter(); ip.run_line_magic('load_ext', 'mxclaw_nb')\n"
            "print((time.perf_counter() - began) * 1000)"
        )
        times.append(float(kernel.printed(script)))
        assert kernel.printed("print(look() == before)") == "False\n"
        kernel.run("ip.run_line_magic('unload_ext', 'mxclaw_nb')")
        assert kernel.printed("print(look() == before)") == "True\n"
        kernel.run("for name in [n for n in sys.modules if n.startswith('mxclaw_nb')]: del sys.modules[name]")
    with capsys.disabled():
        print(f"\n[measured] %load_ext {', '.join(f'{took:.1f}' for took in times)} ms")
    assert min(times) < 10


def test_unloading_after_a_turn_leaves_no_thread(kernel: Kernel, scripted: ScriptedAgent) -> None:
    agent = scripted(sequence(say("Hello.")))
    threads = "import threading; print(sorted(t.name for t in threading.enumerate()))"
    before = kernel.printed(threads)
    prepared(kernel, agent)
    assert errors(kernel.run(TURN)) == []
    kernel.run("%unload_ext mxclaw_nb")
    assert kernel.printed(threads) == before
    assert errors(kernel.run("%load_ext mxclaw_nb\n%mxclaw")) == []


@pytest.mark.parametrize("road", ["the shell channel", "a subshell"])
def test_a_click_is_heard_while_the_cell_awaits(
    kernel: Kernel, scripted: ScriptedAgent, tmp_path: Path, road: str
) -> None:
    """The shell channel is VS Code's road; JupyterLab takes a subshell, which is another thread in the kernel."""
    agent = scripted(write_then())
    prepared(kernel, agent)
    subshell = kernel.new_subshell() if road == "a subshell" else None
    cell = kernel.start(TURN)
    kernel.click("Allow once", subshell=subshell)
    messages = kernel.finish(cell)
    assert errors(messages) == []
    assert (tmp_path / "workspace" / "made.txt").read_text() == "one\n"
    assert kernel.printed(f"print({MODELS})") == "0\n"
    resolved = next(event for event in agent.events() if event["type"] == "permission.resolved")
    assert (resolved["answer"], resolved["by"]) == ("allow_once", "user")


def test_a_front_end_without_widgets_is_asked_by_input(kernel: Kernel, scripted: ScriptedAgent, tmp_path: Path) -> None:
    agent = scripted(write_then())
    prepared(kernel, agent)
    cell = kernel.start(TURN)
    prompt = kernel.answer_input("y")
    assert "[y] once" in prompt
    assert errors(kernel.finish(cell)) == []
    assert (tmp_path / "workspace" / "made.txt").exists()


def test_an_interrupt_ends_a_question_by_input(kernel: Kernel, scripted: ScriptedAgent) -> None:
    agent = scripted(write_then())
    prepared(kernel, agent)
    cell = kernel.start(TURN)
    kernel.client.get_stdin_msg(timeout=WAIT_S)
    kernel.manager.interrupt_kernel()
    assert [error["ename"] for error in errors(kernel.finish(cell))] == ["TurnInterrupted"]
    assert kernel.printed("print('fine')") == "fine\n"


@pytest.mark.parametrize(
    "cell",
    [
        "%autoawait off",
        "get_ipython().run_cell_magic('agent', '--to reply', 'Write {the} $file.')",
        "def work():\n    get_ipython().run_cell_magic('agent', '--to reply', 'Write {the} $file.')\nwork()",
    ],
    ids=["autoawait off", "run_cell_magic", "a plain function"],
)
def test_callers_that_cannot_await_get_their_turn_and_are_asked_by_input(
    kernel: Kernel, scripted: ScriptedAgent, tmp_path: Path, cell: str
) -> None:
    agent = scripted(write_then())
    prepared(kernel, agent)
    if cell == "%autoawait off":
        kernel.run(cell)
        cell = "%%agent --to reply\nWrite {the} $file."
    running = kernel.start(cell)
    kernel.answer_input("y")
    assert errors(kernel.finish(running)) == []
    assert (tmp_path / "workspace" / "made.txt").exists()
    assert kernel.printed("print(reply)") == "Written.\n"
    assert agent.server.requests[0].messages[-1].text == "Write {the} $file."
    assert "mxclaw-bridge" not in kernel.printed("import threading; print([t.name for t in threading.enumerate()])")


def test_an_answer_from_a_terminal_ends_the_input_of_a_caller_that_cannot_await(
    kernel: Kernel, scripted: ScriptedAgent, tmp_path: Path
) -> None:
    agent = scripted(write_then())
    prepared(kernel, agent)
    running = kernel.start("get_ipython().run_cell_magic('agent', '', 'Write.')")
    kernel.client.get_stdin_msg(timeout=WAIT_S)
    request = next(event["requestId"] for event in agent.events() if event["type"] == "permission.requested")
    agent.mxclaw("approve", request)
    assert errors(kernel.finish(running)) == []
    assert (tmp_path / "workspace" / "made.txt").exists()
    assert kernel.printed("print('fine')") == "fine\n"


def test_a_second_interrupt_and_one_after_the_end_do_no_harm(kernel: Kernel, scripted: ScriptedAgent) -> None:
    agent = scripted(lambda _request: say("word " * 5000, pause_s=0.02))
    prepared(kernel, agent)
    for _ in range(3):
        cell = kernel.start(TURN)
        kernel.until_streaming(cell)
        kernel.manager.interrupt_kernel()
        kernel.manager.interrupt_kernel()
        assert [error["ename"] for error in errors(kernel.finish(cell))] == ["TurnInterrupted"]
    sleeping = kernel.start("import time; print('asleep', flush=True); time.sleep(60)")
    kernel.until(lambda m: m["msg_type"] == "stream" and "asleep" in m["content"]["text"])
    kernel.manager.interrupt_kernel()
    assert [error["ename"] for error in errors(kernel.finish(sleeping))] == ["KeyboardInterrupt"]


def test_a_cell_that_was_queued_behind_the_turn_runs_after_it(kernel: Kernel, scripted: ScriptedAgent) -> None:
    agent = scripted(sequence(say("word " * 20, pause_s=0.01)))
    prepared(kernel, agent)
    kernel.start("%%agent --to reply\nTalk.", stdin=False)
    assert kernel.printed("print(len(reply.split()))") == "20\n"


def test_what_refuses_a_turn_is_one_line(kernel: Kernel, scripted: ScriptedAgent) -> None:
    agent = scripted(sequence())
    prepared(kernel, agent)
    cells = {
        "%%agent\n": "nothing below %%agent",
        "%%agent --to class\nx": "--to",
        "%%agent --to a.b\nx": "--to",
        "%%agent --nonsense\nx": "--nonsense",
        "%%agent --session s-none --new\nx": "exclude",
        "%%agent --session s-none\nx": "s-none",
        "%mxclaw nonsense": "nonsense",
        "%mxclaw session use s-none": "s-none",
    }
    for cell, words in cells.items():
        (error,) = errors(kernel.run(cell))
        assert len(error["traceback"]) == 1, error["traceback"]
        assert words in error["traceback"][0], error["traceback"]


def test_help_is_there(kernel: Kernel, scripted: ScriptedAgent) -> None:
    prepared(kernel, scripted(sequence()))
    assert "--max-iterations" in kernel.printed("%%agent --help\n")
    assert "approve" in kernel.printed("%mxclaw --help")
    assert errors(kernel.run("%%agent?")) == []


def completions(kernel: Kernel, code: str) -> list[str]:
    kernel.client.complete(code, len(code))
    content = kernel.client.get_shell_msg(timeout=WAIT_S)["content"]
    while "matches" not in content:
        content = kernel.client.get_shell_msg(timeout=WAIT_S)["content"]
    start = content["cursor_start"]
    return [code[:start] + match for match in content["matches"]]


def test_tab_completes_commands_sessions_and_models(kernel: Kernel, scripted: ScriptedAgent) -> None:
    agent = scripted(lambda _request: say("Hello."))
    prepared(kernel, agent)
    kernel.run(TURN)
    assert completions(kernel, "%mxclaw appr") == ["%mxclaw approvals", "%mxclaw approve"]
    assert completions(kernel, "%mxclaw session u") == ["%mxclaw session use"]
    (session,) = {event["sessionId"] for event in agent.events()}
    assert completions(kernel, "%mxclaw session use ") == [f"%mxclaw session use {session}"]
    assert completions(kernel, "%%agent --model scr") == ["%%agent --model scripted/scripted"]
    assert completions(kernel, "%%agent --mode accept-") == ["%%agent --mode accept-edits"]
    assert "%mxclaw" in [match.strip() for match in completions(kernel, "%mxcl")]


def test_nothing_of_the_users_is_touched_but_what_to_names(kernel: Kernel, scripted: ScriptedAgent) -> None:
    agent = scripted(sequence(say("One."), say("Two.")))
    prepared(kernel, agent)
    names = "print(sorted(name for name in globals() if not name.startswith('_')))"
    before = kernel.printed(names)
    kernel.run(TURN)
    assert kernel.printed(names) == before
    kernel.run("%%agent --to reply\nAgain.")
    assert kernel.printed("print(reply)") == "Two.\n"


def test_a_turn_in_the_users_own_task_ends_with_its_loop_intact(kernel: Kernel, scripted: ScriptedAgent) -> None:
    agent = scripted(sequence(say("Hello.")))
    prepared(kernel, agent)
    code = (
        "import asyncio\nfrom mxclaw_nb.notebook import agent_cell\n"
        "task = asyncio.create_task(agent_cell('', 'Talk.'))\nawait task"
    )
    assert errors(kernel.run(code)) == []
    assert kernel.printed("print('fine')") == "fine\n"


def test_a_killed_kernels_turn_does_not_stay_running(kernel: Kernel, scripted: ScriptedAgent) -> None:
    agent = scripted(sequence(say("word " * 5000, pause_s=0.02), say("Back again.")))
    prepared(kernel, agent)
    cell = kernel.start(TURN)
    kernel.until_streaming(cell)
    kernel.manager.restart_kernel(now=True)
    kernel.client.wait_for_ready(timeout=60)
    with contextlib.suppress(queue.Empty):
        while True:
            kernel.client.get_iopub_msg(timeout=0.2)
    prepared(kernel, agent)
    session = wait_until(lambda: agent.events()[0]["sessionId"], what="the session is in the store")
    messages = kernel.run(f"%%agent --session {session} --to reply\nGo on.")
    assert errors(messages) == []
    assert kernel.printed("print(reply)") == "Back again.\n"
