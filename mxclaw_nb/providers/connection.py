"""One connection: bytes from the socket to whoever awaits them, with a bound on what is held, and an end at once."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

_HELD_BYTES = 1024 * 1024  # reading stops above this until the consumer has caught up
_NEXT_ADDRESS_S = 0.25  # RFC 8305: how long one address has before the next is tried beside it

Address = tuple[str, int]


class Connection(asyncio.Protocol):
    """The callbacks of a socket on one side, ``read`` on the other.

    ``received_at`` is the loop's time of the last byte. ``on_end`` is called once when the connection is gone.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._eof = False
        self._writable = asyncio.Event()
        self._writable.set()
        self.received_at = self._loop.time()
        self.received_any = False
        self.on_end: Callable[[], None] | None = None
        self.on_data: Callable[[], None] | None = None
        self.gone: asyncio.Future[None] = self._loop.create_future()

    # The socket's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # other loops' transports are not its subclasses
        self._transport.set_write_buffer_limits(0)  # so that pause_writing tells of anything that is not sent yet

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._held += len(data)
        self.received_at = self._loop.time()
        if not self.received_any:
            self.received_any = True
            self._writable.set()
        if self._waiter is not None:
            self._wake()
        elif self._held > _HELD_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        if self.on_data is not None:
            self.on_data()

    def eof_received(self) -> bool:
        self._eof = True
        self._writable.set()
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._eof = True
        if exc is not None and self._failure is None:
            self._failure = exc
        self._wake()
        self._writable.set()
        if not self.gone.done():
            self.gone.set_result(None)
        if self.on_end is not None:
            self.on_end()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # The consumer's side

    @property
    def alive(self) -> bool:
        """Whether it can be used: neither ended nor given up."""
        return not self._eof and self._failure is None

    @property
    def unread(self) -> bool:
        """Whether bytes have come that nobody has read."""
        return bool(self._chunks)

    def write(self, data: bytes) -> None:
        """Send; never waits (see ``drain``)."""
        if self._transport is not None:
            self._transport.write(data)

    async def drain(self) -> None:
        """Until everything is handed to the system, the answer begins, or the connection ends."""
        await self._writable.wait()

    async def read(self) -> bytes:
        """The next bytes; b"" at a clean end. Raises what ended the connection otherwise."""
        while not self._chunks:
            if self._failure is not None:
                raise self._failure
            if self._eof:
                return b""
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        data = self._chunks.popleft()
        self._held -= len(data)
        if self._paused and self._held <= _HELD_BYTES // 2 and self._transport is not None and self.alive:
            self._paused = False
            self.received_at = self._loop.time()  # it was we who did not listen
            self._transport.resume_reading()
        return data

    def take(self) -> bytes:
        """All bytes that are there now."""
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._held = 0
        return data

    def unread_bytes(self, data: bytes) -> None:
        """Put bytes back in front of what has come."""
        self._chunks.appendleft(data)
        self._held += len(data)

    def fail(self, failure: Exception) -> None:
        """End the connection at once; whoever reads gets this failure."""
        self._failure = failure
        self._chunks.clear()
        self._held = 0
        self.abort()
        self._wake()

    def abort(self) -> None:
        """End the connection at once, whatever is on its way."""
        if self._transport is not None:
            self._transport.abort()

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Speak TLS from here on. Raises ssl.SSLError or OSError."""
        assert self._transport is not None
        transport = await self._loop.start_tls(self._transport, self, context, server_hostname=host)
        if transport is None:
            raise ConnectionResetError("the connection was closed during the TLS handshake")
        self._transport = transport

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def dial(host: str, port: int, context: ssl.SSLContext | None) -> Connection:
    """Connect, with TLS if there is a context. Every address of the host is tried, the next after a quarter second.

    The caller bounds the time. Raises OSError (ssl.SSLError included).
    """
    loop = asyncio.get_running_loop()
    addresses = await resolve(host, port)
    server_name = host if context is not None else None

    async def attempt(address: Address) -> Connection:
        _, connection = await loop.create_connection(Connection, *address, ssl=context, server_hostname=server_name)
        return connection

    attempts: set[asyncio.Task[Connection]] = set()
    failure: BaseException = OSError(f"no address for {host}")
    try:
        while addresses or attempts:
            if addresses:
                attempts.add(asyncio.ensure_future(attempt(addresses.pop(0))))
            done, attempts = await asyncio.wait(
                attempts, timeout=_NEXT_ADDRESS_S if addresses else None, return_when=asyncio.FIRST_COMPLETED
            )
            winner: Connection | None = None
            for task in done:
                error = task.exception()
                if error is not None:
                    failure = error
                elif winner is None:
                    winner = task.result()
                else:
                    task.result().abort()
            if winner is not None:
                return winner
    finally:
        for task in attempts:
            task.cancel()
        for outcome in await asyncio.gather(*attempts, return_exceptions=True):
            if isinstance(outcome, Connection):
                outcome.abort()
    raise failure


async def resolve(host: str, port: int) -> list[Address]:
    """The addresses of a host, IPv6 and IPv4 by turns, as the system orders them. Raises OSError.

    On a thread that ends with the question: the loop's own pool would keep one alive for good.
    """
    with suppress(OSError, ValueError):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.inet_pton(family, host.partition("%")[0])
        return [(host, port)]
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[Address]] = loop.create_future()

    def deliver(addresses: list[Address] | OSError) -> None:
        if answer.done():
            return
        if isinstance(addresses, OSError):
            answer.set_exception(addresses)
        else:
            answer.set_result(addresses)

    def ask() -> None:
        found: list[Address] | OSError
        try:
            found = _by_turns(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), port)
        except OSError as error:
            found = error
        except UnicodeError:
            found = OSError("the host name cannot be resolved")
        with suppress(RuntimeError):  # the loop may have been closed meanwhile
            loop.call_soon_threadsafe(deliver, found)

    threading.Thread(target=ask, name="mxclaw-resolve", daemon=True).start()
    return await answer


def _by_turns(infos: Sequence[tuple[int, int, int, str, tuple[object, ...]]], port: int) -> list[Address]:
    families: dict[int, list[Address]] = {}
    for family, _, _, _, address in infos:
        if family in (socket.AF_INET, socket.AF_INET6):
            families.setdefault(family, []).append((str(address[0]), port))
    queues = list(families.values())
    ordered: list[Address] = []
    while any(queues):
        ordered.extend(queue.pop(0) for queue in queues if queue)
    return ordered
