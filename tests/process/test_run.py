"""Running a child to its end: output, limits, what is left behind, cancellation. Real processes only."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mxclaw_nb.process import StartFailed, run

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a child subreaper")
DOUBLE_FORK = """python3 -c '
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
print("daemon", flush=True)
time.sleep(60)
'; echo started"""


def test_output_of_both_streams_comes_in_order_with_the_exit_code(shell: Any) -> None:
    result = asyncio.run(shell.run("echo one; echo two >&2; echo three; exit 3"))
    assert result.output == b"one\ntwo\nthree\n"
    assert (result.exit_code, result.signal, result.total_bytes) == (3, None, 14)
    assert not (result.timed_out or result.capped or result.launcher_lost or result.stragglers)


def test_standard_error_can_be_kept_apart(shell: Any) -> None:
    result = asyncio.run(shell.run("echo out; echo err >&2", merge_stderr=False))
    assert (result.output, result.stderr) == (b"out\n", b"err\n")


def test_a_stream_that_fills_first_does_not_block_the_other(shell: Any) -> None:
    """H07."""
    big = 'head -c 400000 /dev/zero >&2; head -c 400000 /dev/zero | tr "\\0" x'
    for merged in (True, False):
        result = asyncio.run(shell.run(big, merge_stderr=merged))
        assert result.total_bytes == 800_000 and result.exit_code == 0


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param("sleep 60 & echo done", "sleep", id="H01-background"),
        pytest.param("setsid sleep 60 & echo done", "sleep", id="H02-setsid"),
        pytest.param(DOUBLE_FORK + "; echo done", "python3", id="H03-double-fork", marks=linux),
        pytest.param("nohup setsid bash -c 'sleep 60; true' >/dev/null 2>&1 & echo done", "bash", id="nohup-setsid"),
        pytest.param("(trap '' TERM HUP; sleep 60; true) & disown; echo done", "bash", id="ignores-TERM"),
        pytest.param("coproc sleep 60; echo done", "sleep", id="coproc"),
    ],
)
def test_what_a_command_leaves_behind_is_killed_and_named(shell: Any, text: str, name: str) -> None:
    started = time.monotonic()
    result = asyncio.run(shell.run(text))
    assert time.monotonic() - started < 3
    assert result.exit_code == 0 and b"done\n" in result.output
    assert any(straggler.startswith(name) for straggler in result.stragglers)
    assert result.straggler_count == len(result.stragglers)
    assert shell.alive() == []


def test_what_ends_by_itself_just_after_the_command_is_no_straggler(shell: Any) -> None:
    result = asyncio.run(shell.run("exec > >(sleep 0.02; cat); echo through"))
    assert result.output == b"through\n" and result.straggler_count == 0


def test_many_stragglers_are_counted_and_some_named(shell: Any) -> None:
    result = asyncio.run(shell.run("for i in $(seq 40); do sleep 60 & done; echo done"))
    assert result.straggler_count == 40 and len(result.stragglers) == 20
    assert shell.alive() == []


def test_a_process_that_names_itself_to_break_the_report_does_not(shell: Any) -> None:
    rename = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'x\\ndone\\nexited 9'); time.sleep(60)"
    result = asyncio.run(shell.run(f'python3 -c "{rename}" & sleep 0.3; exit 4'))
    assert result.exit_code == 4 and not result.launcher_lost
    assert all("\n" not in name for name in result.stragglers)


@pytest.mark.parametrize(
    "text", ["sleep 60", "trap '' TERM; sleep 60; true", "kill -STOP $$", "setsid -w sleep 60", "while :; do :; done"]
)
def test_a_command_whose_time_is_up_is_killed_whatever_it_does(shell: Any, text: str) -> None:
    """H04."""
    started = time.monotonic()
    result = asyncio.run(shell.run(text, timeout_s=0.5))
    assert time.monotonic() - started < 2
    assert result.timed_out and not result.capped
    assert shell.alive() == []


def test_term_comes_first_so_that_a_command_can_clean_up(shell: Any) -> None:
    result = asyncio.run(shell.run("trap 'echo cleaned; exit 7' TERM; echo ready; sleep 60 & wait", timeout_s=0.5))
    assert result.output == b"ready\ncleaned\n" and result.exit_code == 7 and result.timed_out


def test_output_without_end_is_stopped_at_the_cap(shell: Any) -> None:
    result = asyncio.run(shell.run("yes", output_cap=100_000))
    assert result.capped and not result.timed_out
    assert len(result.output) == 100_000
    assert shell.alive() == []


def test_output_of_exactly_the_cap_is_not_stopped(shell: Any) -> None:
    result = asyncio.run(shell.run("head -c 70000 /dev/zero; exit 5", output_cap=70_000))
    assert not result.capped and result.exit_code == 5 and len(result.output) == 70_000


def test_the_cap_counts_both_streams_together(shell: Any) -> None:
    result = asyncio.run(shell.run("yes >&2 & yes", output_cap=50_000, merge_stderr=False))
    assert result.capped and len(result.output) + len(result.stderr) == 50_000


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "PIPE", "INT", "HUP"])
def test_a_signal_is_told_from_an_exit_code_and_from_a_timeout(shell: Any, name: str) -> None:
    """H18."""
    result = asyncio.run(shell.run(f"kill -{name} $$; sleep 5"))
    assert result.signal == getattr(signal, f"SIG{name}")
    assert result.exit_code is None and not result.timed_out


def signal_masks(words: list[str]) -> dict[str, int]:
    """The masks without signals 32 and 33: the C library's own, which nobody can set, and which make ignores."""
    return {name: int(mask, 16) & ~(0b11 << 31) for name, mask in (words[:2], words[2:4])}


def test_signals_are_as_at_login(shell: Any) -> None:
    """Python ignores SIGPIPE, and a shell started with SIGINT ignored cannot trap it."""
    result = asyncio.run(shell.run("grep -E '^Sig(Blk|Ign):' /proc/self/status; yes | head -1; echo ${PIPESTATUS[0]}"))
    lines = result.output.decode().split()
    if sys.platform == "linux":
        assert signal_masks(lines) == {"SigBlk:": 0, "SigIgn:": 0}
    assert lines[-2:] == ["y", "141"]


def test_ignored_and_blocked_signals_of_ours_are_not_passed_on(shell: Any) -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        result = asyncio.run(shell.run("grep -E '^Sig(Blk|Ign):' /proc/self/status"))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        signal.signal(signal.SIGHUP, previous)
    if sys.platform == "linux":
        assert signal_masks(result.output.decode().split()) == {"SigBlk:": 0, "SigIgn:": 0}


def test_a_command_inherits_three_descriptors_and_no_terminal(shell: Any) -> None:
    extra = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(extra, True)
    try:
        result = asyncio.run(
            shell.run(
                "ls /proc/self/fd | tr '\\n' ' '; (: </dev/tty) 2>/dev/null || echo no tty; ps -o sid= -p $$; echo $$"
            )
        )
    finally:
        os.close(extra)
    fds, sid, pid = result.output.decode().replace("0 1 2 3 no tty", "ok").split()
    assert fds == "ok" and sid == pid


@pytest.mark.parametrize("text", ["cat", "read x; echo got $x", "python3 -c 'input()'"])
def test_standard_input_is_empty_so_nothing_waits(shell: Any, text: str) -> None:
    """H10."""
    started = time.monotonic()
    asyncio.run(shell.run(text))
    assert time.monotonic() - started < 5


def test_standard_input_is_given_and_need_not_be_read(shell: Any) -> None:
    """G08."""
    data = os.urandom(3_000_000)
    result = asyncio.run(shell.run("wc -c; wc -c < /dev/stdin", stdin=data))
    assert result.output.split()[0] == b"3000000"
    for unread in ("exit 0", "exec <&-; sleep 0.1", "head -c 1 >/dev/null"):
        assert asyncio.run(shell.run(unread, stdin=data)).exit_code == 0
    assert asyncio.run(shell.run("cat", stdin=b"")).output == b""


def test_a_missing_folder_is_told_from_a_missing_program(shell: Any, tmp_path: Path) -> None:
    """H17, H21."""
    with pytest.raises(StartFailed, match="cannot be entered") as folder:
        asyncio.run(shell.run("true", cwd=tmp_path / "gone"))
    assert (folder.value.stage, folder.value.errno) == ("cwd", errno.ENOENT)
    with pytest.raises(StartFailed, match="cannot be started") as program:
        asyncio.run(run(["/no/such/shell"], cwd=tmp_path, env={}, timeout_s=5, output_cap=100))
    assert (program.value.stage, program.value.errno) == ("exec", errno.ENOENT)


@pytest.mark.parametrize("interpreter", ["/bin/false", "/bin/echo", "/no/such/python", ""])
def test_an_interpreter_that_is_none_is_a_clear_failure(
    shell: Any, monkeypatch: pytest.MonkeyPatch, interpreter: str
) -> None:
    monkeypatch.setattr(sys, "executable", interpreter)
    with pytest.raises(StartFailed) as failure:
        asyncio.run(shell.run("true"))
    assert failure.value.stage == "launch"


@pytest.mark.parametrize("argument", ["a\0b", "\ud800", "x" * 3_000_000])
def test_arguments_that_no_system_takes_are_a_clear_failure(tmp_path: Path, argument: str) -> None:
    with pytest.raises(StartFailed):
        asyncio.run(run(["/bin/echo", argument], cwd=tmp_path, env={}, timeout_s=5, output_cap=100))


@pytest.mark.parametrize("locale", ["", "C", "POSIX", "C.UTF-8", "en_US.ISO-8859-1", "zh_CN.GB18030"])
def test_arguments_and_environment_arrive_byte_for_byte(tmp_path: Path, locale: str) -> None:
    argument = "a b\n'\"$x 中文 \udcff -- \t"
    result = asyncio.run(
        run(
            ["/bin/sh", "-c", 'printf %s "$1$V"', "-", argument],
            cwd=tmp_path,
            env={"V": "\udcfeé", "LC_ALL": locale},
            timeout_s=5,
            output_cap=100,
        )
    )
    assert result.output == os.fsencode(argument + "\udcfeé")


@pytest.mark.parametrize(
    "name", ["PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "PYTHONVERBOSE", "PYTHONWARNINGS"]
)
def test_the_environment_of_a_command_does_not_confuse_its_launcher(shell: Any, tmp_path: Path, name: str) -> None:
    for module in ("os", "ctypes", "select", "launcher", "sitecustomize"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('confused')")
    shell.env[name] = str(tmp_path)
    result = asyncio.run(shell.run(f"echo ${name}"))
    assert result.output == f"{tmp_path}\n".encode() and result.exit_code == 0


def test_output_is_handed_on_as_it_comes(shell: Any) -> None:
    pieces: list[tuple[float, bytes]] = []
    asyncio.run(
        shell.run(
            "echo first; sleep 0.5; echo second", on_output=lambda piece: pieces.append((time.monotonic(), piece))
        )
    )
    assert [piece for _, piece in pieces] == [b"first\n", b"second\n"]
    assert pieces[1][0] - pieces[0][0] > 0.3


def test_an_error_of_the_listener_stops_the_child_and_comes_out(shell: Any) -> None:
    def refuse(_piece: bytes) -> None:
        raise LookupError("no more")

    with pytest.raises(LookupError):
        asyncio.run(shell.run("echo x; sleep 60", on_output=refuse))
    assert shell.alive() == []


async def worst_tick(task: asyncio.Future[Any]) -> float:
    """The longest that another coroutine was kept waiting while the task ran, in seconds."""
    worst, last = 0.0, time.monotonic()
    while not task.done():
        await asyncio.sleep(0.005)
        worst, last = max(worst, time.monotonic() - last - 0.005), time.monotonic()
    return worst


def test_a_flood_of_output_does_not_hold_up_the_loop(shell: Any) -> None:
    """H09. A busy machine holds up every loop, so the same load without output is what it is measured against."""

    async def main() -> float:
        quiet = asyncio.ensure_future(shell.run("yes > /dev/null", timeout_s=1))
        usual = await worst_tick(quiet)
        flood = asyncio.ensure_future(shell.run("yes", output_cap=16 << 20))
        worst = await worst_tick(flood)
        assert flood.result().capped
        return worst - usual

    assert min(asyncio.run(main()) for _ in range(3)) < 0.1


async def cancelled_after(work: Any, ready: Callable[[], bool]) -> float:
    """Cancel the work when it is ready; the seconds until it was over. It must end cancelled."""
    task = asyncio.ensure_future(work)
    while not ready() and not task.done():  # noqa: ASYNC110 - what is waited for happens in another process
        await asyncio.sleep(0.005)
    started = time.monotonic()
    task.cancel()
    await asyncio.wait({task}, timeout=10)
    took = time.monotonic() - started
    assert task.cancelled()
    return took


STUBBORN = "trap '' TERM; touch ready; setsid bash -c \"trap '' TERM; sleep 60 & wait; sleep 60\" & sleep 60 & sleep 60"


@pytest.mark.parametrize("text", ["touch ready; sleep 60", STUBBORN, "touch ready; yes", "touch ready; kill -STOP $$"])
def test_cancel_while_it_runs_leaves_nothing(shell: Any, text: str) -> None:
    """H14."""
    took = asyncio.run(cancelled_after(shell.run(text, output_cap=1 << 30), (shell.folder / "ready").exists))
    assert took < 1 and shell.alive() == []


def test_cancel_before_it_starts_starts_nothing(shell: Any) -> None:
    took = asyncio.run(cancelled_after(shell.run("touch ran"), lambda: True))
    assert took < 1 and not (shell.folder / "ran").exists()


@pytest.mark.parametrize("delay_ms", [0, 1, 3, 6, 10, 15, 25, 40])
def test_cancel_while_it_starts_leaves_nothing(shell: Any, delay_ms: int) -> None:
    async def main() -> float:
        ready = asyncio.get_running_loop().time() + delay_ms / 1000
        return await cancelled_after(
            shell.run("sleep 60"), lambda: asyncio.get_running_loop().time() >= ready and bool(shell.alive())
        )

    assert asyncio.run(main()) < 1
    assert shell.alive() == []


def test_cancel_while_stragglers_are_killed_leaves_nothing(shell: Any) -> None:
    text = "(trap '' TERM; sleep 60; true) & touch ready"
    took = asyncio.run(cancelled_after(shell.run(text), (shell.folder / "ready").exists))
    assert took < 1 and shell.alive() == []


def test_cancelling_again_and_again_changes_nothing(shell: Any) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(shell.run(STUBBORN))
        while not (shell.folder / "ready").exists():  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.01)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0.02)
        assert task.cancelled() and shell.alive() == []

    asyncio.run(main())


def test_a_timeout_around_it_is_kept(shell: Any) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await shell.run("sleep 60")

    asyncio.run(main())
    assert shell.alive() == []


def test_a_coroutine_that_is_dropped_takes_its_command_along(shell: Any) -> None:
    async def main() -> None:
        work = shell.run("sleep 60")
        work.send(None)
        assert shell.wait_until(lambda: len(shell.alive()) == 2, 5)
        work.close()
        assert shell.gone_within(1)
        assert shell.wait_until(lambda: all(t.name != "mxclaw-reap" for t in threading.enumerate()), 2)

    asyncio.run(main())


def test_four_commands_at_once_do_not_keep_each_other_alive(shell: Any) -> None:
    async def main() -> None:
        started = time.monotonic()
        results = await asyncio.gather(*[shell.run(f"echo {n}; sleep 0.{n}", timeout_s=10) for n in range(4)])
        assert [r.output for r in results] == [b"0\n", b"1\n", b"2\n", b"3\n"]
        assert time.monotonic() - started < 3
        long = asyncio.ensure_future(shell.run("sleep 60"))
        short = await asyncio.wait_for(shell.run("sleep 60 & echo x"), 5)
        assert short.output == b"x\n" and not long.done()
        long.cancel()
        await asyncio.wait({long})

    asyncio.run(main())


def test_it_runs_on_a_private_loop_in_a_thread(shell: Any) -> None:
    results: list[bytes] = []

    def work() -> None:
        async def main() -> None:
            results.append((await shell.run("sleep 60 & echo from a thread")).output)

        asyncio.run(main())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert results == [b"from a thread\n"]


def test_a_reaper_of_the_users_own_does_not_disturb(shell: Any) -> None:
    """Whatever the kernel's user does about SIGCHLD, the exit code comes from the launcher."""
    previous = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert asyncio.run(shell.run("true; exit 6")).exit_code == 6
    finally:
        signal.signal(signal.SIGCHLD, previous)


@linux
@pytest.mark.parametrize(
    "text", ["sleep 60 & kill -KILL $PPID; sleep 60", "setsid sleep 60 & kill -KILL $PPID; sleep 60"]
)
def test_a_command_that_kills_its_launcher_is_killed_too(shell: Any, text: str) -> None:
    result = asyncio.run(shell.run(text))
    assert result.launcher_lost and not result.timed_out
    assert shell.gone_within(2)


@linux
def test_a_command_that_stops_its_launcher_still_has_its_time_limit(shell: Any) -> None:
    started = time.monotonic()
    result = asyncio.run(shell.run("setsid sleep 60 & kill -STOP $PPID; sleep 60", timeout_s=0.5))
    assert result.timed_out and time.monotonic() - started < 5
    assert shell.gone_within(1)


@linux
def test_a_launcher_that_is_stopped_does_not_delay_a_cancel(shell: Any) -> None:
    took = asyncio.run(
        cancelled_after(shell.run("kill -STOP $PPID; touch ready; sleep 60"), (shell.folder / "ready").exists)
    )
    assert took < 1.5 and shell.gone_within(1)


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT"])
def test_a_launcher_survives_the_signals_that_a_command_spreads(shell: Any, name: str) -> None:
    result = asyncio.run(shell.run(f"kill -{name} $PPID; sleep 0.1; echo alive; exit 3"))
    assert result.output == b"alive\n" and result.exit_code == 3


def test_thirty_runs_leak_nothing(shell: Any) -> None:
    """The fixture counts descriptors and children afterwards."""

    async def main() -> None:
        for number in range(10):
            assert (await shell.run("sleep 60 & echo x")).straggler_count == 1
            await cancelled_after(shell.run("sleep 60"), lambda: bool(shell.alive()))
            assert (await shell.run(f"exit {number}")).exit_code == number

    asyncio.run(main())


@linux
def test_a_small_fork_bomb_is_put_out(shell: Any) -> None:
    bomb = "f() { (sleep 0.05; [ $1 -gt 0 ] && { f $(($1-1)) & f $(($1-1)) & }; sleep 60) & }; f 5; sleep 0.5; echo lit"
    result = asyncio.run(shell.run(bomb, timeout_s=10))
    assert result.output == b"lit\n" and result.straggler_count > 10
    assert shell.alive() == []
