"""Which proxy the environment wants between us and a host, and how a tunnel through it is opened."""

from __future__ import annotations

import base64
import ipaddress
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies

from mxclaw_nb.protocol import ConfigurationError

from .http1 import ProtocolError, read_head, request_head

_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_SOCKS_ERRORS = {
    1: "general failure", 2: "not allowed", 3: "network unreachable", 4: "host unreachable", 5: "connection refused",
    6: "time ran out", 7: "command not supported", 8: "address type not supported",
}  # fmt: skip


class ProxyRefused(Exception):
    """The proxy would not connect us. ``status`` is its HTTP status, 0 for SOCKS."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy. Its credentials are shown nowhere."""

    scheme: str
    host: str
    port: int
    credentials: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def authorization(self) -> bytes | None:
        """The value of ``Proxy-Authorization``, if the proxy has credentials."""
        if self.credentials is None:
            return None
        return b"Basic " + base64.b64encode(":".join(self.credentials).encode())


class ByteStream(Protocol):
    """A connection before HTTP is spoken on it."""

    def write(self, data: bytes) -> None: ...

    async def read(self) -> bytes: ...

    def unread_bytes(self, data: bytes) -> None: ...


def proxy_for(scheme: str, host: str, port: int) -> Proxy | None:
    """The proxy for a request, from ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` as set now.

    Raises ConfigurationError for a proxy that cannot be used.
    """
    proxies = getproxies()
    text = proxies.get(scheme) or proxies.get("all")
    if not text or _excepted(host, port, proxies.get("no", "")):
        return None
    return _parse(text, "HTTPS_PROXY or ALL_PROXY" if scheme == "https" else "HTTP_PROXY or ALL_PROXY")


async def open_tunnel(stream: ByteStream, proxy: Proxy, host: str, port: int) -> None:
    """Have the proxy connect this stream to the host. Raises ProxyRefused, ProtocolError or OSError."""
    opener: Callable[[ByteStream, Proxy, str, int], Awaitable[None]]
    opener = _socks5 if proxy.scheme.startswith("socks") else _connect
    await opener(stream, proxy, host, port)


def authority(host: str, port: int) -> bytes:
    """``host:port``, an IPv6 address in brackets."""
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}").encode()


async def _connect(stream: ByteStream, proxy: Proxy, host: str, port: int) -> None:
    target = authority(host, port)
    headers = [(b"Host", target)]
    if proxy.authorization:
        headers.append((b"Proxy-Authorization", proxy.authorization))
    stream.write(request_head(b"CONNECT", target, headers))
    head, rest = await read_head(stream.read)
    if not 200 <= head.status < 300:
        raise ProxyRefused(f"status {head.status}", head.status)
    if rest:
        stream.unread_bytes(rest)


async def _socks5(stream: ByteStream, proxy: Proxy, host: str, port: int) -> None:
    """RFC 1928 and 1929; the proxy resolves the name."""
    received = bytearray()

    async def read(count: int) -> bytes:
        while len(received) < count:
            received.extend(await _more(stream))
        taken = bytes(received[:count])
        del received[:count]
        return taken

    stream.write(b"\x05\x01\x02" if proxy.credentials else b"\x05\x01\x00")
    version, method = await read(2)
    if version != 5:
        raise ProtocolError("the proxy does not speak SOCKS 5")
    if method == 2 and proxy.credentials:
        user, password = (part.encode()[:255] for part in proxy.credentials)
        stream.write(b"\x01%c%b%c%b" % (len(user), user, len(password), password))
        if (await read(2))[1]:
            raise ProxyRefused("it does not accept the user and password", 407)
    elif method:
        raise ProxyRefused("it wants a user and password", 407)
    name = host.encode()
    stream.write(b"\x05\x01\x00" + _socks_address(host, name) + struct.pack("!H", port))
    _, reply, _, kind = await read(4)
    if reply:
        raise ProxyRefused(_SOCKS_ERRORS.get(reply, f"error {reply}"))
    length = {1: 4, 4: 16}.get(kind)
    await read((length if length is not None else (await read(1))[0]) + 2)
    if received:
        stream.unread_bytes(bytes(received))


async def _more(stream: ByteStream) -> bytes:
    data = await stream.read()
    if not data:
        raise ProtocolError("the proxy closed the connection")
    return data


def _socks_address(host: str, name: bytes) -> bytes:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        if len(name) > 255:
            raise ProtocolError("the host name is too long for SOCKS") from None
        return b"\x03%c%b" % (len(name), name)
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed


def _parse(text: str, variable: str) -> Proxy:
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
    if scheme == "socks":
        scheme = "socks5"
    if scheme not in _PORTS or not host:
        raise ConfigurationError(
            f"The proxy in {variable} cannot be used; it must be an http, https or socks5 URL. Correct or unset it."
        )
    credentials = None
    if parts.username is not None:
        credentials = (unquote(parts.username), unquote(parts.password or ""))
    return Proxy(scheme, host, port or _PORTS[scheme], credentials)


def _excepted(host: str, port: int, no_proxy: str) -> bool:
    """Whether ``NO_PROXY`` names the host: exactly, by domain, by address range, or all hosts with ``*``."""
    host = host.lower().rstrip(".")
    for raw in no_proxy.split(","):
        entry = raw.strip().lower()
        if not entry:
            continue
        if entry == "*":
            return True
        if "/" in entry and _in_range(host, entry):
            return True
        name, colon, number = entry.rpartition(":")
        if colon and number.isdigit() and not (":" in name and not name.endswith("]")):
            if int(number) != port:
                continue
            entry = name
        entry = entry.strip("[]").removeprefix("*").lstrip(".").rstrip(".")
        if entry and (host == entry or host.endswith(f".{entry}")):
            return True
    return False


def _in_range(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
