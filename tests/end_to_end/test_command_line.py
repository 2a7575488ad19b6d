"""``mxclaw run`` with every odd word, folder, stream and variable that it may be started with."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mxclaw_nb.providers.rehearsal import ChatRequest, Reply, say
from tests.end_to_end.program import PROGRAM, Mxclaw, assert_wire_valid, mxclaw_with, until


def echo(request: ChatRequest) -> Reply:
    return say(f"You said {len(request.messages[-1].text)} characters.")


@pytest.fixture
def mxclaw(tmp_path: Path) -> Iterator[Mxclaw]:
    with mxclaw_with(echo, tmp_path) as made:
        yield made


# -- the folder to work in


def test_folders_that_serve(mxclaw: Mxclaw, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(mxclaw.workspace)
    (mxclaw.workspace / "子目录 1").mkdir()
    for given, meant in {
        "子目录 1": mxclaw.workspace / "子目录 1",
        "..": tmp_path,
        str(tmp_path / "link"): mxclaw.workspace,
        "/": Path("/"),
        "~": tmp_path / "user",
    }.items():
        done = mxclaw.run("run", "--json", "--workspace", given, "hello")
        assert done.status == 0, (given, done.errors)
        assert f"Workspace: {meant}\n" in mxclaw.requests[-1].messages[0].text


def test_folders_that_do_not_serve_are_refused_and_leave_no_session(mxclaw: Mxclaw, tmp_path: Path) -> None:
    (mxclaw.workspace / "file").write_text("")
    (mxclaw.workspace / "loop").symlink_to("loop")
    (mxclaw.workspace / "dangling").symlink_to("nothing")
    given = [
        "file", "missing", "loop", "dangling", "", "a" * 300, "~nosuchuser/x", "/proc/self/mem",
        str(mxclaw.home), str(mxclaw.home / "outputs" / ".."),
    ]  # fmt: skip
    (mxclaw.home / "outputs").mkdir()
    os.mkdir(os.fsencode(mxclaw.workspace) + b"/caf\xe9")
    given.append(os.fsdecode(b"caf\xe9"))
    for folder in given:
        done = mxclaw.run("run", "--json", "--workspace", folder, "hello")
        assert (done.status, done.out) == (2, b""), folder
        assert done.errors.startswith("usage: ") and done.errors.count("\n") == 1, done.errors
    assert mxclaw.stored() is None
    assert not mxclaw.requests


def test_our_own_home_is_no_place_to_work_in(mxclaw: Mxclaw) -> None:
    (mxclaw.home / "outputs").mkdir()
    for folder in (mxclaw.home, mxclaw.home / "outputs"):
        done = mxclaw.run("run", "hello", cwd=folder)
        assert done.status == 2 and "own home" in done.errors


def test_a_session_is_not_moved_to_another_folder(mxclaw: Mxclaw, tmp_path: Path) -> None:
    assert mxclaw.run("run", "hello").status == 0
    session = mxclaw.session().id
    moved = mxclaw.run("run", "--session", session, "--workspace", str(tmp_path / "user"), "hello")
    assert moved.status == 2 and "works in" in moved.errors
    assert mxclaw.run("run", "--session", session, "--workspace", ".", "hello").status == 0


def test_a_current_folder_that_is_gone_is_said(mxclaw: Mxclaw, tmp_path: Path) -> None:
    words = shlex.join([*PROGRAM, "run", "hello"])
    done = mxclaw.run("-c", f"mkdir gone && cd gone && rmdir ../gone && {words}", program=("bash",))
    assert done.status == 2 and done.errors.startswith("usage: "), done.errors
    listed = shlex.join([*PROGRAM, "session", "list", "--json"])
    done = mxclaw.run("-c", f"mkdir gone && cd gone && rmdir ../gone && {listed}", program=("bash",))
    assert (done.status, json.loads(done.out)) == (0, [])


# -- the prompt


@pytest.mark.parametrize(
    "prompt",
    [
        "看看这个文件夹里有什么",
        "one\nline\r\nafter\tanother",
        "--not-an-option",
        "\u202ebidi \u200b and \u0301 marks",
        b"caf\xe9 \xff\xfe",
        "x" * 120_000,
    ],
    ids=["chinese", "lines", "dashes", "invisible", "not-utf8", "long"],
)
def test_a_prompt_reaches_the_model_as_it_is(prompt: str | bytes, mxclaw: Mxclaw) -> None:
    done = mxclaw.run("run", "--json", "--", prompt)
    assert done.status == 0, done.errors
    [request] = mxclaw.requests
    assert_wire_valid(request)
    if isinstance(prompt, bytes):
        assert request.messages[-1].text == "caf\ufffd \ufffd\ufffd"
    else:
        assert request.messages[-1].text == prompt
    assert done.events[0]["input"] == request.messages[-1].text
    assert mxclaw.session().messages[1].content == request.messages[-1].text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"from a pipe\n", "from a pipe\n"),
        (b"\xef\xbb\xbfwith a mark", "with a mark"),
        (b"nul \0 and \xff\xd8", "nul \0 and \ufffd\ufffd"),
        ("中文 🙂".encode(), "中文 🙂"),
        (b"x" * (4 << 20), "x" * (4 << 20)),
    ],
    ids=["text", "bom", "binary", "chinese", "largest"],
)
def test_a_prompt_from_standard_input(data: bytes, text: str, mxclaw: Mxclaw) -> None:
    done = mxclaw.run("run", "--json", "-", stdin=data)
    assert done.status == 0, done.errors
    assert mxclaw.requests[0].messages[-1].text == text
    assert mxclaw.session().messages[1].content == text


def test_prompts_that_say_nothing_or_too_much_are_refused(mxclaw: Mxclaw) -> None:
    refused: list[tuple[tuple[str, ...], bytes | None]] = [
        (("",), None), ((" \n\t",), None), (("\u3000",), None), ((), b""), (("-",), b""), (("-",), b"\xef\xbb\xbf"),
        (("-",), b" \n"), (("-",), b"x" * ((4 << 20) + 1)), ((), None),
    ]  # fmt: skip
    for words, stdin in refused:
        done = mxclaw.run("run", "--json", *words, stdin=stdin)
        assert (done.status, done.out) == (2, b""), words
        assert done.errors.startswith("usage: ")
    assert mxclaw.stored() is None


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_heard_while_the_prompt_is_awaited(number: int, status: int, mxclaw: Mxclaw) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "run", "-"],
        env=mxclaw.environment, cwd=mxclaw.workspace, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        caught = 1 << (signal.SIGTERM - 1)  # the handler is there: our loop runs
        until(lambda: bool(signals_caught(process.pid) & caught), "mxclaw handles signals")
        waiting = Path(f"/proc/{process.pid}/task")
        until(lambda: any("mxclaw-work" in (task / "comm").read_text() for task in waiting.iterdir()) or True, "reads")
        process.send_signal(number)
        assert process.wait(10) == status
        assert process.stderr is not None and b"Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def signals_caught(pid: int) -> int:
    """The set of signals that a process has handlers for."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("SigCgt:")).split()[1], 16)


# -- options and variables


def test_a_refusal_is_2_in_one_line_and_leaves_nothing(mxclaw: Mxclaw) -> None:
    """Every wrong word is tried in tests/commands; here, that a refusal looks right from outside, one of each code."""
    refusals = {
        ("--no-such", "x"): "usage",
        ("--timeout", "nan", "x"): "usage",
        ("--max-cost", "1", "x"): "usage",
        ("--model", "rehearsl/x", "x"): "usage",
    }
    for words, code in refusals.items():
        done = mxclaw.run("run", "--json", *words)
        assert (done.status, done.out) == (2, b""), words
        assert done.errors.startswith(f"{code}: ") and done.errors.count("\n") == 1, done.errors
    done = mxclaw.run("run", "--json", "x", env={"MX_CLAW_API_KEY": None})
    assert (done.status, done.out) == (2, b"") and done.errors.startswith("provider_not_ready: ")
    for value in ("scriptd/model", "a\nb", "x" * 5000):
        done = mxclaw.run("run", "--json", "hello", env={"MX_CLAW_MODEL": value})
        assert done.status == 2 and done.errors.startswith("configuration: "), done.errors
        assert len(done.errors) < 1000 and done.errors.count("\n") == 1
    assert mxclaw.stored() is None
    assert not mxclaw.requests


def test_a_session_that_is_not_there_is_1_and_named(mxclaw: Mxclaw) -> None:
    for name in ("s-nosuch", "%", "'; drop table sessions; --"):
        done = mxclaw.run("run", "--json", "--session", name, "x")
        assert (done.status, done.out) == (1, b"")
        assert done.errors.startswith("not_found: ")


def test_the_default_model_of_the_process_is_used_and_an_empty_one_is_none(mxclaw: Mxclaw) -> None:
    assert mxclaw.run("run", "hello", env={"MX_CLAW_MODEL": "scripted/other"}).status == 0
    assert mxclaw.requests[-1].model == "other"
    assert mxclaw.run("run", "hello", env={"MX_CLAW_MODEL": " "}).status == 0
    assert mxclaw.requests[-1].model == "script"


# -- our home


def test_homes_that_serve(mxclaw: Mxclaw) -> None:
    config = (mxclaw.home / "config.json").read_text()
    for name in ("nested/deep", "里面", "./here/../there"):
        home = mxclaw.workspace / name
        home.mkdir(parents=True)
        (home / "config.json").write_text(config)
        done = mxclaw.run("run", "--json", "hello", env={"MX_CLAW_HOME": name})
        assert done.status == 0, done.errors
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert stat.S_IMODE((home / "mx-claw.db").stat().st_mode) == 0o600


def test_without_any_variable_the_home_is_below_the_users(mxclaw: Mxclaw, tmp_path: Path) -> None:
    done = mxclaw.run("session", "list", "--json", env={"MX_CLAW_HOME": None})
    assert done.status == 0 and (tmp_path / "user" / ".mx-claw" / "mx-claw.db").exists()


def test_homes_that_do_not_serve_are_said_in_one_line(mxclaw: Mxclaw) -> None:
    (mxclaw.workspace / "file").write_text("")
    (mxclaw.workspace / "loop").symlink_to("loop")
    homes = ["file", "file/below", "loop", "/proc/nosuch", "/dev/null", "a" * 300]
    if os.geteuid():
        (mxclaw.workspace / "closed").mkdir(mode=0o500)
        homes.append("closed")
    for home in homes:
        for words in (("run", "hello"), ("session", "list")):
            done = mxclaw.run(*words, env={"MX_CLAW_HOME": home})
            assert done.status in (1, 2) and done.out == b"", (home, done)
            assert done.errors.count("\n") == 1 and "Traceback" not in done.errors, done.errors


def test_no_home_variable_at_all_is_no_fault(mxclaw: Mxclaw) -> None:
    assert mxclaw.run("run", "hello", env={"HOME": None}).status == 0


# -- standard streams


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_is_no_fault(closed: str, mxclaw: Mxclaw) -> None:
    words = shlex.join([*PROGRAM, "run", "--json", "hello"])
    done = mxclaw.run("-c", f"exec {words} {closed}", program=("bash",))
    assert done.status == 0, done.errors
    assert done.errors == ""
    assert (mxclaw.home / "mx-claw.db").read_bytes()[:15] == b"SQLite format 3"
    if ">&-" not in closed.split():
        assert done.last["type"] == "turn.completed"


def test_an_error_with_standard_error_closed_still_has_its_status(mxclaw: Mxclaw) -> None:
    words = shlex.join([*PROGRAM, "run", "--session", "nosuch", "hello"])
    assert mxclaw.run("-c", f"exec {words} 2>&-", program=("bash",)).status == 1


def test_a_prompt_from_a_closed_or_unreadable_standard_input_is_refused(mxclaw: Mxclaw) -> None:
    words = shlex.join([*PROGRAM, "run", "-"])
    for stdin in ("<&-", "< /proc/self/mem"):
        done = mxclaw.run("-c", f"exec {words} {stdin}", program=("bash",))
        assert done.status == 2 and done.errors.startswith("usage: "), (stdin, done)
        assert done.errors.count("\n") == 1


def test_standard_output_that_is_full_ends_quietly(mxclaw: Mxclaw) -> None:
    words = shlex.join([*PROGRAM, "run", "--json", "hello"])
    done = mxclaw.run("-c", f"exec {words} > /dev/full", program=("bash",))
    assert "Traceback" not in done.errors
    assert done.status in (0, 1, 130)


def test_it_runs_with_a_locale_that_knows_only_ascii(mxclaw: Mxclaw) -> None:
    env = {"LC_ALL": "C", "LANG": None, "PYTHONUTF8": None, "PYTHONIOENCODING": None}
    done = mxclaw.run("run", "--json", "看看".encode(), env=env)
    assert done.status == 0, done.errors
    assert mxclaw.requests[-1].messages[-1].text == "看看"
    done = mxclaw.run("run", "看看".encode(), env=env)
    assert done.status == 0 and done.out.startswith(b"You said 2")
