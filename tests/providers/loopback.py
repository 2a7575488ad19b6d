"""A real HTTP server on loopback that says exactly the bytes a test wants, when it wants them."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from pydantic import SecretStr

import mxclaw_nb.providers.asking  # noqa: F401 - so that no test's clock runs while the libraries load
from mxclaw_nb.protocol import Message, ModelId, ModelRequest, MxclawError, Settings, StreamItem
from mxclaw_nb.providers import Endpoint, ModelProfile, OpenAICompatibleProvider, RetryPolicy

KEY = "sk-secret-0123456789"
BOUND_S = 20.0


@dataclass
class Request:
    """What the server was sent."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]


@dataclass
class Peer:
    """The server's side of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    request: Request

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def until_gone(self) -> None:
        """Wait until the client has ended the connection."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass


Script = Callable[[Peer], Awaitable[None]]


@dataclass
class Loopback:
    """Runs in a thread of its own. ``scripts`` are played one a request; the last one again and again."""

    scripts: Sequence[Script]
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    host: str = "127.0.0.1"

    def __enter__(self) -> Loopback:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True)
        self._thread.start()
        assert started.wait(BOUND_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(BOUND_S)
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}/v1"

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0, ssl=self.tls, limit=2**22)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while True:
                request = await read_request(reader)
                self.requests.append(request)
                script = self.scripts[min(len(self.requests), len(self.scripts)) - 1]
                await script(Peer(reader, writer, request))
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> Request:
    """The next request on a connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (entry.partition(":") for entry in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(line, headers, body)


# What servers say


def frames(*datas: object, done: bool = True) -> bytes:
    """``data:`` frames of these values (text as it is)."""
    texts = [data if isinstance(data, str) else json.dumps(data) for data in datas]
    if done:
        texts.append("[DONE]")
    return b"".join(f"data: {text}\n\n".encode() for text in texts)


def delta(_finish: str | None = None, **fields: object) -> dict[str, object]:
    """A chunk with this delta in choice 0."""
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": fields, "finish_reason": _finish}]}


def calls(*pieces: object, finish: str | None = None) -> dict[str, object]:
    """A chunk with these tool call pieces."""
    return delta(finish, tool_calls=list(pieces))


STOP = delta("stop")
USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}}


def chunked(data: bytes, size: int | None = None) -> bytes:
    """HTTP chunks, each of ``size`` bytes, without the last one."""
    step = size or max(len(data), 1)
    pieces = [data[i : i + step] for i in range(0, len(data), step)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


def head(
    status: int = 200, headers: Sequence[tuple[str, str]] = (), content_type: str | None = "text/event-stream"
) -> bytes:
    """The head of a response."""
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in headers)]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    return "\r\n".join([*lines, "", ""]).encode()


def stream(body: bytes, *, size: int | None = None, content_type: str | None = "text/event-stream") -> Script:
    """A whole chunked stream."""

    async def play(peer: Peer) -> None:
        await peer.send(
            head(200, [("Transfer-Encoding", "chunked")], content_type) + chunked(body, size) + b"0\r\n\r\n"
        )

    return play


def closing(body: bytes, *, reset: bool = False, content_type: str = "text/event-stream") -> Script:
    """A body that ends with the connection: closed in order, or by a reset in the middle of a chunked one."""

    async def play(peer: Peer) -> None:
        if reset:
            await peer.send(head(200, [("Transfer-Encoding", "chunked")], content_type) + chunked(body))
            await asyncio.sleep(0.05)  # else the reset overtakes what was sent
            peer.reset()
        else:
            await peer.send(head(200, [("Connection", "close")], content_type) + body)
        peer.writer.close()

    return play


def answer(
    status: int,
    body: bytes | object = b"",
    headers: Sequence[tuple[str, str]] = (),
    content_type: str = "application/json",
) -> Script:
    """A response with a length."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def play(peer: Peer) -> None:
        await peer.send(head(status, [*headers, ("Content-Length", str(len(data)))], content_type) + data)

    return play


def hang(said: bytes = b"") -> Script:
    """Say something, then nothing until the client leaves."""

    async def play(peer: Peer) -> None:
        await peer.send(said)
        await peer.until_gone()
        peer.writer.close()

    return play


# The client's side


@dataclass
class Outcome:
    """What a consumer of the stream got."""

    items: list[StreamItem]
    error: MxclawError | None = None
    waits: list[float] = field(default_factory=list)


def provider_for(
    url: str,
    *,
    key: str | None = KEY,
    profile: ModelProfile | None = None,
    settings: Settings | None = None,
    retry: RetryPolicy | None = None,
    requires_key: bool = False,
    direct: bool = False,
) -> OpenAICompatibleProvider:
    endpoint = Endpoint("acme", url, requires_key=requires_key, profile=profile or ModelProfile(), direct=direct)

    async def key_for(_name: str) -> SecretStr | None:
        return None if key is None else SecretStr(key)

    return OpenAICompatibleProvider(
        lambda name: endpoint if name == "acme" else None,
        key_for,
        lambda: settings or Settings(),
        lambda _name: key is not None,
        retry=retry,
    )


def ask(text: str = "hi") -> ModelRequest:
    return ModelRequest(ModelId("acme", "m1"), [Message("user", text)])


async def consume(provider: OpenAICompatibleProvider, request: ModelRequest) -> Outcome:
    outcome = Outcome([])
    try:
        async with asyncio.timeout(BOUND_S):
            async for item in provider.stream(request):
                outcome.items.append(item)
    except MxclawError as error:
        outcome.error = error
    return outcome


def run(
    url: str,
    request: ModelRequest | None = None,
    *,
    key: str | None = KEY,
    profile: ModelProfile | None = None,
    settings: Settings | None = None,
    direct: bool = False,
) -> Outcome:
    """Ask once, with waits between tries that take no time and are noted."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def main() -> Outcome:
        retry = RetryPolicy(sleep=sleep, random=lambda: 0.5)
        provider = provider_for(url, key=key, profile=profile, settings=settings, retry=retry, direct=direct)
        try:
            return await consume(provider, request or ask())
        finally:
            await provider.aclose()

    outcome = asyncio.run(main())
    outcome.waits = waits
    return outcome


def play(
    *scripts: Script, request: ModelRequest | None = None, settings: Settings | None = None
) -> tuple[Outcome, list[Request]]:
    """Ask a server that plays these scripts."""
    with Loopback(scripts) as server:
        return run(server.url, request, settings=settings), server.requests
