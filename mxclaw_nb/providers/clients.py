"""One ``httpx.AsyncClient`` for each event loop, closed with its loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

_CLOSE_S = 2.0

_Lifetime = AsyncGenerator["httpx.AsyncClient", None]


class Clients:
    """Gives the running loop's client. Turns may run on several loops; a connection belongs to one of them.

    A client lives in an async generator: ``asyncio.run`` closes those before it closes the loop, so no socket
    outlives its loop even if nobody calls ``aclose``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lifetimes: dict[asyncio.AbstractEventLoop, tuple[httpx.AsyncClient, _Lifetime]] = {}

    async def get(self) -> httpx.AsyncClient:
        """The client of the running loop, made on first need."""
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._lifetimes.get(loop)
        if found is not None and not found[0].is_closed:
            return found[0]
        lifetime = _lifetime()
        client = await anext(lifetime)
        with self._lock:
            for other in [other for other in self._lifetimes if other.is_closed()]:
                del self._lifetimes[other]
            self._lifetimes[loop] = (client, lifetime)
        return client

    async def aclose(self) -> None:
        """Close every client, those of other running loops too (2 s at most for each)."""
        with self._lock:
            lifetimes = list(self._lifetimes.items())
            self._lifetimes.clear()
        here = asyncio.get_running_loop()
        for loop, (client, lifetime) in lifetimes:
            if loop is here:
                await lifetime.aclose()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(client.aclose(), loop)
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.wrap_future(closing), _CLOSE_S)


async def _lifetime() -> _Lifetime:
    import httpx  # 60 ms: loaded by the first request

    from .transport import StreamTransport

    client = httpx.AsyncClient(transport=StreamTransport(), trust_env=False, follow_redirects=False)
    try:
        yield client
    finally:
        await client.aclose()
