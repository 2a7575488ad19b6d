"""Sending a request and getting the head of its answer: redirects, refusals, and what could not be reached.

The only module besides the transport that knows httpx; loaded with the first request.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import httpx

from mxclaw_nb.protocol import ConfigurationError, Settings

from .decoding import BodyDecoder, UndecodableBody
from .errors import failure_of_body
from .outcome import Broken, cut_off, refused, too_slow, unreachable
from .retry import RetryPolicy
from .target import Target
from .transport import DIRECT, EXCHANGE, CertificateError, Exchange, ProxyDenied
from .watchdog import StreamTooSlow

BREAKS = (httpx.HTTPError, UndecodableBody, StreamTooSlow)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_FOLLOWED = frozenset({307, 308})  # the others would turn the request into another one
_FOLLOWED_AT_MOST = 3
_ERROR_BYTES = 64 * 1024
_ERROR_BODY_S = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with a successful status; its body is still to be read."""

    exchange: Exchange
    decoder: BodyDecoder
    content_type: str


async def ask(
    client: httpx.AsyncClient, target: Target, address: str, body: bytes | None, settings: Settings, policy: RetryPolicy
) -> Answer | Broken:
    """Send one request (POST with a body, else GET). Raises ConfigurationError; everything else comes back."""
    failure: Exception
    try:
        return await _ask(client, target, address, body, settings, policy)
    except (*BREAKS, httpx.InvalidURL) as error:
        failure = error
    return broken_by(failure, target)  # outside of the handler: an exception of httpx holds the request and its key


async def read_body(answer: Answer, limit: int, seconds: float) -> bytes:
    """The whole body, at most ``limit`` bytes of it. Raises one of BREAKS, or TimeoutError."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in answer.exchange:
                for piece in answer.decoder.feed(chunk):
                    parts.append(piece[: limit - size])
                    size += len(parts[-1])
                if size >= limit:
                    break
    finally:
        await answer.exchange.aclose()
    return b"".join(parts)


def broken_by(error: Exception, target: Target) -> Broken:
    """What an exception of asking or reading (one of BREAKS) means."""
    reason = str(error)
    match error:
        case StreamTooSlow():
            return too_slow(reason, target)
        case UndecodableBody():
            return cut_off(reason, target, again=False)
        case CertificateError():
            remedy = "If your network uses its own authority, name its file in SSL_CERT_FILE."
            return unreachable(f"its certificate is not trusted: {reason}", target, again=False, remedy=remedy)
        case ProxyDenied():
            remedy = "Check the proxy and its credentials in HTTPS_PROXY or ALL_PROXY, or name the host in NO_PROXY."
            return unreachable(reason, target, again=False, remedy=remedy)
        case httpx.ConnectError() | httpx.ConnectTimeout() | httpx.ProxyError():
            return unreachable(reason, target)
        case httpx.ReadTimeout() | httpx.WriteTimeout():
            return too_slow("did not answer in time (first_byte_timeout_s)", target)
        case httpx.LocalProtocolError() | httpx.InvalidURL():
            raise ConfigurationError(f"Provider {target.name} cannot be asked: {target.clean(reason)}.") from None
        case _:
            return cut_off(reason or type(error).__name__, target)


async def _ask(
    client: httpx.AsyncClient,
    target: Target,
    address: str,
    body: bytes | None,
    settings: Settings,
    policy: RetryPolicy,
) -> Answer | Broken:
    timeout = httpx.Timeout(
        settings.idle_timeout_s, connect=settings.connect_timeout_s, read=settings.first_byte_timeout_s
    )
    headers = dict(target.headers)
    if body is not None:
        headers["Content-Type"] = "application/json"
    # A query may hold a key and httpx logs the URL, so the query travels beside it.
    raw_target = httpx.URL(target.base.with_query(address)).raw_path
    url = httpx.URL(address)
    for _ in range(_FOLLOWED_AT_MOST + 1):
        extensions: dict[str, object] = {"target": raw_target, DIRECT: target.endpoint.direct}
        request = client.build_request(
            "GET" if body is None else "POST",
            url,
            content=body,
            headers=headers,
            timeout=timeout,
            extensions=extensions,
        )
        response = await client.send(request, stream=True)
        exchange = response.extensions[EXCHANGE]
        assert isinstance(exchange, Exchange)
        answer = Answer(exchange, _decoder(response), response.headers.get("content-type", ""))
        if response.status_code in _REDIRECTS and "location" in response.headers:
            await exchange.aclose()
            try:
                there = url.join(response.headers["location"])
            except httpx.InvalidURL:
                there = httpx.URL("")
            same = (there.scheme, there.host, there.port) == (url.scheme, url.host, url.port)
            if same and response.status_code in _FOLLOWED:
                url, raw_target = there.copy_with(query=None), there.raw_path
                continue
            return _redirected(response.status_code, there, target)
        if response.is_success:
            return answer
        return await _refusal(response, answer, target, policy)
    return cut_off("it redirects in a circle", target, again=False)


async def _refusal(response: httpx.Response, answer: Answer, target: Target, policy: RetryPolicy) -> Broken:
    try:
        body = await read_body(answer, _ERROR_BYTES, _ERROR_BODY_S)
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


def _decoder(response: httpx.Response) -> BodyDecoder:
    return BodyDecoder(response.headers.get("content-encoding", ""))
