"""A peer that we did not write: llama.cpp's own server with a small real model, asked as a user would ask it.

``make peer`` fetches it. Without it these tests are skipped; where ``CI`` is set that is an error.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel, SecretStr

from mxclaw_nb.protocol import (
    Completion,
    ContextOverflow,
    Message,
    ModelError,
    ModelId,
    ModelRequest,
    Settings,
    StreamInterrupted,
    TextDelta,
    ToolSpec,
)
from mxclaw_nb.providers import Endpoint, OpenAICompatibleProvider
from tests.peer.install import is_installed
from tests.peer.server import LlamaServer

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

MODEL = ModelId("local", LlamaServer.model)
CONTEXT_TOKENS = 4096
REPLY_TOKENS = 200
STORY = "Tell me a very long story about a lighthouse and the sea."
T = TypeVar("T")


def started(log: Path, *, endless: bool = False) -> LlamaServer:
    if not is_installed():
        pytest.skip("needs the llama.cpp server and its model: run `make peer`")
    server = LlamaServer(log, context_tokens=CONTEXT_TOKENS, reply_tokens=REPLY_TOKENS, endless=endless)
    server.start()
    return server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    server = started(tmp_path_factory.mktemp("peer") / "server.log")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def endless_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    """A server whose replies never end before their bound."""
    server = started(tmp_path_factory.mktemp("endless-peer") / "server.log", endless=True)
    yield server
    server.stop()


def with_provider(
    server: LlamaServer, use: Callable[[OpenAICompatibleProvider], Awaitable[T]], *, key: str | None = None
) -> T:
    """Run ``use`` with a provider that asks the server, and close the provider."""

    async def key_for(_name: str) -> SecretStr:
        return SecretStr(server.key if key is None else key)

    async def scenario() -> T:
        endpoint = Endpoint(MODEL.provider, server.base_url)
        provider = OpenAICompatibleProvider(lambda _name: endpoint, key_for, Settings, key_present=lambda _name: True)
        try:
            async with asyncio.timeout(120):
                return await use(provider)
        finally:
            await provider.aclose()

    return asyncio.run(scenario())


def request(text: str, *, tokens: int = 12, tools: tuple[ToolSpec, ...] = ()) -> ModelRequest:
    return ModelRequest(MODEL, [Message("user", text)], tools=tools, max_output_tokens=tokens)


async def ask(provider: OpenAICompatibleProvider, asked: ModelRequest) -> tuple[list[str], Completion]:
    items = [item async for item in provider.stream(asked)]
    assert isinstance(items[-1], Completion)
    return [item.text for item in items if isinstance(item, TextDelta)], items[-1]


class ReadFile(BaseModel):
    path: str


def test_text_streams_piece_by_piece_with_real_usage_and_the_length_stop(endless_server: LlamaServer) -> None:
    deltas, completion = with_provider(endless_server, lambda provider: ask(provider, request(STORY, tokens=12)))
    assert len(deltas) > 3
    assert "".join(deltas) == completion.text and completion.text.strip()
    assert completion.finish_reason == "length" and completion.incomplete
    assert completion.usage is not None and not completion.usage.estimated
    assert completion.usage.output_tokens == 12
    assert 5 < completion.usage.input_tokens < 100


def test_a_reply_that_ends_by_itself_says_so(server: LlamaServer) -> None:
    _, completion = with_provider(server, lambda provider: ask(provider, request("Say hello.", tokens=200)))
    assert completion.finish_reason == "stop" and not completion.incomplete


def test_tools_and_chinese_are_taken(server: LlamaServer) -> None:
    tool = ToolSpec("read_file", "Read a file. 读取文件。", ReadFile.model_json_schema())
    asked = request("读一下 README.md，谢谢 🎉", tokens=5, tools=(tool,))
    _, completion = with_provider(server, lambda provider: ask(provider, asked))
    assert completion.usage is not None and completion.usage.output_tokens <= 5


def test_a_reply_that_is_given_up_frees_its_slot_for_the_next_one(endless_server: LlamaServer) -> None:
    async def give_up(provider: OpenAICompatibleProvider) -> float:
        async with aclosing(provider.stream(request(STORY, tokens=3000))) as stream:  # type: ignore[type-var]
            async for item in stream:
                if isinstance(item, TextDelta):
                    break
        began = time.monotonic()
        await ask(provider, request("Say hello.", tokens=3))
        return time.monotonic() - began

    # All 3,000 tokens would hold the only slot for far longer.
    assert with_provider(endless_server, give_up) < 5


def test_a_cancelled_task_frees_its_slot_too(endless_server: LlamaServer) -> None:
    async def cancel(provider: OpenAICompatibleProvider) -> None:
        started = asyncio.Event()

        async def read() -> None:
            async for _ in provider.stream(request(STORY, tokens=3000)):
                started.set()

        task = asyncio.ensure_future(read())
        await started.wait()
        began = time.monotonic()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled() and time.monotonic() - began < 0.5
        await asyncio.to_thread(endless_server.wait_until_idle, 5)

    with_provider(endless_server, cancel)


def test_a_wrong_key_is_one_clear_error_without_the_key(server: LlamaServer) -> None:
    wrong = "sk-wrong-0123456789abcdef"
    with pytest.raises(ModelError) as caught:
        with_provider(server, lambda provider: ask(provider, request("hi")), key=wrong)
    assert caught.value.status == 401
    assert wrong not in f"{caught.value} {caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"


def test_a_request_longer_than_the_window_is_a_context_overflow(server: LlamaServer) -> None:
    with pytest.raises(ContextOverflow, match="context"):
        with_provider(server, lambda provider: ask(provider, request("word " * (CONTEXT_TOKENS + 500))))


def test_the_models_are_listed(server: LlamaServer) -> None:
    assert with_provider(server, lambda provider: provider.list_models(MODEL.provider)) == [LlamaServer.model]


def test_a_server_that_dies_in_mid_reply_leaves_what_was_said(tmp_path: Path) -> None:
    server = started(tmp_path / "server.log", endless=True)

    async def kill(provider: OpenAICompatibleProvider) -> None:
        async for item in provider.stream(request(STORY, tokens=3000)):
            if isinstance(item, TextDelta):
                server.kill()

    try:
        with pytest.raises(StreamInterrupted) as caught:
            with_provider(server, kill)
    finally:
        server.stop()
    assert caught.value.partial.incomplete and caught.value.partial.text


# Through ``mxclaw run``


def run_command(
    server: LlamaServer, home: Path, workspace: Path, *words: str, key: str | None = None
) -> subprocess.Popen[str]:
    """``mxclaw run --json`` in a process of its own, with a config.json that names the server."""
    entry = {
        "name": MODEL.provider,
        "kind": "custom",
        "baseURL": server.base_url,
        "model": MODEL.model,
        "models": [MODEL.model],
        "apiKey": "",
        "requiresApiKey": True,
        "configured": True,
    }
    home.mkdir(mode=0o700, exist_ok=True)
    document = {"version": 1, "activeProvider": MODEL.provider, "providers": {MODEL.provider: entry}}
    (home / "config.json").write_text(json.dumps(document))
    command = [sys.executable, "-m", "mxclaw_nb", "run", "--json", "--workspace", str(workspace), *words]
    environ = {**os.environ, "MX_CLAW_HOME": str(home), "MX_CLAW_API_KEY": server.key if key is None else key}
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        cwd=workspace,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]], str]:
    """Exit status, events and standard error of a run, within two minutes."""
    try:
        output, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    return process.returncode, [json.loads(line) for line in output.splitlines()], errors


def of_type(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


def test_a_run_streams_to_its_end(server: LlamaServer, mx_claw_home: Path, tmp_path: Path) -> None:
    status, events, errors = finish(run_command(server, mx_claw_home, tmp_path, "Say hello."))
    assert status == 0, errors
    assert events[0]["type"] == "turn.started" and events[0]["model"] == str(MODEL)
    (message,) = of_type(events, "message.completed")
    assert "".join(event["delta"] for event in of_type(events, "message.delta")) == message["text"]
    (usage,) = of_type(events, "usage")
    assert usage["inputTokens"] > 100 and usage["outputTokens"] > 0 and not usage["estimated"]
    assert events[-1]["type"] == "turn.completed" and events[-1]["text"] == message["text"]
    assert server.key not in json.dumps(events) + errors
    assert server.key.encode() not in b"".join(path.read_bytes() for path in mx_claw_home.rglob("*") if path.is_file())


def test_a_run_that_meets_the_length_stop_completes_and_says_so(
    endless_server: LlamaServer, mx_claw_home: Path, tmp_path: Path
) -> None:
    status, events, errors = finish(run_command(endless_server, mx_claw_home, tmp_path, STORY))
    assert status == 0, errors
    (message,) = of_type(events, "message.completed")
    assert message["finishReason"] == "length" and message["incomplete"]
    assert of_type(events, "notice") and events[-1]["type"] == "turn.completed"


def test_an_interrupted_run_frees_the_slot(endless_server: LlamaServer, mx_claw_home: Path, tmp_path: Path) -> None:
    process = run_command(endless_server, mx_claw_home, tmp_path, STORY)
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(json.loads(line))
        if seen[-1]["type"] == "message.delta":
            break
    process.send_signal(signal.SIGINT)
    endless_server.wait_until_idle(3)
    status, events, errors = finish(process)
    assert status == 130, errors
    assert (seen + events)[-1]["type"] == "turn.failed" and (seen + events)[-1]["code"] == "cancelled"


def test_a_run_with_a_wrong_key_fails_and_names_the_status(
    server: LlamaServer, mx_claw_home: Path, tmp_path: Path
) -> None:
    wrong = "sk-wrong-0123456789abcdef"
    status, events, errors = finish(run_command(server, mx_claw_home, tmp_path, "Say hello.", key=wrong))
    assert status == 1
    assert events[-1]["type"] == "turn.failed" and events[-1]["code"] == "provider_error"
    assert "401" in events[-1]["message"]
    assert wrong not in json.dumps(events) + errors


def test_a_run_longer_than_the_window_fails_as_context_overflow(
    server: LlamaServer, mx_claw_home: Path, tmp_path: Path
) -> None:
    status, events, _ = finish(run_command(server, mx_claw_home, tmp_path, "word " * (CONTEXT_TOKENS + 500)))
    assert status == 1
    assert events[-1]["type"] == "turn.failed" and events[-1]["code"] == "context_overflow"


def test_a_run_without_the_key_is_refused_before_anything_is_sent(
    server: LlamaServer, mx_claw_home: Path, tmp_path: Path
) -> None:
    status, events, errors = finish(run_command(server, mx_claw_home, tmp_path, "Say hello.", key=""))
    assert status == 2 and events == []
    assert errors.startswith("provider_not_ready: ") and "MX_CLAW_API_KEY" in errors
