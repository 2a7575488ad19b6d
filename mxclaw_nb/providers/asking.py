"""Sending a request and getting the head of its answer: redirects, refusals, and what could not be reached.

Loaded with the first request, like everything that knows httpx.
"""

from __future__ import annotations

import httpx

from mxclaw_nb.protocol import Settings

from .body import Body
from .breaks import BREAKS, broken_by
from .clients import Clients
from .errors import failure_of_body
from .outcome import Broken, cut_off, refused, unreachable
from .proxies import proxy_for
from .retry import RetryPolicy
from .target import Target
from .tls import trust_in_environment
from .transport import ADDRESS, Route
from .upload import Upload

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_FOLLOWED = frozenset({307, 308})  # the others would turn the request into another one
_FOLLOWED_AT_MOST = 3
_ERROR_BYTES = 64 * 1024
_ERROR_BODY_S = 10.0


async def ask(
    clients: Clients, target: Target, address: str, body: bytes | None, settings: Settings, policy: RetryPolicy
) -> Body | Broken:
    """Send one request (POST with a body, else GET) and give the body of a success.

    Raises ConfigurationError; everything else comes back.
    """
    failure: Exception
    try:
        return await _ask(await clients.get(route_to(target)), target, address, body, settings, policy)
    except BREAKS as error:
        failure = error
    return broken_by(failure, target)  # outside of the handler: an exception of httpx holds the request and its key


def route_to(target: Target) -> Route:
    """How the environment, as it is now, wants a target to be reached."""
    base = target.base
    proxy = None if target.endpoint.direct else proxy_for(base.scheme, base.host, base.port)
    secure = base.scheme == "https" or (proxy is not None and proxy.secure)
    return Route(proxy, trust_in_environment() if secure else None)


async def _ask(
    client: httpx.AsyncClient,
    target: Target,
    address: str,
    body: bytes | None,
    settings: Settings,
    policy: RetryPolicy,
) -> Body | Broken:
    connect = settings.connect_timeout_s
    headers = dict(target.headers)
    if body is not None:
        headers |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    # A query may hold a key and httpx logs the URL, so the real address travels beside it.
    url, real = httpx.URL(address), httpx.URL(target.base.with_query(address))
    for _ in range(_FOLLOWED_AT_MOST + 1):
        upload = Upload(body or b"", settings)
        request = client.build_request(
            "GET" if body is None else "POST",
            url,
            headers=headers,
            timeout=httpx.Timeout(None, connect=connect, pool=connect),
            extensions={ADDRESS: real},
        )
        if body is not None:
            request.stream = upload
        async with upload.in_time():
            response = await client.send(request, stream=True)
        answer = Body(response)
        if response.status_code in _REDIRECTS and "location" in response.headers:
            await answer.aclose()
            try:
                there = url.join(response.headers["location"])
            except httpx.InvalidURL:
                there = httpx.URL("")
            same = (there.scheme, there.host, there.port) == (url.scheme, url.host, url.port)
            if same and response.status_code in _FOLLOWED:
                url, real = there.copy_with(query=None), there
                continue
            return _redirected(response.status_code, there, target)
        if response.is_success:
            return answer
        return await _refusal(response, answer, target, policy)
    return cut_off("it redirects in a circle", target, again=False)


async def _refusal(response: httpx.Response, answer: Body, target: Target, policy: RetryPolicy) -> Broken:
    try:
        body = await answer.read_all(_ERROR_BYTES, _ERROR_BODY_S)
    except (*BREAKS, TimeoutError):
        body = b"its message could not be read"
    failure = failure_of_body(response.status_code, body)
    return refused(failure, target, policy, policy.retry_after(response.headers))


def _redirected(status: int, there: httpx.URL, target: Target) -> Broken:
    port = f":{there.port}" if there.port else ""
    where = f"{there.scheme}://{there.host}{port}{there.path}" if there.host else "an unreadable address"
    return unreachable(
        f"it redirects with status {status} to {where}, which is not followed with a key",
        target,
        again=False,
        remedy="If you trust that address, make it the base URL.",
    )
