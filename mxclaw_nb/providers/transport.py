"""What carries a request: aiohttp where it goes straight to the provider, httpx's own transport through a proxy.

aiohttp, because httpx's own transport spends most of a streamed chunk's CPU in its layers (see pyproject.toml); httpx's
own, because it knows every kind of proxy. Both are made to leave nothing behind in a kernel: no idle thread, no task,
no cookie.
"""

from __future__ import annotations

import socket
import ssl
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp
import httpx
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.http_exceptions import HttpProcessingError
from httpx_aiohttp import AiohttpTransport

from mxclaw_nb.files import run_in_thread
from mxclaw_nb.protocol import ConfigurationError

from .proxies import Proxy
from .tls import Trust, tls_context

ADDRESS = "mxclaw_address"
CARRIER_ERRORS = (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, HttpProcessingError)
_IDLE_S = 30.0  # how long an unused connection is kept
_STALE_AT_MOST = 4
_HEADER_BYTES = 64 * 1024  # for one line; there may be 128
_reused: ContextVar[bool] = ContextVar("mxclaw_connection_was_used_before", default=False)


@dataclass(frozen=True, slots=True)
class Route:
    """How a provider is reached; requests of equal routes share connections. ``trust`` None: nothing is encrypted."""

    proxy: Proxy | None
    trust: Trust | None


class Transport(httpx.AsyncBaseTransport):
    """One for each route and event loop.

    The request's extension ``ADDRESS`` is where it really goes: a query may hold a key and httpx logs the URL.
    """

    def __init__(self, route: Route) -> None:
        """Raises ConfigurationError for a proxy or certificates that cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if route.trust is None else tls_context(route.trust)
        self._carrier = _Direct(context) if route.proxy is None else _through(route.proxy, context)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it, and give the answer with its head read."""
        real = httpx.Request(
            request.method,
            request.extensions.get(ADDRESS, request.url),
            headers=request.headers,
            stream=request.stream,
            extensions=request.extensions,
        )
        return await self._carrier.handle_async_request(real)

    async def aclose(self) -> None:
        """End every connection."""
        await self._carrier.aclose()


class _Direct(httpx.AsyncBaseTransport):
    """``AiohttpTransport``, with a session for each request: one that is not closed complains when a kernel ends."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._connector: aiohttp.TCPConnector | None = None
        self._trace = aiohttp.TraceConfig()
        self._trace.on_connection_reuseconn.append(_note_reuse)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """That the server closed an idle connection meanwhile costs no try: the next connection gets the request."""
        if self._connector is None:
            self._connector = _Connector(
                ssl=self._context, limit=0, keepalive_timeout=_IDLE_S, resolver=_Resolver(), use_dns_cache=False
            )
        for stale_ones_left in reversed(range(_STALE_AT_MOST + 1)):
            _reused.set(False)
            session = aiohttp.ClientSession(
                connector=self._connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                max_line_size=_HEADER_BYTES,
                max_field_size=_HEADER_BYTES,
                trace_configs=[self._trace],
            )
            try:
                return await _carried(session, self._context, request)
            except httpx.HTTPError as error:
                stale = isinstance(error.__cause__, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError))
                if not (stale and _reused.get() and stale_ones_left):
                    raise
            finally:
                session.detach()
        raise AssertionError("the last try returns or raises")

    async def aclose(self) -> None:
        if self._connector is not None:
            await self._connector.close()


async def _carried(session: aiohttp.ClientSession, context: ssl.SSLContext, request: httpx.Request) -> httpx.Response:
    response: httpx.Response = await AiohttpTransport(verify=context, client=session).handle_async_request(request)
    return response


class _Connector(aiohttp.TCPConnector):
    """Says nothing when its loop ended without closing it; the system closes the sockets."""

    def __del__(self, _warnings: object = None) -> None:
        pass


class _Resolver(AbstractResolver):
    """Asks the system on a thread that ends with the question: the loop's own pool would keep one alive for good."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        def ask() -> list[ResolveResult]:
            try:
                infos = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
            except UnicodeError:
                raise OSError("the host name cannot be resolved") from None
            return [
                ResolveResult(
                    hostname=host,
                    host=socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0],
                    port=port,
                    family=found,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST,
                )
                for found, _, protocol, _, address in infos
            ]

        return await run_in_thread(ask, grace_s=0)

    async def close(self) -> None:
        pass


async def _note_reuse(_session: aiohttp.ClientSession, _context: SimpleNamespace, _: object) -> None:
    _reused.set(True)


def _through(proxy: Proxy, context: ssl.SSLContext) -> httpx.AsyncBaseTransport:
    limits = httpx.Limits(max_connections=None, keepalive_expiry=_IDLE_S)
    try:
        wanted = httpx.Proxy(proxy.url, ssl_context=context if proxy.secure else None)
        if not wanted.url.host:
            raise ValueError("no host")
        return httpx.AsyncHTTPTransport(verify=context, proxy=wanted, limits=limits)
    except ImportError:
        remedy = (
            'is a SOCKS proxy, for which the package socksio is missing; pip install "mxclaw_nb[socks]", or unset it'
        )
    except (ValueError, httpx.InvalidURL):
        remedy = "cannot be used; it must be an http, https or socks5 URL. Correct or unset it"
    raise ConfigurationError(f"The proxy in {proxy.variables} {remedy}.")
