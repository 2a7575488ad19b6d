"""The loopback server that plays a script. On the caller's own loop, or beside a kernel on a thread of its own."""

from __future__ import annotations

import asyncio
import hmac
import inspect
import json
import secrets
import socket
import struct
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from mxclaw_nb.providers.config import REHEARSAL_PROVIDER

from . import encode
from .script import ChatRequest, Ending, HttpError, RawFrames, Reply, Script, Speech, fail
from .wire import (
    HEAD_LIMIT,
    HEAD_TIMEOUT_S,
    IDLE_TIMEOUT_S,
    BadRequest,
    Head,
    chunk_bytes,
    head_bytes,
    linger,
    read_body,
    read_head,
)

MAX_CONNECTIONS = 64
START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 5.0
WRITE_TIMEOUT_S = 30.0
REPLY_TIMEOUT_S = 600.0


class RehearsalServer:
    """An OpenAI-compatible server on 127.0.0.1 that plays ``script``. Nothing runs before it is started.

    ``async with`` runs it on the caller's loop (tests). ``start_in_thread`` / ``stop`` (or a plain ``with``) run it
    on one daemon thread with a loop of its own: beside a kernel, whose loop user code may block, this is the only
    place where it always answers. Both raise the first error of the script itself when a ``with`` block ends.

    Every request needs ``Authorization: Bearer <token>``: other users of the host can reach the port too.
    ``requests`` holds the newest ``keep_requests`` chat requests, parsed.
    """

    def __init__(self, script: Script, *, models: tuple[str, ...] = ("scripted",), keep_requests: int = 1000) -> None:
        self.token = secrets.token_urlsafe(32)
        self.models = models
        self.requests: deque[ChatRequest] = deque(maxlen=keep_requests)
        self.script_errors: list[Exception] = []
        self.abandoned = 0
        """How many replies the client left before their end."""
        self._script = script
        self._count = 0
        self._port: int | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._changed = asyncio.Event()
        self._guard = threading.Lock()

    def __repr__(self) -> str:
        return f"<RehearsalServer {'stopped' if self._port is None else self.base_url}>"

    @property
    def base_url(self) -> str:
        """``http://127.0.0.1:PORT/v1``. Raises RuntimeError while the server does not run."""
        if self._port is None:
            raise RuntimeError("the rehearsal server is not running")
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def running(self) -> bool:
        return self._port is not None

    # On the caller's loop

    async def start(self) -> None:
        """Listen on a free port, on the running loop."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=HEAD_LIMIT)
        self._server, self._port = server, server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """Stop listening and end every connection."""
        server, self._server, self._port = self._server, None, None
        if server is not None:
            server.close()
        for connection in list(self._connections):
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=STOP_TIMEOUT_S)

    async def until(self, condition: Callable[[], bool], *, timeout_s: float = 5.0) -> None:
        """Wait until something about this server is so: ``await server.until(lambda: len(server.requests) == 2)``.

        Only on the loop that the server runs on. Raises TimeoutError.
        """
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
        self._raise_script_error(error)

    # On a thread of its own

    def start_in_thread(self) -> Self:
        """Run on a daemon thread until ``stop``; returns when it listens. Starting it twice is starting it once."""
        with self._guard:
            if self._thread is not None and self._thread.is_alive():
                return self
            started: deque[BaseException | None] = deque()
            ready = threading.Event()

            def run() -> None:
                try:
                    asyncio.run(self._serve_until_stopped(ready))
                except OSError as error:
                    started.append(error)
                finally:
                    ready.set()

            self._thread = threading.Thread(target=run, name="mxclaw-rehearsal", daemon=True)
            self._thread.start()
            if not ready.wait(START_TIMEOUT_S):
                raise RuntimeError(f"the rehearsal server did not start within {START_TIMEOUT_S:.0f} s")
            if started and (error := started[0]) is not None:
                raise error
        return self

    def stop(self) -> None:
        """End the thread and every connection; from any thread, and more than once."""
        with self._guard:
            thread, self._thread = self._thread, None
            if thread is None or self._loop is None or self._stopping is None:
                return
            if thread.is_alive() and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._stopping.set)
            thread.join(STOP_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self.start_in_thread()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._raise_script_error(error)

    async def _serve_until_stopped(self, ready: threading.Event) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        await self.start()
        ready.set()
        try:
            await self._stopping.wait()
        finally:
            await self.aclose()

    def _raise_script_error(self, other: BaseException | None) -> None:
        if other is None and self.script_errors:
            raise self.script_errors[0]

    # One connection

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            await self._converse(reader, writer)
        except (OSError, EOFError, TimeoutError):
            writer.transport.abort()
        except asyncio.CancelledError:
            # Ends here: this task is the connection's root, and Python 3.11's streams log one that ends cancelled.
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, patience = b"", HEAD_TIMEOUT_S
        while True:
            if not first:
                async with asyncio.timeout(patience):
                    first = await reader.read(1)
                if not first:
                    return
            patience = IDLE_TIMEOUT_S
            try:
                head = await read_head(reader, first)
                self._check_token(head)
                body = await read_body(reader, head)
            except BadRequest as error:
                await self._send_error(writer, fail(error.status, str(error)), close=True)
                await linger(reader, writer)
                return
            # While it replies, the next byte or the end of the connection tells that the client has left.
            watch = asyncio.ensure_future(_next_byte(reader))
            reply = asyncio.ensure_future(self._reply(head, body, writer))
            try:
                async with asyncio.timeout(REPLY_TIMEOUT_S):
                    await asyncio.wait({watch, reply}, return_when=asyncio.FIRST_COMPLETED)
                    if not reply.done() and watch.done() and watch.result():
                        await asyncio.wait({reply})
                if not reply.done():
                    self.abandoned += 1
                    self._changed.set()
                    return
                if not reply.result() or not head.keep_alive:
                    return
                first = watch.result() if watch.done() else b""
                if watch.done() and not first:
                    return
            finally:
                for task in (watch, reply):
                    task.cancel()
                await asyncio.gather(watch, reply, return_exceptions=True)

    def _check_token(self, head: Head) -> None:
        expected, given = f"Bearer {self.token}", head.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), expected.encode()):
            raise BadRequest(401, "the token of this rehearsal server is needed")

    async def _reply(self, head: Head, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Reply to one request. Whether the connection can take another one."""
        path = head.path.removeprefix("/v1")
        if path == "/models" and head.method == "GET":
            listed = [{"id": name, "object": "model", "owned_by": REHEARSAL_PROVIDER} for name in self.models]
            await self._send_json(writer, 200, json.dumps({"object": "list", "data": listed}).encode())
            return True
        if path != "/chat/completions":
            await self._send_error(writer, fail(404, f"there is no {head.path} here", code="not_found"))
            return True
        if head.method != "POST":
            await self._send_error(writer, fail(405, "use POST", code="method_not_allowed"))
            return True
        headers = {name: value for name, value in head.headers.items() if name != "authorization"}
        try:
            request = ChatRequest.parse(body, number=self._count, headers=headers)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False, include_context=False)[0]["msg"]
            await self._send_error(writer, fail(400, f"no chat request: {problem}", code="invalid_request"))
            return True
        self._count += 1
        self.requests.append(request)
        self._changed.set()
        reply = await self._play(request)
        if isinstance(reply, HttpError):
            await self._send_error(writer, reply)
            return True
        if isinstance(reply, RawFrames):
            headers = {"Content-Type": reply.content_type, **reply.headers}
            return await self._stream(writer, reply.status, headers, _raw_frames(reply), reply.ending)
        if not request.stream:
            await self._send_json(writer, 200, encode.CompletionEncoder(request, reply).body())
            return True
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store"}
        return await self._stream(writer, 200, headers, _speech_frames(request, reply), reply.ending)

    async def _play(self, request: ChatRequest) -> Reply:
        try:
            reply = self._script(request)
            return await reply if inspect.isawaitable(reply) else reply
        except Exception as error:  # noqa: BLE001  a script is foreign code; its error is kept and raised at the end
            self.script_errors.append(error)
            return fail(500, f"the script failed: {type(error).__name__}: {error}", code="script_failed")

    # Writing

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await writer.drain()

    async def _send_json(self, writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        await self._send(writer, head_bytes(status, headers) + body)

    async def _send_error(self, writer: asyncio.StreamWriter, error: HttpError, *, close: bool = False) -> None:
        body = encode.error_body(error)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **error.headers}
        if close:
            headers["Connection"] = "close"
        await self._send(writer, head_bytes(error.status, headers) + body)

    async def _stream(
        self,
        writer: asyncio.StreamWriter,
        status: int,
        headers: dict[str, str],
        frames: AsyncIterator[bytes],
        ending: Ending,
    ) -> bool:
        await self._send(writer, head_bytes(status, {**headers, "Transfer-Encoding": "chunked"}))
        async for data in frames:
            if data:
                await self._send(writer, chunk_bytes(data))
        if ending == "complete":
            await self._send(writer, chunk_bytes(b""))
            return True
        if ending == "hang":
            await asyncio.sleep(REPLY_TIMEOUT_S)
        if ending == "reset":
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return False


async def _next_byte(reader: asyncio.StreamReader) -> bytes:
    """The next byte, or nothing when the client has gone, however it went."""
    try:
        return await reader.read(1)
    except OSError:
        return b""


async def _speech_frames(request: ChatRequest, speech: Speech) -> AsyncIterator[bytes]:
    encoder = encode.CompletionEncoder(request, speech)
    for frame in encoder.deltas():
        yield frame
        if speech.pause_s:
            await asyncio.sleep(speech.pause_s)
    if speech.ending == "complete":
        for frame in encoder.closing():
            yield frame


async def _raw_frames(reply: RawFrames) -> AsyncIterator[bytes]:
    for frame in reply.frames:
        if isinstance(frame, bytes):
            yield frame
        else:
            await asyncio.sleep(frame)
