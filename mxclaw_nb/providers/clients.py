"""``httpx.AsyncClient``s: one for each route on each event loop, closed with their loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from .transport import Route, Transport

_CLOSE_S = 2.0

_Pool = dict[Route, httpx.AsyncClient]
_Lifetime = AsyncGenerator[_Pool, None]


class Clients:
    """Gives the running loop's clients. Turns may run on several loops; a connection belongs to one of them.

    The clients of a loop live in an async generator: ``asyncio.run`` closes those before it closes the loop, so no
    socket outlives its loop even if nobody calls ``aclose``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lifetimes: dict[asyncio.AbstractEventLoop, tuple[_Pool, _Lifetime]] = {}

    async def get(self, route: Route) -> httpx.AsyncClient:
        """The client of the running loop for a route, made on first need. Raises ConfigurationError."""
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._lifetimes.get(loop)
        if found is None:
            lifetime = _lifetime()
            found = (await anext(lifetime), lifetime)
            with self._lock:
                for other in [other for other in self._lifetimes if other.is_closed()]:
                    del self._lifetimes[other]
                self._lifetimes[loop] = found
        pool = found[0]
        client = pool.get(route)
        if client is None:
            client = pool[route] = _client(route)
        return client

    async def aclose(self) -> None:
        """Close every client, those of other running loops too (2 s at most for each loop)."""
        with self._lock:
            lifetimes = list(self._lifetimes.items())
            self._lifetimes.clear()
        here = asyncio.get_running_loop()
        for loop, (pool, lifetime) in lifetimes:
            if loop is here:
                await lifetime.aclose()
                await _close(pool)  # in case that the generator was ended before its loop
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(_close(pool), loop)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_CLOSE_S):
                        await asyncio.wrap_future(closing)


def _client(route: Route) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=Transport(route),
        trust_env=False,  # a route has what the environment says
        follow_redirects=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    )


async def _lifetime() -> _Lifetime:
    pool: _Pool = {}
    try:
        yield pool
    finally:
        await _close(pool)


async def _close(pool: _Pool) -> None:
    while pool:
        _, client = pool.popitem()
        await client.aclose()
