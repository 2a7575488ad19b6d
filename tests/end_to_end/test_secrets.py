"""A key that the provider echoes and a tool looks for appears nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mxclaw_nb.providers.rehearsal import ChatRequest, Reply, call, fail, raw, say
from tests.end_to_end.program import Mxclaw, mxclaw_with

UP = (  # the environments of everything above a command, our own among them
    "p=$PPID; while [ $p -gt 1 ]; do tr '\\0' '\\n' < /proc/$p/environ; p=$(awk '{{print $4}}' /proc/$p/stat); "
    "done 2>/dev/null | grep -a ^MX_CLAW; seq {lines}"
)
LOOK = (
    "env; cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'; "
    "python -c 'import os; print(dict(os.environ))'; set; export -p"
)


@pytest.fixture
def mxclaw(tmp_path: Path) -> Iterator[Mxclaw]:
    key = ""

    def script(request: ChatRequest) -> Reply:
        prompt = next(message.text for message in reversed(request.messages) if message.role == "user")
        if prompt == "look":
            return say("I looked.") if request.messages[-1].role == "tool" else call("run_command", command=LOOK)
        if prompt.startswith("up"):
            command = UP.format(lines=prompt[3:])
            return say("I looked.") if request.messages[-1].role == "tool" else call("run_command", command=command)
        if prompt == "stream":
            return raw(b'data: {"error":{"message":"bad key %s","code":400}}\n\n' % key.encode())
        if prompt == "html":
            return raw(f"<html>{key}</html>".encode(), content_type=f"text/html; key={key}")
        return fail(int(prompt), f"Incorrect API key provided: {key} (Bearer {key}, {key[:10]}...)", headers={"X": key})

    with mxclaw_with(script, tmp_path) as made:
        key = made.server.token
        yield made


def test_the_key_is_nowhere_on_disk_on_screen_or_in_a_child(mxclaw: Mxclaw) -> None:
    key = mxclaw.environment["MX_CLAW_API_KEY"].encode()
    shown = b""
    for prompt in ("400", "401", "403", "422", "stream", "html"):
        for style in (["--json"], []):
            done = mxclaw.run("run", *style, prompt)
            assert done.status == 1, prompt
            shown += done.out + done.err
    done = mxclaw.run("run", "--json", "--mode", "allow-all", "look")
    assert done.status == 0, done.errors
    [looked] = done.of("tool.completed")
    assert "PATH=" in looked["result"], "it did look"
    assert "MX_CLAW_AGENT_COMMAND=1" in looked["result"]
    shown += done.out + done.err
    for lines in ("1", "100000"):  # a result that is whole, and one with all of it in a file
        done = mxclaw.run("run", "--json", "--mode", "allow-all", f"up {lines}")
        assert done.status == 0, done.errors
        assert "MX_CLAW_API_KEY=[redacted]" in done.of("tool.completed")[0]["result"]
        shown += done.out + done.err
    assert list((mxclaw.home / "outputs").rglob("*.txt"))
    for words in (("doctor",), ("settings",), ("session", "list"), ("session", "list", "--json"), ()):
        done = mxclaw.run(*words)
        shown += done.out + done.err
    assert key not in shown
    files = [path for path in mxclaw.home.rglob("*") if path.is_file()]
    assert mxclaw.home / "mx-claw.db" in files
    for path in files:
        assert key not in path.read_bytes(), path
    for path in mxclaw.workspace.rglob("*"):
        assert key not in path.read_bytes()


def test_a_prompt_in_the_log_of_a_failure_does_not_carry_the_key(mxclaw: Mxclaw) -> None:
    """Not even when the person pasted it: what is said to the model is stored, but the key is not."""
    key = mxclaw.environment["MX_CLAW_API_KEY"]
    done = mxclaw.run("run", "--json", "--model", f"scripted/{key}", "401")
    assert key not in done.errors
