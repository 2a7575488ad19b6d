"""Which certificates are trusted: the environment's CA bundle, else the system's and certifi's."""

from __future__ import annotations

import os
import ssl

from mxclaw_nb.protocol import ConfigurationError

_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

Trust = tuple[tuple[str, str], ...]


def trust_in_environment() -> Trust:
    """The variables that say whom to trust, as set now. ``REQUESTS_CA_BUNDLE`` counts only without the first two."""
    found = tuple((name, os.environ[name]) for name in _VARIABLES if os.environ.get(name))
    own = tuple(pair for pair in found if pair[0].startswith("SSL_"))
    return own or found[:1]


def tls_context(trust: Trust) -> ssl.SSLContext:
    """A context that trusts these, or the default authorities if there are none.

    Raises ConfigurationError naming the variable whose file cannot be used.
    """
    if not trust:
        context = ssl.create_default_context()
        import certifi

        context.load_verify_locations(certifi.where())
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for name, path in trust:
            try:
                if os.path.isdir(path):
                    context.load_verify_locations(capath=path)
                else:
                    context.load_verify_locations(cafile=path)
            except (OSError, ssl.SSLError):
                raise ConfigurationError(
                    f"The certificates that {name} names cannot be read ({path}); correct or unset the variable."
                ) from None
    context.set_alpn_protocols(["http/1.1"])
    return context
