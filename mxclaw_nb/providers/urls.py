"""Base URLs as people write them, and the addresses made from them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from mxclaw_nb.protocol import ConfigurationError

_CHAT = "/chat/completions"
_PORTS = {"http": 80, "https": 443}
_NOT_IN_URL = re.compile(r"[\x00-\x20\x7f\\<>\"^`{|}]")
_HOST = re.compile(r"[a-z0-9._~!$&'()*+,;=%-]+\Z")


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """A base URL in its parts. ``credentials`` (user, password) and ``query`` may be secret: never show them."""

    scheme: str
    host: str
    port: int
    path: str
    query: str = field(default="", repr=False)
    credentials: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def origin(self) -> str:
        """``scheme://host[:port]``: what may be shown to a person."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")

    @property
    def chat(self) -> str:
        """The address of chat completions, without the query; always exactly one ``/chat/completions``."""
        return f"{self.origin}{self.path}{_CHAT}"

    @property
    def models(self) -> str:
        """The address of the model list, without the query."""
        return f"{self.origin}{self.path}/models"

    def with_query(self, address: str) -> str:
        """The address with the query that the base URL came with."""
        return f"{address}?{self.query}" if self.query else address


def parse_base_url(text: str, provider: str) -> BaseUrl:
    """A base URL in any spelling: trailing slashes, the full address of chat completions, a query, IPv6, capitals.

    No ``/v1`` is invented and none is removed. Raises ConfigurationError with a sentence that shows no credentials.
    """
    text = text.strip()
    if not text:
        raise _bad(provider, "is empty", "set it, for example to https://api.openai.com/v1")
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator:
        raise _bad(provider, "has no scheme", "start it with https:// (or http:// for a server on this machine)")
    if scheme not in _PORTS:
        raise _bad(provider, "does not start with http:// or https://", "only these two can be asked")
    if _NOT_IN_URL.search(text):
        raise _bad(provider, "has a space or another character that no URL may have", "take it out")
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        port = parts.port or _PORTS[scheme]
        host = _host(parts.hostname or "")
    except ValueError:
        raise _bad(provider, "has a host or port that cannot be read", "check what is after ://") from None
    path = re.sub(r"/{2,}", "/", parts.path).rstrip("/")
    if path.lower().endswith(_CHAT):
        path = path[: -len(_CHAT)]
    credentials = None
    if parts.username is not None:
        credentials = (unquote(parts.username), unquote(parts.password or ""))
    return BaseUrl(scheme, host, port, path, parts.query, credentials)


def _host(host: str) -> str:
    if ":" in host:
        return host  # IPv6: urlsplit has checked it
    if not host.isascii():
        host = host.encode("idna").decode("ascii")
    if not _HOST.match(host):
        raise ValueError("host")
    return host


def _bad(provider: str, what: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"The base URL of provider {provider} {what}; {remedy}.")
