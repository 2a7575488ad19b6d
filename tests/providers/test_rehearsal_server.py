"""The rehearsal server is a real OpenAI-compatible server: asked over real HTTP by a client that we did not write."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time

import httpx
import pytest

from mxclaw_nb.protocol import Usage
from mxclaw_nb.providers.rehearsal import (
    ChatRequest,
    RehearsalServer,
    Reply,
    ScriptedCall,
    call,
    calls,
    chunks,
    fail,
    raw,
    say,
    sequence,
)

ASK = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}


def client_of(server: RehearsalServer, token: str | None = None) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token or server.token}"}
    return httpx.AsyncClient(base_url=server.base_url, headers=headers, timeout=10, trust_env=False)


async def frames_of(client: httpx.AsyncClient, body: object) -> list[dict]:
    async with client.stream("POST", "/chat/completions", json=body) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") async for line in response.aiter_lines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_text_is_streamed_in_chunks_that_join_to_it() -> None:
    text = "Hello, wide world.\n\n你好，世界！ end"

    async def scenario() -> None:
        async with RehearsalServer(sequence(say(text))) as server, client_of(server) as client:
            frames = await frames_of(client, ASK)
        pieces = [frame["choices"][0]["delta"].get("content", "") for frame in frames]
        assert "".join(pieces) == text
        assert len([piece for piece in pieces if piece]) > 5
        assert frames[-1]["choices"][0]["finish_reason"] == "stop"
        assert [message.text for message in server.requests[0].messages] == ["hi"]

    asyncio.run(scenario())


def test_tool_calls_are_streamed_as_deltas() -> None:
    script = sequence(calls(call("read_file", path="a" * 60), ScriptedCall("glob", "{bro", id="c9"), text="Two:"))

    async def scenario() -> list[dict]:
        async with RehearsalServer(script) as server, client_of(server) as client:
            return await frames_of(client, ASK)

    frames = asyncio.run(scenario())
    arguments = {0: "", 1: ""}
    names, ids = {}, {}
    for frame in frames:
        for delta in frame["choices"][0]["delta"].get("tool_calls", ()):
            arguments[delta["index"]] += delta["function"]["arguments"]
            if "id" in delta:
                ids[delta["index"]], names[delta["index"]] = delta["id"], delta["function"]["name"]
    assert names == {0: "read_file", 1: "glob"}
    assert json.loads(arguments[0]) == {"path": "a" * 60}
    assert arguments[1] == "{bro"
    assert ids[0].startswith("call_") and ids[1] == "c9"
    assert frames[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_usage_comes_last_and_only_when_it_is_asked_for() -> None:
    async def scenario() -> None:
        script = sequence(say("a", usage=Usage(7, 3, 2)), say("b"))
        async with RehearsalServer(script) as server, client_of(server) as client:
            frames = await frames_of(client, ASK | {"stream_options": {"include_usage": True}})
            assert frames[-1]["choices"] == []
            assert frames[-1]["usage"]["prompt_tokens"] == 7 and frames[-1]["usage"]["completion_tokens"] == 3
            assert all("usage" not in frame for frame in await frames_of(client, ASK))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("token", "path"),
    [("wrong", "/chat/completions"), ("wrong", "/models"), ("错误", "/models"), ("", "/models")],
)
def test_nothing_is_served_without_the_token(token: str, path: str) -> None:
    async def scenario() -> None:
        async with RehearsalServer(sequence()) as server, httpx.AsyncClient(trust_env=False) as client:
            headers = {"Authorization": f"Bearer {token}".strip().encode()}
            response = await client.request(
                "GET" if path == "/models" else "POST", server.base_url + path, headers=headers
            )
            assert response.status_code == 401
            assert server.token not in response.text
            assert not server.requests

    asyncio.run(scenario())


def test_a_refusal_reaches_a_client_that_still_sends_a_large_body() -> None:
    async def scenario() -> None:
        async with RehearsalServer(sequence()) as server, client_of(server, "wrong") as client:
            response = await client.post("/chat/completions", content=b"x" * 6_000_000)
            assert response.status_code == 401

    asyncio.run(scenario())


def test_models_are_listed_with_and_without_the_version_segment() -> None:
    async def scenario() -> None:
        async with RehearsalServer(sequence(), models=("a", "b")) as server, client_of(server) as client:
            for url in (server.base_url + "/models", server.base_url.removesuffix("/v1") + "/models"):
                assert [model["id"] for model in (await client.get(url)).json()["data"]] == ["a", "b"]

    asyncio.run(scenario())


def test_a_reply_that_is_not_streamed_is_one_body() -> None:
    async def scenario() -> None:
        script = sequence(call("glob", pattern="*").saying("Looking."))
        async with RehearsalServer(script) as server, client_of(server) as client:
            body = (await client.post("/chat/completions", json=ASK | {"stream": False})).json()
        choice = body["choices"][0]
        assert choice["message"]["content"] == "Looking."
        assert choice["message"]["tool_calls"][0]["function"]["name"] == "glob"
        assert body["usage"]["total_tokens"] > 0

    asyncio.run(scenario())


def test_http_errors_are_played_with_their_headers() -> None:
    async def scenario() -> None:
        script = sequence(fail(429, "slow down", headers={"Retry-After": "7"}))
        async with RehearsalServer(script) as server, client_of(server) as client:
            response = await client.post("/chat/completions", json=ASK)
        assert response.status_code == 429
        assert response.headers["retry-after"] == "7"
        assert response.json()["error"]["message"] == "slow down"

    asyncio.run(scenario())


def test_raw_frames_are_sent_as_they_are() -> None:
    async def scenario() -> None:
        script = sequence(raw(b": ping\n\n", 0.01, b"data: {}\r\n\r\n", content_type="text/weird"))
        async with RehearsalServer(script) as server, client_of(server) as client:
            response = await client.post("/chat/completions", json=ASK)
        assert response.content == b": ping\n\ndata: {}\r\n\r\n"
        assert response.headers["content-type"] == "text/weird"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (say("par tial", ending="cut"), httpx.RemoteProtocolError),
        (raw(b"data: half", ending="cut"), httpx.RemoteProtocolError),
        (say("par tial", ending="reset"), httpx.ReadError),
    ],
)
def test_a_stream_can_break(reply: Reply, error: type[Exception]) -> None:
    async def scenario() -> None:
        async with RehearsalServer(sequence(reply)) as server, client_of(server) as client:
            with pytest.raises(error):
                await client.post("/chat/completions", json=ASK)

    asyncio.run(scenario())


def test_a_client_that_leaves_ends_the_reply_and_is_counted() -> None:
    async def scenario() -> None:
        script = sequence(say("hello", ending="hang"), say("again"))
        async with RehearsalServer(script) as server, client_of(server) as client:
            async with client.stream("POST", "/chat/completions", json=ASK) as response:
                async for _ in response.aiter_bytes():
                    break
            assert await frames_of(client, ASK)
            await server.until(lambda: server.abandoned == 1)

    asyncio.run(scenario())


def test_one_connection_serves_many_requests() -> None:
    async def scenario() -> None:
        async with RehearsalServer(sequence(*(say(str(n)) for n in range(5)))) as server, client_of(server) as client:
            for _ in range(5):
                await frames_of(client, ASK)
            assert [request.number for request in server.requests] == [0, 1, 2, 3, 4]

    asyncio.run(scenario())


def test_a_script_may_wait_for_the_test() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()

        async def script(request: ChatRequest) -> Reply:
            await gate.wait()
            return say("now")

        async with RehearsalServer(script) as server, client_of(server) as client:
            answer = asyncio.ensure_future(frames_of(client, ASK))
            await server.until(lambda: len(server.requests) == 1)
            assert not answer.done()
            gate.set()
            assert await answer

    asyncio.run(scenario())


def test_a_request_too_many_fails_the_test() -> None:
    async def scenario() -> None:
        async with RehearsalServer(sequence(say("only one"))) as server, client_of(server) as client:
            await frames_of(client, ASK)
            assert (await client.post("/chat/completions", json=ASK)).status_code == 500

    with pytest.raises(AssertionError, match="1 replies, but request 2 came"):
        asyncio.run(scenario())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", b" 400 "),
        (b"GET /models SPDY/3\r\n\r\n", b" 505 "),
        (b"GET /models HTTP/1.1\r\nno colon\r\n\r\n", b" 400 "),
        (b"GET /models HTTP/1.1\r\nA: " + b"x" * 70_000 + b"\r\n\r\n", b" 431 "),
        (b"POST /chat/completions HTTP/1.1\r\n%b\r\nContent-Length: -1\r\n\r\n", b" 400 "),
        (b"POST /chat/completions HTTP/1.1\r\n%b\r\nContent-Length: 99999999999\r\n\r\n", b" 413 "),
        (b"POST /chat/completions HTTP/1.1\r\n%b\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b" 400 "),
        (b"POST /chat/completions HTTP/1.1\r\n%b\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n", b" 413 "),
        (b"POST /chat/completions HTTP/1.1\r\n%b\r\nContent-Length: 4\r\n\r\n[12]", b" 400 "),
        (b"POST /chat/completions HTTP/1.1\r\n%b\r\nContent-Length: 3\r\n\r\n\xff{}", b" 400 "),
        (b"GET /chat/completions HTTP/1.1\r\n%b\r\n\r\n", b" 405 "),
        (b"GET /etc/passwd HTTP/1.1\r\n%b\r\n\r\n", b" 404 "),
    ],
)
def test_hostile_requests_are_refused_and_the_server_lives(request_bytes: bytes, status: bytes) -> None:
    async def scenario() -> None:
        async with RehearsalServer(sequence(say("alive"))) as server, client_of(server) as client:
            port = int(server.base_url.rsplit(":", 1)[1].removesuffix("/v1"))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_bytes.replace(b"%b", b"Authorization: Bearer " + server.token.encode()))
            async with asyncio.timeout(5):
                assert status in await reader.readline()
            writer.close()
            assert await frames_of(client, ASK)

    asyncio.run(scenario())


@pytest.mark.parametrize("begun", [b"", b"GET /mod"], ids=["silent", "half a head"])
def test_a_client_that_dawdles_is_let_go(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mxclaw_nb.providers.rehearsal.server.HEAD_TIMEOUT_S", 0.1)
    monkeypatch.setattr("mxclaw_nb.providers.rehearsal.wire.HEAD_TIMEOUT_S", 0.1)

    async def scenario() -> None:
        async with RehearsalServer(sequence()) as server:
            port = int(server.base_url.rsplit(":", 1)[1].removesuffix("/v1"))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(begun)
            async with asyncio.timeout(5):
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.close()

    asyncio.run(scenario())


def test_a_client_that_reads_nothing_does_not_hold_the_server_up() -> None:
    flood = raw(*(b": " + b"x" * 1_000_000 + b"\n\n" for _ in range(64)))

    async def scenario() -> None:
        async with RehearsalServer(sequence(flood, say("alive"))) as server, client_of(server) as client:
            port = int(server.base_url.rsplit(":", 1)[1].removesuffix("/v1"))
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            body = json.dumps(ASK).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer {server.token}\r\n"
            writer.write(head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            await server.until(lambda: len(server.requests) == 1)
            assert await frames_of(client, ASK)
            writer.close()

    asyncio.run(scenario())


def test_a_chunked_request_body_is_understood() -> None:
    async def parts():
        data = json.dumps(ASK).encode()
        yield data[:10]
        yield data[10:]

    async def scenario() -> None:
        async with RehearsalServer(sequence(say("ok"))) as server, client_of(server) as client:
            response = await client.post("/chat/completions", content=parts())
            assert response.status_code == 200
            assert server.requests[0].raw == json.dumps(ASK).encode()
            assert "authorization" not in server.requests[0].headers

    asyncio.run(scenario())


def test_on_its_thread_it_answers_while_the_callers_loop_is_blocked() -> None:
    def ask(server: RehearsalServer) -> str:
        headers = {"Authorization": f"Bearer {server.token}"}
        return httpx.post(server.base_url + "/chat/completions", json=ASK, headers=headers, trust_env=False).text

    async def scenario() -> str:
        with RehearsalServer(sequence(say("still here"))) as server:
            return ask(server)

    assert "[DONE]" in asyncio.run(scenario())


def test_no_thread_before_the_start_and_none_after_the_stop(caplog: pytest.LogCaptureFixture) -> None:
    def ours() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("mxclaw-rehearsal")]

    server = RehearsalServer(sequence(say("long", ending="hang")))
    assert not ours() and not server.running
    server.start_in_thread()
    assert server.start_in_thread().running and len(ours()) == 1
    port = int(server.base_url.rsplit(":", 1)[1].removesuffix("/v1"))
    # A reply that never ends does not hold the stop up.
    with (
        httpx.Client(headers={"Authorization": f"Bearer {server.token}"}, timeout=10, trust_env=False) as client,
        client.stream("POST", server.base_url + "/chat/completions", json=ASK) as response,
    ):
        stream = response.iter_bytes()
        next(stream)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 2
        assert not ours() and not server.running
        with pytest.raises(httpx.TransportError):
            list(stream)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2)
    server.stop()
    with server:
        assert server.running
    assert not caplog.records, "and it ends without a word"


@pytest.mark.parametrize(
    "text", ["", " ", "\n\n a", "x" * 100, "混合 mixed 文字，标点。\tend \n", "🎉🎉 ok", "a  b   c"]
)
def test_chunks_join_to_the_text(text: str) -> None:
    assert "".join(chunks(text)) == text
