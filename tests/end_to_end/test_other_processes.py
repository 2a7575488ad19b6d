"""A running turn as others meet it: signals, stop, approve, deny, a rival for the session, the model itself."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from mxclaw_nb.app import App
from mxclaw_nb.protocol import SessionBusy, TurnCompleted, UserInput
from mxclaw_nb.providers.rehearsal import ChatRequest, Reply, call, say
from tests.end_to_end.program import (
    Done,
    JsonObject,
    Mxclaw,
    Running,
    assert_events_sound,
    assert_wire_valid,
    mxclaw_with,
    until,
)

IMPATIENT = (sys.executable, str(Path(__file__).with_name("impatient.py")))
WAITING = (sys.executable, str(Path(__file__).with_name("waiting.py")))
SLEEPER = "echo $$ > shell.pid; sleep 300 & echo $! > sleeper.pid; sleep 300"
PROMPT_BARS = {"streaming": 0.5, "awaiting approval": 0.5, "a command runs": 1.0}
ROOM_S = 0.5
"""For a busy machine; the bars themselves are measured elsewhere."""


def play(request: ChatRequest) -> Reply:
    """What the prompt names, for as long as it takes; then, in any later turn, one word."""
    prompt = next(message.text for message in reversed(request.messages) if message.role == "user")
    if request.messages[-1].role == "tool":
        return say(f"It said: {request.messages[-1].text}")
    if prompt == "streaming":
        return say("word " * 2000, pause_s=0.02)
    if prompt == "awaiting approval":
        return call("write_file", path="asked.txt", content="yes\n")
    if prompt == "a command runs":
        return call("run_command", command=SLEEPER)
    return say("Here I am.")


def begin(mxclaw: Mxclaw, moment: str, *words: str, program: Sequence[str] = WAITING) -> Running:
    """A turn that is at that moment."""
    mode = ["--mode", "allow-all"] if moment == "a command runs" else []
    running = mxclaw.start("run", "--json", *mode, *words, moment, program=program)
    at = {"streaming": "message.delta", "awaiting approval": "permission.requested", "a command runs": "tool.started"}
    running.wait_for(at[moment])
    if moment == "a command runs":
        until(lambda: bool(pids(mxclaw)), "the command runs")
    return running


def pids(mxclaw: Mxclaw) -> list[int]:
    files = [mxclaw.workspace / name for name in ("shell.pid", "sleeper.pid")]
    texts = [file.read_text().strip() if file.exists() else "" for file in files]
    return [int(text) for text in texts] if all(texts) else []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def moment_of(event: JsonObject) -> float:
    return datetime.fromisoformat(event["timestamp"]).timestamp()


MOMENTS = pytest.mark.parametrize("moment", list(PROMPT_BARS))


@MOMENTS
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)],
    ids=["int", "term", "hup"],
)
def test_a_signal_ends_the_turn_in_time_with_its_status_and_leaves_nothing(
    number: signal.Signals, status: int, moment: str, tmp_path: Path
) -> None:
    with mxclaw_with(play, tmp_path) as mxclaw:
        running = begin(mxclaw, moment)
        sent = time.time()
        running.process.send_signal(number)
        done = running.wait()
        assert done.status == status
        assert done.last["type"] == "turn.failed" and done.last["code"] == "cancelled"
        assert moment_of(done.last) - sent < PROMPT_BARS[moment] + ROOM_S
        assert "Traceback" not in done.errors
        assert_events_sound(done.events)
        stored = mxclaw.session()
        assert stored.session.state == "idle"
        assert stored.events[-1] == done.last, "it is on disk"
        assert {result.tool_call_id for result in stored.results} == {made.id for made in stored.calls}
        assert not [pid for pid in pids(mxclaw) if alive(pid)], "no child is left"
        again = mxclaw.run("run", "--json", "--session", stored.id, "again")
        assert again.status == 0 and again.last["text"] == "Here I am."
        assert_wire_valid(mxclaw.requests[-1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_a_second_signal_changes_nothing(number: signal.Signals, tmp_path: Path) -> None:
    with mxclaw_with(play, tmp_path) as mxclaw:
        running = begin(mxclaw, "a command runs")
        for _ in range(2):
            running.process.send_signal(number)
        done = running.wait()
        assert done.status in (130, 143)
        assert "Traceback" not in done.errors
        until(lambda: not [pid for pid in pids(mxclaw) if alive(pid)], "no child is left", timeout=3)
        assert mxclaw.session().session.state == "idle"
        assert mxclaw.session().events[-1]["type"] == "turn.failed"


@MOMENTS
def test_stop_from_another_process_ends_the_turn_in_time(moment: str, tmp_path: Path) -> None:
    with mxclaw_with(play, tmp_path) as mxclaw:
        running = begin(mxclaw, moment)
        session = running.events[0]["sessionId"]
        stopped = mxclaw.run("stop", session[:6])
        told = time.time()
        assert stopped.status == 0, stopped.errors
        done = running.wait()
        assert done.status == 130
        assert "stopped (by mxclaw stop)" in done.last["message"]
        assert moment_of(done.last) - told < PROMPT_BARS[moment] + 0.5
        assert not [pid for pid in pids(mxclaw) if alive(pid)]
        assert_events_sound(done.events)
        again = mxclaw.run("stop", session)
        assert again.status == 1 and again.errors.startswith("not_found: ")


def test_an_approval_is_answered_once_from_anywhere(tmp_path: Path) -> None:
    with mxclaw_with(play, tmp_path) as mxclaw:
        running = begin(mxclaw, "awaiting approval")
        request = running.events[-1]["requestId"]
        assert request in mxclaw.run("approvals", "--all").out.decode()
        answered = mxclaw.run("approve", request[:8])
        told = time.time()
        assert answered.status == 0, answered.errors
        resolved = running.wait_for("permission.resolved", requestId=request)
        assert (resolved["answer"], resolved["by"]) == ("allow_once", "cli")
        assert moment_of(resolved) - told < 0.5
        for word in ("approve", "deny"):
            late = mxclaw.run(word, request)
            assert late.status == 1 and late.errors.startswith("already_answered: "), late.errors
        done = running.wait()
        assert done.status == 0
        assert (mxclaw.workspace / "asked.txt").read_text() == "yes\n"
        unknown = mxclaw.run("approve", "a-nosuch")
        assert unknown.status == 1 and unknown.errors.startswith("not_found: ")


def test_a_denial_and_its_word_reach_the_model(tmp_path: Path) -> None:
    with mxclaw_with(play, tmp_path) as mxclaw:
        running = begin(mxclaw, "awaiting approval")
        assert mxclaw.run("deny", running.events[-1]["requestId"], "not", "这个").status == 0
        done = running.wait()
        assert done.status == 0
        assert "not 这个" in mxclaw.requests[-1].messages[-1].text
        assert not (mxclaw.workspace / "asked.txt").exists()


def test_an_approval_of_a_turn_that_is_over_cannot_be_answered(tmp_path: Path) -> None:
    with mxclaw_with(play, tmp_path) as mxclaw:
        running = begin(mxclaw, "awaiting approval")
        request = running.events[-1]["requestId"]
        running.process.kill()
        running.wait()
        assert "No approval" in mxclaw.run("approvals", "--all").out.decode()
        late = mxclaw.run("approve", request)
        assert late.status == 1 and late.errors.startswith("already_answered: "), late.errors
        again = mxclaw.run("run", "--json", "--session", mxclaw.session().id, "again")
        assert again.status == 0
        assert mxclaw.run("approve", request).status == 1
        assert not (mxclaw.workspace / "asked.txt").exists()


# -- one session, two processes


class Gate:
    """A script that holds every reply back until it is opened."""

    def __init__(self) -> None:
        self._opened = threading.Event()

    def open(self) -> None:
        self._opened.set()

    def shut(self) -> None:
        self._opened.clear()

    async def __call__(self, request: ChatRequest) -> Reply:
        assert await asyncio.to_thread(self._opened.wait, 60)
        return say("Through.")


def test_of_two_runs_in_a_session_exactly_one_goes_through(tmp_path: Path) -> None:
    gate = Gate()
    with mxclaw_with(gate, tmp_path) as mxclaw:
        gate.open()
        assert mxclaw.run("run", "first").status == 0
        gate.shut()
        session = mxclaw.session().id
        rivals = [mxclaw.start("run", "--json", "--session", session, f"rival {number}") for number in range(4)]
        until(lambda: sum(rival.process.poll() is not None for rival in rivals) == 3, "all but one are refused")
        [winner] = [rival for rival in rivals if rival.process.poll() is None]
        for rival in rivals:
            if rival is not winner:
                done = rival.wait()
                assert (done.status, done.out) == (4, b"")
                assert done.errors.startswith("lease_held: ")
                for fact in (session, f"pid {winner.pid}", os.uname().nodename, " s)"):
                    assert fact in done.errors
        gate.open()
        done = winner.wait()
        assert done.status == 0
        assert [message.role for message in mxclaw.session().messages] == ["system", *["user", "assistant"] * 2]
        assert len(mxclaw.requests) == 2


def test_a_process_that_runs_the_session_itself_says_so_and_refuses_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    with mxclaw_with(gate, tmp_path) as mxclaw:
        monkeypatch.setenv("MX_CLAW_API_KEY", mxclaw.server.token)

        async def scenario() -> None:
            app = App.open(mxclaw.home)
            try:
                session = await app.store.create_session(workspace=str(mxclaw.workspace))
                async with app.core.submit_turn(session.id, UserInput("mine")) as stream:
                    await stream.start()
                    with pytest.raises(SessionBusy):
                        await app.core.submit_turn(session.id, UserInput("again")).start()
                    refused = await asyncio.to_thread(mxclaw.run, "run", "--session", session.id, "x")
                    assert refused.status == 4 and f"pid {os.getpid()}" in refused.errors
                    refused = await asyncio.to_thread(mxclaw.run, "session", "delete", "--yes", session.id)
                    assert refused.status == 1 and refused.errors.startswith("lease_held: ")
                    gate.open()
                    events = [event async for event in stream]
                assert isinstance(events[-1], TurnCompleted)
                assert not app.core.running
                events = [event async for event in app.core.submit_turn(session.id, UserInput("at once"))]
                assert isinstance(events[-1], TurnCompleted)
            finally:
                await app.aclose()

        asyncio.run(scenario())


def test_a_stopped_process_keeps_its_session_until_its_lease_ends(tmp_path: Path) -> None:
    """Frozen is not dead: within the lease's life nobody takes over, and the thawed turn goes on."""
    with mxclaw_with(play, tmp_path) as mxclaw:
        running = begin(mxclaw, "streaming")
        session = running.events[0]["sessionId"]
        running.process.send_signal(signal.SIGSTOP)
        try:
            refused = mxclaw.run("run", "--session", session, "x")
            assert refused.status == 4 and refused.errors.startswith("lease_held: ")
        finally:
            running.process.send_signal(signal.SIGCONT)
        running.wait_for("message.delta")
        running.process.send_signal(signal.SIGINT)
        done = running.wait()
        assert done.status == 130
        assert_events_sound(done.events)


def test_a_frozen_process_that_lost_its_session_writes_nothing_more(tmp_path: Path) -> None:
    with mxclaw_with(play, tmp_path) as mxclaw:
        frozen = begin(mxclaw, "streaming", program=IMPATIENT)
        session = frozen.events[0]["sessionId"]
        frozen.process.send_signal(signal.SIGSTOP)
        try:
            taken = Done(4, b"", b"")
            deadline = time.monotonic() + 20
            while taken.status == 4 and time.monotonic() < deadline:
                taken = mxclaw.run("run", "--json", "--session", session, "mine now")
            assert taken.status == 0, taken.errors
            assert_wire_valid(mxclaw.requests[-1])
            before = mxclaw.session()
        finally:
            frozen.process.send_signal(signal.SIGCONT)
        done = frozen.wait()
        assert done.status == 1
        assert done.last["type"] == "turn.failed" and done.last["code"] == "lease_lost"
        assert done.errors.startswith("lease_lost: ")
        assert mxclaw.session() == before, "not a row, not an event, not a state"
        assert before.session.state == "idle"


def test_a_killed_process_takes_its_command_with_it(tmp_path: Path) -> None:
    with mxclaw_with(play, tmp_path) as mxclaw:
        running = begin(mxclaw, "a command runs")
        running.process.kill()
        killed = time.monotonic()
        running.wait()
        until(lambda: not [pid for pid in pids(mxclaw) if alive(pid)], "no child is left", timeout=5)
        assert time.monotonic() - killed < 1.0 + ROOM_S
        again = mxclaw.run("run", "--json", "--session", mxclaw.session().id, "again")
        assert again.status == 0
        assert_wire_valid(mxclaw.requests[-1])
        [result] = [message.text for message in mxclaw.requests[-1].messages if message.role == "tool"]
        assert "interrupted before a result was recorded" in result and "outcome is unknown" in result


# -- the model itself


SAYS_YES = "from mxclaw_nb.__main__ import main; main(['approve', '{id}'])"
ASKS_CORE = (
    "import asyncio; from mxclaw_nb.app import App; from mxclaw_nb.protocol import Answer; "
    "app = App.open(); asyncio.run(app.core.answer('{id}', Answer('allow_once'), 'user'))"
)
TRICKS = [
    "mxclaw approve {id}",
    "{bin}/mxclaw approve {id}",
    "nohup mxclaw approve {id}",
    "setsid -w mxclaw approve {id}",
    "bash -c 'mxclaw approve {id}'",
    "x=approve; m=mxclaw; $m $x {id}",
    "python -m mxclaw_nb approve {id}",
    "{python} -Im mxclaw_nb approve {id}",
    f'{{python}} -c "{SAYS_YES}"',
    f'env -i HOME=$HOME PYTHONPATH=$PYTHONPATH {{python}} -c "{SAYS_YES}"',
    f'setsid -w nohup env -i HOME=$HOME PYTHONPATH=$PYTHONPATH {{python}} -c "{SAYS_YES}"',
    f'(unset MX_CLAW_AGENT_COMMAND; {{python}} -c "{SAYS_YES}")',
    f'{{python}} -c "{ASKS_CORE}"',
    "cat > yes.py <<'E'\n" + SAYS_YES + "\nE\n{python} yes.py",
    "cp $(command -v mxclaw) ./renamed && ./renamed approve {id}",
    "ln -s {bin}/mxclaw other && exec -a innocent ./other approve {id}",
    '{python} -c "import os; os.fork() or (os.setsid(), os.fork() or os.execv('
    "'{bin}/mxclaw', ['mx', 'approve', '{id}']))\" 2> said; until [ -s said ]; do sleep 0.05; done; cat said",
    "mxclaw deny {id}",
    "mxclaw stop {session}",
    "mxclaw set default_mode allow-all",
    "python -c \"from mxclaw_nb.__main__ import main; main(['session', 'delete', '--yes', '{session}'])\"",
    "python -c \"from mxclaw_nb.__main__ import main; main(['run', '--mode', 'allow-all', 'x'])\"",
]


@pytest.mark.timeout(240)
def test_a_model_cannot_answer_for_the_person(tmp_path: Path) -> None:
    """In allow-all mode, with the home where every user has it: what it may run, it may not use for this."""
    commands: list[str] = []

    def script(request: ChatRequest) -> Reply:
        prompt = next(message.text for message in request.messages if message.role == "user")
        if prompt != "trick":
            return play(request)
        done = sum(message.role == "tool" for message in request.messages)
        return call("run_command", command=commands[done]) if done < len(commands) else say("I tried it all.")

    with mxclaw_with(script, tmp_path) as mxclaw:
        home = tmp_path / "user" / ".mx-claw"
        mxclaw.home.rename(home)
        mxclaw.home = home
        del mxclaw.environment["MX_CLAW_HOME"]
        asking = begin(mxclaw, "awaiting approval")
        facts = {
            "id": asking.events[-1]["requestId"], "session": asking.events[-1]["sessionId"],
            "python": sys.executable, "bin": str(Path(sys.executable).parent),
        }  # fmt: skip
        commands.extend(trick.format(**facts) for trick in TRICKS)
        rounds = str(len(TRICKS) + 2)
        done = mxclaw.run("run", "--json", "--mode", "allow-all", "--max-iterations", rounds, "trick", timeout=200)
        assert done.status == 0, done.errors
        results = done.of("tool.completed")
        assert len(results) == len(TRICKS)
        assert asking.process.poll() is None
        assert facts["id"] in mxclaw.run("approvals", "--all").out.decode(), "it still waits"
        assert "default_mode" not in (home / "settings.json").read_text() if (home / "settings.json").exists() else True
        for trick, result in zip(TRICKS, results, strict=True):
            words = result["result"]
            assert result["status"] == "denied" or "that the agent runs cannot" in words, (trick, words)
        assert mxclaw.run("deny", facts["id"]).status == 0
        assert asking.wait().status == 0
        assert not (mxclaw.workspace / "asked.txt").exists()
