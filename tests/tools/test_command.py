"""The tool run_command: what a person approves, what runs, what the model reads."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from mxclaw_nb.protocol import CallPreview, Settings, ToolContext, ToolFailure, ToolResult, tool_spec
from mxclaw_nb.tools import command as command_module
from mxclaw_nb.tools.command import RunCommand, RunCommandArguments

TOOL = RunCommand()


@dataclass
class Bench:
    """A workspace, a home, and everything that was shown live."""

    workspace: Path
    home: Path
    token: str
    shown: list[str] = field(default_factory=list)
    settings: Settings = field(default_factory=lambda: Settings(command_environment=("TEST_TOKEN",)))

    @property
    def context(self) -> ToolContext:
        return ToolContext(
            "s-1",
            "t-1",
            "call_1",
            self.workspace,
            self.home / "outputs" / "s-1",
            self.home,
            self.settings,
            self.shown.append,
        )

    async def arun(self, command: str, timeout_s: float | None = None) -> ToolResult:
        arguments = RunCommandArguments(command=command, timeout_s=timeout_s)
        return await TOOL.run(arguments, self.context, await TOOL.preview(arguments, self.context))

    def run(self, command: str, timeout_s: float | None = None) -> ToolResult:
        return asyncio.run(self.arun(command, timeout_s))

    def preview(self, command: str) -> CallPreview:
        return asyncio.run(TOOL.preview(RunCommandArguments(command=command), self.context))

    def alive(self) -> list[str]:
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if int(entry) != os.getpid() and self.token.encode() in Path("/proc", entry, "environ").read_bytes():
                    found.append(entry)
            except OSError:
                continue
        return found


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    token = uuid.uuid4().hex
    monkeypatch.setenv("TEST_TOKEN", token)
    (tmp_path / "work").mkdir()
    return Bench(tmp_path / "work", tmp_path / "mx", token)


def test_the_model_is_told_name_arguments_and_rules() -> None:
    spec = tool_spec(TOOL)
    assert spec.name == "run_command" and set(spec.parameters["properties"]) == {"command", "timeout_s"}
    assert spec.parameters["required"] == ["command"] and "3600" in json.dumps(spec.parameters)
    assert TOOL.risk == "execute" and not TOOL.concurrency_safe


@pytest.mark.parametrize(
    "arguments",
    [
        '{"command": "x", "timeout_s": 0}',
        '{"command": "x", "timeout_s": 3601}',
        '{"command": 1}',
        '{"command": "x", "cwd": "/"}',
        "{}",
    ],
)
def test_other_arguments_are_refused(arguments: str) -> None:
    with pytest.raises(ValidationError):
        RunCommandArguments.model_validate_json(arguments)


def test_a_command_that_succeeds_gives_its_output(bench: Bench) -> None:
    assert bench.run("pwd; echo 中文") == ToolResult(f"{bench.workspace}\n中文\n", "ok", 0)


def test_a_command_without_output_says_so(bench: Bench) -> None:
    assert bench.run("true").content == "(no output)"


@pytest.mark.parametrize(
    ("command", "code", "note"),
    [
        ("echo x; exit 3", 3, "[Exit code 3.]"),
        ("false", 1, "[Exit code 1.]"),
        ("no-such-program-anywhere", 127, "[Exit code 127.]"),
        ("(kill -SEGV $BASHPID); exit $?", 139, "[Exit code 139: a process was killed by SIGSEGV.]"),
        ("kill -TERM $$", None, "[Killed by signal 15 (SIGTERM).]"),
        ("kill -KILL $$", None, "[Killed by signal 9 (SIGKILL).]"),
    ],
)
def test_a_failure_is_an_error_that_says_which(bench: Bench, command: str, code: int | None, note: str) -> None:
    """H18."""
    result = bench.run(command)
    assert (result.status, result.exit_code) == ("error", code)
    assert result.content.endswith(note) and "imed out" not in result.content


def test_a_timeout_names_its_limit_and_keeps_the_output(bench: Bench) -> None:
    """H04."""
    result = bench.run("trap '' TERM; echo begun; sleep 60; true", timeout_s=1)
    assert result.status == "error" and result.timed_out
    assert result.content == "begun\n[Timed out: stopped after 1 s. timeout_s may be at most 3600.]"
    assert bench.alive() == []


def test_without_a_timeout_the_settings_hold(bench: Bench) -> None:
    """H06."""
    bench.settings = bench.settings.model_copy(update={"command_timeout_s": 1})
    assert "stopped after 1 s" in bench.run("sleep 1000000000").content


def test_endless_output_is_stopped_and_head_tail_and_file_are_kept(bench: Bench) -> None:
    result = bench.run("seq 1000000000")
    assert result.status == "error" and "1,048,576 bytes (1 MiB)" in result.content
    assert result.content.startswith("1\n2\n3\n") and len(result.content) < 21_000
    assert result.output_path is not None and result.output_path in result.content
    assert Path(result.output_path).stat().st_size == 1024 * 1024
    assert Path(result.output_path).parent == bench.context.outputs
    assert len("".join(bench.shown)) < 64_000


def test_output_that_is_capped_but_hardly_text_keeps_its_file(bench: Bench) -> None:
    result = bench.run("cat /dev/zero")
    assert result.output_path is not None and Path(result.output_path).stat().st_size == 1024 * 1024
    assert "\0" not in result.content


def test_long_output_is_cut_and_kept_in_full(bench: Bench) -> None:
    result = bench.run("for i in $(seq 5000); do echo 第${i}行; done")
    assert result.status == "ok" and result.output_path is not None
    assert result.content.startswith("第1行\n") and result.content.endswith("第5000行\n")
    assert re.search(r"\[\.\.\. [\d,]+ characters \([\d,]+ lines\) cut; full text: ", result.content)
    assert Path(result.output_path).read_text() == "".join(f"第{i}行\n" for i in range(1, 5001))


@pytest.mark.parametrize(
    ("command", "content"),
    [
        (r"printf 'a\0b\e]0;t\a'", "ab"),
        (r"printf '\e[31mred\e[0m\n'", "red\n"),
        (r"for i in 1 2 3; do printf '\r%d/3' $i; sleep .01; done; echo", "3/3\n"),
        (r"printf '\xe4\xb8'; sleep 0.2; printf '\xad'", "中"),
        (r"printf '\xff\xfe'", "\ufffd\ufffd"),
        (r"printf '\xc2\x9b31mx'", "x"),
    ],
)
def test_output_reaches_model_and_screen_without_control_sequences(bench: Bench, command: str, content: str) -> None:
    """H13."""
    assert bench.run(command).content == content
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", "".join(bench.shown))


def test_stragglers_are_reported(bench: Bench) -> None:
    """H01, H02, H19."""
    started = time.monotonic()
    result = bench.run("sleep 60 & setsid sleep 60 & echo done")
    assert time.monotonic() - started < 3
    assert result.status == "ok" and result.exit_code == 0
    assert result.content == (
        "done\n[2 background processes still ran when the command ended and were killed: sleep, sleep.]"
    )
    assert bench.alive() == []


def test_cd_does_not_carry_over_and_the_model_is_told(bench: Bench) -> None:
    """H19."""
    assert "does not carry over" in bench.run("cd /tmp").content
    assert bench.run("pwd").content == f"{bench.workspace}\n"


def test_a_workspace_that_a_command_deletes_is_noticed(bench: Bench) -> None:
    """H17."""
    assert "no longer exists" in bench.run('rm -rf "$PWD"').content
    with pytest.raises(ToolFailure, match=re.escape(str(bench.workspace))):
        bench.run("pwd")


@pytest.mark.parametrize("value", ["/nope", "", "/bin/false", "zsh"])
def test_the_variable_shell_does_not_matter(bench: Bench, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """H21."""
    monkeypatch.setenv("SHELL", value)
    assert bench.run('echo "$BASH_VERSION" | grep -c .; basename $SHELL').content == "1\nbash\n"


@pytest.mark.parametrize("broken", ["missing", "not executable", "no interpreter"])
def test_without_bash_sh_runs_it_and_the_model_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: str
) -> None:
    """H21."""
    bash = tmp_path / "bash"
    if broken != "missing":
        bash.write_text("#!/no/such/interpreter\n")
        bash.chmod(0o755 if broken == "no interpreter" else 0o644)
    monkeypatch.setattr(command_module, "_BASH", (str(bash),))
    monkeypatch.setattr(command_module.shutil, "which", lambda *_a, **_k: None)
    result = bench.run("echo hello")
    assert result.status == "ok" and result.content == "hello\n[There is no bash here: /bin/sh ran the command.]"


@pytest.mark.parametrize(
    "command",
    ["read x", "sudo -k true", "ssh -o ConnectTimeout=1 no-such-host.invalid", "man ls", "python3 -i", "less f"],
)
def test_what_would_ask_a_person_ends_by_itself(bench: Bench, command: str) -> None:
    """H10."""
    (bench.workspace / "f").write_text("text\n" * 1000)
    assert "imed out" not in bench.run(command, timeout_s=10).content


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_git_neither_opens_an_editor_nor_a_pager_nor_asks(bench: Bench) -> None:
    """H10."""
    setup = "git init -q . && git config user.email a@b.test && git config user.name n && touch f && git add f"
    result = bench.run(f"{setup} && git commit; git log; git clone https://127.0.0.1:1/private x", timeout_s=20)
    assert "imed out" not in result.content and "empty commit message" in result.content.lower()


def test_secrets_do_not_reach_a_command(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MX_CLAW_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "MX_CLAW_HOME"):
        monkeypatch.setenv(name, "top-secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://u:p@proxy.test:1")
    content = bench.run("env; cat /proc/$PPID/environ | tr '\\0' '\\n'").content
    assert "top-secret" not in content and "MX_CLAW_AGENT_COMMAND=1" in content and "http://u:p@proxy.test:1" in content


def test_the_kernels_python_comes_first(bench: Bench) -> None:
    content = bench.run("command -v python; python -c 'import sys; print(sys.prefix)'").content
    assert content.split() == [str(Path(sys.executable).parent / "python"), sys.prefix]


def test_the_preview_shows_the_command_exactly(bench: Bench) -> None:
    command = "echo 'a\u202eb\u200b' \\\n\t&& rm x\x1b[2K\rls"
    preview = bench.preview(command)
    assert preview.command == command and preview.detail_kind == "command"
    assert preview.detail == "echo 'a⟨U+202E⟩b⟨U+200B⟩' \\\n\t&& rm x⟨U+001B⟩[2K⟨U+000D⟩ls"
    assert "\n" not in preview.summary and "⟨U+202E⟩" in preview.summary
    assert len(bench.preview("统计" * 1000).summary) <= 51


@pytest.mark.parametrize("command", ["", " \n\t", "a\0b", "\ud800", "x" * 200_000])
def test_what_no_shell_takes_is_refused_before_anybody_is_asked(bench: Bench, command: str) -> None:
    arguments = RunCommandArguments.model_construct(command=command, timeout_s=None)
    with pytest.raises(ToolFailure):
        asyncio.run(TOOL.preview(arguments, bench.context))
    with pytest.raises(ToolFailure):
        asyncio.run(TOOL.run(arguments, bench.context, CallPreview("")))


@pytest.mark.parametrize("command", ["-c 'echo x'", "--version", "-x"])
def test_a_command_is_never_taken_for_an_option(bench: Bench, command: str) -> None:
    assert bench.run(command).exit_code == 127


def test_the_longest_command_runs(bench: Bench) -> None:
    text = "echo " + "x" * (command_module.LONGEST_COMMAND - 5)
    assert bench.run(text).exit_code == 0


def test_output_is_shown_live_and_in_order(bench: Bench) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(bench.arun("echo first; while [ ! -e go ]; do sleep .02; done; echo second"))
        while not bench.shown:  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.01)
        assert bench.shown == ["first\n"] and not task.done()
        (bench.workspace / "go").touch()
        await task

    asyncio.run(main())
    assert "".join(bench.shown) == "first\nsecond\n"


def test_live_output_comes_at_most_ten_times_a_second_and_not_without_end(bench: Bench) -> None:
    times: list[float] = []

    async def main() -> None:
        context = replace(
            bench.context, emit=lambda text: (times.append(time.monotonic()), bench.shown.append(text))[0]
        )
        arguments = RunCommandArguments(command="for i in $(seq 100); do echo $i; sleep .01; done")
        await TOOL.run(arguments, context, CallPreview(""))

    asyncio.run(main())
    assert "".join(bench.shown) == "".join(f"{i}\n" for i in range(1, 101))
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(times) >= 5 and min(gaps[:-1]) > 0.08


def test_a_flood_is_shown_in_part(bench: Bench) -> None:
    bench.run("for i in $(seq 30); do head -c 30000 /dev/zero | tr '\\0' x; echo; sleep .12; done", timeout_s=20)
    shown = "".join(bench.shown)
    assert "characters not shown live" in shown and "no more is shown live" in shown
    assert len(shown) < 64_000


async def worst_tick(task: asyncio.Future[ToolResult]) -> float:
    """The longest that another coroutine was kept waiting while the task ran, in seconds."""
    worst, last = 0.0, time.monotonic()
    while not task.done():
        await asyncio.sleep(0.005)
        worst, last = max(worst, time.monotonic() - last - 0.005), time.monotonic()
    return worst


def test_a_flood_of_progress_does_not_hold_up_the_loop(bench: Bench) -> None:
    """H09. A busy machine holds up every loop, so the same load without output is what it is measured against."""

    async def main() -> float:
        usual = await worst_tick(asyncio.ensure_future(bench.arun("yes > /dev/null", timeout_s=1)))
        flood = asyncio.ensure_future(bench.arun("yes $'\\e[32m50%\\e[0m\\r' | tr -d '\\n'"))
        worst = await worst_tick(flood)
        assert "1 MiB" in flood.result().content
        return worst - usual

    assert min(asyncio.run(main()) for _ in range(3)) < 0.1


async def cancel_when(task: asyncio.Task[ToolResult], ready: Callable[[], bool]) -> float:
    while not ready() and not task.done():  # noqa: ASYNC110 - what is waited for happens in another process
        await asyncio.sleep(0.005)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return time.monotonic() - started


@pytest.mark.parametrize(
    "command",
    ["touch ready; sleep 60", "trap '' TERM; touch ready; setsid sleep 60 & sleep 60; true", "touch ready; yes"],
)
def test_a_cancelled_command_is_gone_within_a_second(bench: Bench, command: str) -> None:
    """H14."""

    async def main() -> float:
        took = await cancel_when(asyncio.ensure_future(bench.arun(command)), (bench.workspace / "ready").exists)
        shown = len(bench.shown)
        await asyncio.sleep(0.3)
        assert len(bench.shown) == shown, "something was shown after the end"
        return took

    assert asyncio.run(main()) < 1
    assert bench.alive() == []


def test_it_works_where_the_kernels_standard_error_has_no_descriptor(tmp_path: Path) -> None:
    """J37."""
    program = """
import asyncio, io, os, sys
from pathlib import Path
from mxclaw_nb.protocol import CallPreview, ToolContext
from mxclaw_nb.tools.command import RunCommand, RunCommandArguments
answer = os.dup(1)
for number in (0, 1, 2):
    os.close(number)
sys.stdin = sys.stdout = sys.stderr = io.StringIO()
work = Path(sys.argv[1])
context = ToolContext("s", "t", "c", work, work / "o", work / "h")
arguments = RunCommandArguments(command="echo out; echo err >&2; cat; exit 3")
result = asyncio.run(RunCommand().run(arguments, context, CallPreview("")))
os.write(answer, repr((result.content, result.exit_code)).encode())
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, timeout=60, check=True)
    assert done.stdout == repr(("out\nerr\n[Exit code 3.]", 3)).encode()


@pytest.mark.parametrize("command", ["head -c 50000 /dev/urandom", "head -c 100000000 /dev/zero"])
def test_output_that_is_no_text_is_shown_in_short_and_kept_in_full(bench: Bench, command: str) -> None:
    result = bench.run(command)
    assert len(result.content) < 1_500 and "are no UTF-8 text.]" in result.content
    assert result.output_path is not None and result.output_path in result.content
    assert Path(result.output_path).stat().st_size == min(50_000 if "urandom" in command else 1 << 20, 1 << 20)
