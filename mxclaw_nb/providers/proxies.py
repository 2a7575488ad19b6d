"""Which proxy the environment wants between us and an address."""

from __future__ import annotations

import ipaddress
import os
import sys
from dataclasses import dataclass, field
from urllib.request import getproxies, proxy_bypass

_VARIABLES = tuple(spelled for name in ("http_proxy", "https_proxy", "all_proxy") for spelled in (name, name.upper()))


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy as the environment spells it (its URL may hold a password), and the variables that may name it."""

    url: str = field(repr=False)
    variables: str

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken with the proxy itself."""
        return self.url.lower().startswith("https:")


def proxy_for(scheme: str, host: str, port: int) -> Proxy | None:
    """The proxy for an address, from ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` as set now.

    The rules are the standard library's, so that those of other Python programs are met; of a host that is an
    address ``NO_PROXY`` may name the network too.
    """
    if not _any_named():
        return None
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if not proxy or proxy_bypass(authority) or proxy_bypass(host) or _in_range(host):
        return None
    return Proxy(proxy if "://" in proxy else f"http://{proxy}", f"{scheme.upper()}_PROXY or ALL_PROXY")


def _any_named() -> bool:
    """Whether there can be a proxy at all: asked for every request, and ``getproxies`` reads the whole environment.

    On macOS and Windows the system's settings count too.
    """
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, _VARIABLES))


def _in_range(host: str) -> bool:
    """Whether the host is an address within a network of ``NO_PROXY``."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for entry in (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").split(","):
        try:
            if "/" in entry and address in ipaddress.ip_network(entry.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False
