"""The transport under ``httpx.AsyncClient``: HTTP/1.1 over asyncio, made for many small pieces of a long answer.

httpx's own transport spends most of a streamed piece's CPU in its layers, and aiohttp's (``httpx-aiohttp``) costs
130 ms of import; measured by ``benchmarks/``. Everything above the wire stays httpx's: URLs, headers, decoding.
Proxies and CA bundles of the environment are looked up for every request, so that a change takes effect at once.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from dataclasses import dataclass, field

import httpx

from .connection import Connection, dial
from .http1 import Body, ProtocolError, body_of, read_head, request_head
from .proxies import Proxy, ProxyRefused, authority, open_tunnel, proxy_for
from .tls import Trust, tls_context, trust_in_environment

EXCHANGE = "mxclaw_exchange"
DIRECT = "mxclaw_direct"
_IDLE_S = 30.0  # how long an unused connection is kept
_IDLE_AT_MOST = 8
_REST_S = 2.0  # how long the last bytes of an answer that was read to its end may take
_PORTS = {"http": 80, "https": 443}


class CertificateError(httpx.ConnectError):
    """The other side's certificate is not trusted; trying again changes nothing."""


class ProxyDenied(httpx.ProxyError):
    """The proxy refuses us; trying again changes nothing."""


@dataclass(frozen=True, slots=True)
class _Route:
    """Where a connection leads: connections of equal routes are interchangeable."""

    scheme: str
    host: str
    port: int
    proxy: Proxy | None
    trust: Trust

    @property
    def tunnelled(self) -> bool:
        return self.proxy is not None and (self.scheme == "https" or self.proxy.scheme.startswith("socks"))


class Exchange(httpx.AsyncByteStream):
    """The body of a response, and the hold on its connection (``response.extensions[EXCHANGE]``)."""

    def __init__(self, pool: _Pool, route: _Route, connection: Connection, body: Body, *, reusable: bool) -> None:
        self._pool, self._route, self._connection, self._body = pool, route, connection, body
        self._reusable = reusable
        self._closed = False

    @property
    def received_at(self) -> float:
        """The loop's time of the last byte."""
        return self._connection.received_at

    @property
    def unread(self) -> bool:
        """Whether bytes wait to be read."""
        return self._connection.unread

    def fail(self, failure: Exception) -> None:
        """End the connection at once; whoever reads the body gets this failure."""
        self._connection.fail(failure)

    def __aiter__(self) -> Exchange:
        return self

    async def __anext__(self) -> bytes:
        # No generator: one that is left half-way would have to be finalised by a task of its own.
        body = self._body
        try:
            while not (body.complete or self._closed):
                data = await self._connection.read()
                if not data:
                    body.end()
                    break
                content = body.feed(data)
                if content:
                    return content
        except ProtocolError as error:
            raise httpx.RemoteProtocolError(str(error)) from None
        except OSError as error:
            raise httpx.ReadError(_words(error)) from None
        raise StopAsyncIteration

    def keep(self) -> None:
        """What matters of the answer is read: let the connection live on, once the last bytes of framing have come."""
        if self._closed:
            return
        self._closed = True
        if self._reusable and self._rest_is_read():
            self._pool.put(self._route, self._connection)
        elif self._reusable and self._connection.alive:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(_REST_S, self._connection.abort)

            def more() -> None:
                if self._rest_is_read():
                    timer.cancel()
                    self._pool.put(self._route, self._connection)

            self._connection.on_data = more
        else:
            self._connection.abort()

    async def aclose(self) -> None:
        """End the exchange; in the middle of the body that ends the connection at once."""
        if self._body.complete:
            self.keep()
        elif not self._closed:
            self._closed = True
            self._connection.abort()

    def _rest_is_read(self) -> bool:
        try:
            while not self._body.complete and self._connection.unread:
                self._body.feed(self._connection.take())
        except ProtocolError:
            self._connection.abort()
            return False
        return self._body.complete


class _Pool:
    """Idle connections by route, and all that are open (so that closing ends them)."""

    def __init__(self) -> None:
        self._idle: dict[_Route, list[tuple[Connection, asyncio.TimerHandle]]] = {}
        self._open: set[Connection] = set()
        self._closed = False

    def add(self, connection: Connection) -> None:
        """Keep track of an open connection until it is gone."""
        self._open.add(connection)
        connection.on_end = lambda: self._open.discard(connection)

    def put(self, route: _Route, connection: Connection) -> None:
        """Keep a connection for later, for a while."""
        if self._closed or not connection.alive or connection.unread:
            connection.abort()
            return
        waiting = [pair for pair in self._idle.get(route, []) if pair[0].alive]
        self._idle[route] = waiting
        if len(waiting) >= _IDLE_AT_MOST:
            connection.abort()
            return
        timer = asyncio.get_running_loop().call_later(_IDLE_S, connection.abort)
        connection.on_data = connection.abort  # nobody asked: whatever it says cannot be an answer
        waiting.append((connection, timer))

    def take(self, route: _Route) -> Connection | None:
        """An idle connection that still lives, the newest first."""
        waiting = self._idle.get(route, [])
        while waiting:
            connection, timer = waiting.pop()
            timer.cancel()
            if connection.alive and not connection.unread:
                connection.on_data = None
                return connection
            connection.abort()
        return None

    async def close(self) -> None:
        """End every connection and wait (1 s at most) until the sockets are closed."""
        self._closed = True
        for waiting in self._idle.values():
            for _, timer in waiting:
                timer.cancel()
        self._idle.clear()
        gone = [connection.gone for connection in self._open]
        for connection in list(self._open):
            connection.abort()
        if gone:
            await asyncio.wait(gone, timeout=1)


@dataclass(frozen=True, slots=True)
class _Limits:
    """Seconds for connecting, for sending the request, and until the head of the answer."""

    connect: float | None
    write: float | None
    read: float | None


@dataclass(slots=True)
class StreamTransport(httpx.AsyncBaseTransport):
    """One for each event loop. Request extensions: httpx's ``timeout`` and ``target``, and ``DIRECT`` (no proxy)."""

    _pool: _Pool = field(default_factory=_Pool)
    _contexts: dict[Trust, ssl.SSLContext] = field(default_factory=dict)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; the response comes with its head read. Raises httpx's errors and the two above."""
        timeout = request.extensions.get("timeout", {})
        limits = _Limits(timeout.get("connect"), timeout.get("write"), timeout.get("read"))
        route = _route(request)
        content = b"".join([part async for part in request.stream])  # type: ignore[union-attr]
        wire = _request_bytes(request, route) + content
        connection = self._pool.take(route)
        if connection is not None:
            try:
                return await self._exchange(connection, route, wire, limits)
            except (httpx.ReadError, httpx.RemoteProtocolError):
                if connection.received_any:
                    raise
                # The server closed it while it was idle; a new one is no second try.
        connection = await self._connect(route, limits)
        return await self._exchange(connection, route, wire, limits)

    async def aclose(self) -> None:
        """End every connection."""
        await self._pool.close()

    async def _connect(self, route: _Route, limits: _Limits) -> Connection:
        try:
            async with asyncio.timeout(limits.connect):
                connection = await self._open(route)
        except TimeoutError:
            raise httpx.ConnectTimeout("connecting took too long") from None
        except ssl.SSLCertVerificationError as error:
            raise CertificateError(error.verify_message or "the certificate is not trusted") from None
        except ProxyRefused as error:
            kind = httpx.ProxyError if error.status >= 500 or error.status == 429 else ProxyDenied
            raise kind(f"the proxy {route.proxy.host if route.proxy else ''} refused: {error}") from None
        except (OSError, ProtocolError) as error:
            raise httpx.ConnectError(_words(error)) from None
        self._pool.add(connection)
        return connection

    async def _open(self, route: _Route) -> Connection:
        proxy = route.proxy
        context = self._context(route.trust) if route.scheme == "https" else None
        if proxy is None:
            return await dial(route.host, route.port, context)
        outer = self._context(route.trust) if proxy.scheme == "https" else None
        connection = await dial(proxy.host, proxy.port, outer)
        try:
            if route.tunnelled:
                await open_tunnel(connection, proxy, route.host, route.port)
                if context is not None:
                    await connection.start_tls(context, route.host)
        except BaseException:
            connection.abort()
            raise
        return connection

    def _context(self, trust: Trust) -> ssl.SSLContext:
        context = self._contexts.get(trust)
        if context is None:
            context = self._contexts[trust] = tls_context(trust)
        return context

    async def _exchange(self, connection: Connection, route: _Route, wire: bytes, limits: _Limits) -> httpx.Response:
        connection.received_any = False
        try:
            connection.write(wire)
            async with asyncio.timeout(limits.write):
                await connection.drain()
            async with asyncio.timeout(limits.read):
                head, rest = await read_head(connection.read)
            body = body_of(head)
        except TimeoutError:
            connection.abort()
            raise httpx.ReadTimeout("no answer came in time") from None
        except ProtocolError as error:
            connection.abort()
            raise httpx.RemoteProtocolError(str(error)) from None
        except OSError as error:
            connection.abort()
            raise httpx.ReadError(_words(error)) from None
        except BaseException:
            connection.abort()
            raise
        if rest:
            connection.unread_bytes(rest)
        exchange = Exchange(self._pool, route, connection, body, reusable=head.keep_alive)
        return httpx.Response(head.status, headers=head.headers, stream=exchange, extensions={EXCHANGE: exchange})


def _route(request: httpx.Request) -> _Route:
    url = request.url
    host = url.raw_host.decode("ascii")
    port = url.port or _PORTS[url.scheme]
    proxy = None if request.extensions.get(DIRECT) else proxy_for(url.scheme, host, port)
    secure = url.scheme == "https" or (proxy is not None and proxy.scheme == "https")
    return _Route(url.scheme, host, port, proxy, trust_in_environment() if secure else ())


def _request_bytes(request: httpx.Request, route: _Route) -> bytes:
    target = request.extensions.get("target", request.url.raw_path)
    headers = list(request.headers.raw)
    if route.proxy is not None and not route.tunnelled:
        target = b"http://" + authority(route.host, route.port) + target
        if route.proxy.authorization:
            headers.append((b"Proxy-Authorization", route.proxy.authorization))
    try:
        return request_head(request.method.encode("ascii"), target, headers)
    except ProtocolError as error:
        raise httpx.LocalProtocolError(str(error)) from None


def _words(error: Exception) -> str:
    """An operating system's error in its own words, without numbers and addresses of its internals."""
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or 'unknown reason').replace('_', ' ').lower()}"
    if isinstance(error, socket.gaierror):
        return error.strerror or "the name cannot be resolved"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
