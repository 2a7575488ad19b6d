"""What the exceptions of the libraries that carry a request mean."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Iterator

import aiohttp
import httpx
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from mxclaw_nb.protocol import ConfigurationError

from .body import StreamTooSlow, UndecodableBody
from .outcome import Broken, cut_off, too_slow, unreachable
from .target import Target
from .transport import CARRIER_ERRORS
from .upload import AnswerTooLate, ConnectTooLate

BREAKS = (*CARRIER_ERRORS, UndecodableBody, StreamTooSlow, AnswerTooLate)
_REFUSED_FOR_GOOD = re.compile(r"4(?!08|29)\d\d |.*(?:password|authentication|from proxy server)", re.I)


def broken_by(error: Exception, target: Target) -> Broken:
    """What an exception of asking or reading (one of BREAKS) means. Raises ConfigurationError for a bad address."""
    chain = list(_chain(error))
    reason = _reason(chain)
    cause = next((link for link in chain if isinstance(link, (aiohttp.ClientError, HttpProcessingError))), error)
    if any(isinstance(link, ssl.SSLCertVerificationError) for link in chain):
        remedy = "If your network uses its own authority, name its file in SSL_CERT_FILE."
        return unreachable(f"its certificate is not trusted: {reason}", target, again=False, remedy=remedy)
    match cause:
        case ConnectTooLate():
            return unreachable(str(cause), target)
        case AnswerTooLate() | StreamTooSlow():
            return too_slow(str(cause), target)
        case UndecodableBody():
            return cut_off(str(cause), target, again=False)
        case httpx.DecodingError():
            return cut_off("it is not encoded as it says it is", target, again=False)
        case httpx.ProxyError():
            remedy = "Check the proxy and its credentials in HTTPS_PROXY or ALL_PROXY, or name the host in NO_PROXY."
            again = not _REFUSED_FOR_GOOD.match(str(cause))
            return unreachable(f"the proxy refused: {reason}", target, again=again, remedy=remedy)
        case httpx.InvalidURL() | httpx.UnsupportedProtocol() | httpx.LocalProtocolError() | aiohttp.InvalidURL():
            raise ConfigurationError(f"Provider {target.name} cannot be asked: {target.clean(reason)}.") from None
        case aiohttp.ServerTimeoutError() | httpx.TimeoutException():
            return unreachable("connecting took too long", target)
        case aiohttp.ClientConnectorError() | httpx.ConnectError():
            return unreachable(reason, target)
        case aiohttp.ServerDisconnectedError():
            return cut_off("the connection was closed before an answer came", target)
        case aiohttp.ClientPayloadError():
            return cut_off("the connection was closed in the middle of the answer", target)
        case LineTooLong():
            return cut_off("the head of the answer is too long", target)
        case aiohttp.ClientResponseError() | HttpProcessingError():
            return cut_off(f"the answer is not HTTP: {reason}", target)
        case _:
            return cut_off(reason, target)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, what caused it, what caused that, and so on."""
    link: BaseException | None = error
    for _ in range(12):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__


def _reason(chain: list[BaseException]) -> str:
    """The innermost reason in the system's own words, without numbers and addresses of its internals."""
    for link in reversed(chain):
        if isinstance(link, ssl.SSLCertVerificationError):
            return link.verify_message or "the certificate is not trusted"
        if isinstance(link, ssl.SSLError):
            return f"TLS failed: {(link.reason or 'unknown reason').replace('_', ' ').lower()}"
        if isinstance(link, socket.gaierror):
            return link.strerror or "the name cannot be resolved"
        if isinstance(link, OSError) and link.errno and link.errno > 0:
            return os.strerror(link.errno)
    error = chain[0]
    text = error.message if isinstance(error, (aiohttp.ClientResponseError, HttpProcessingError)) else str(error)
    return next((line.strip(" :") for line in text.splitlines() if line.strip(" :^")), type(error).__name__)
