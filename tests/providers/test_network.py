"""Proxies and certificates as the environment names them: real proxies, a real authority, on loopback."""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import ipaddress
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mxclaw_nb.protocol import Completion, ConfigurationError, ModelError, Settings
from mxclaw_nb.providers.proxies import proxy_for
from tests.providers.loopback import (
    BOUND_S,
    STOP,
    Loopback,
    Outcome,
    Peer,
    answer,
    ask,
    consume,
    delta,
    frames,
    head,
    provider_for,
    run,
    stream,
)

NAME = "tests' own authority"
GOOD = stream(frames(delta(content="hi"), STOP))
VARIABLES = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@dataclass
class TinyProxy:
    """Forwards HTTP, opens CONNECT tunnels and speaks SOCKS 5; every name leads to loopback."""

    user: tuple[str, str] | None = None
    tls: ssl.SSLContext | None = None
    seen: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)

    def __enter__(self) -> TinyProxy:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True)
        self._thread.start()
        assert started.wait(BOUND_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(BOUND_S)

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._stop, self._tasks = asyncio.get_running_loop(), asyncio.Event(), set[asyncio.Task[None]]()
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0, ssl=self.tls)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            first = await reader.readexactly(1)
            await (self._socks(reader, writer) if first == b"\x05" else self._http(first, reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _http(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        method, target, _ = head.split("\r\n")[0].split(" ")
        if self.user is not None:
            token = base64.b64encode(":".join(self.user).encode()).decode()
            if f"proxy-authorization: basic {token}".lower() not in head.lower():
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
        self.seen.append(f"{method} {target}")
        if method == "CONNECT":
            there = await asyncio.open_connection("127.0.0.1", int(target.rpartition(":")[2]))
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            assert target.startswith("http://")
            authority, _, path = target.removeprefix("http://").partition("/")
            there = await asyncio.open_connection("127.0.0.1", int(authority.rpartition(":")[2]))
            there[1].write(head.replace(target, f"/{path}", 1).encode())
        await self._pump(reader, writer, *there)

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        wanted = 2 if self.user else 0
        if wanted not in methods:
            writer.write(b"\x05\xff")
            return
        writer.write(bytes((5, wanted)))
        if self.user:
            await reader.readexactly(1)
            user = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
            password = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
            good = (user, password) == self.user
            writer.write(bytes((1, not good)))
            if not good:
                return
        _, _, _, kind = await reader.readexactly(4)
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            host = str(ipaddress.ip_address(await reader.readexactly(4 if kind == 1 else 16)))
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.seen.append(f"SOCKS {host}:{port}")
        there = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        await self._pump(reader, writer, *there)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        from_there: asyncio.StreamReader,
        to_there: asyncio.StreamWriter,
    ) -> None:
        async def one_way(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
            sink.close()

        try:
            await asyncio.gather(one_way(reader, to_there), one_way(from_there, writer))
        finally:
            to_there.close()


@dataclass(frozen=True)
class Authority:
    """A certificate authority of our own, and a server context it vouches for."""

    bundle: Path
    folder: Path
    server: ssl.SSLContext


def subject_hash(common_name: str) -> str:
    """The file name under which OpenSSL looks for an authority in a folder (X509_NAME_hash of a bare common name)."""

    def der(tag: int, content: bytes) -> bytes:
        return bytes((tag, len(content))) + content

    oid = der(0x06, b"\x55\x04\x03")
    name = der(0x31, der(0x30, oid + der(0x0C, common_name.lower().encode())))
    return hashlib.sha1(name).digest()[:4][::-1].hex()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder = tmp_path_factory.mktemp("authority")
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)

    def build(subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(ca_name).public_key(public_key)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(1))
        return builder.not_valid_after(now + datetime.timedelta(1))

    ca = (
        build(ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .add_extension(x509.KeyUsage(False, False, False, False, False, True, True, False, False), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    names = [
        x509.DNSName("localhost"),
        x509.DNSName("model.example"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    leaf = (
        build(x509.Name([]), key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    bundle, chain = folder / "ca.pem", folder / "server.pem"
    bundle.write_bytes(ca.public_bytes(pem))
    chain.write_bytes(
        leaf.public_bytes(pem) + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    hashed = folder / "hashed"
    hashed.mkdir()
    (hashed / f"{subject_hash(NAME)}.0").write_bytes(bundle.read_bytes())
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain)
    return Authority(bundle, hashed, server)


@pytest.fixture
def secure(authority: Authority) -> Iterator[Loopback]:
    with Loopback([GOOD], tls=authority.server, host="localhost") as server:
        yield server


def said(outcome: Outcome) -> str:
    assert outcome.error is None, outcome.error
    completion = outcome.items[-1]
    assert isinstance(completion, Completion)
    return completion.text


# Certificates


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_an_authority_of_the_environment_is_trusted(
    variable: str, authority: Authority, secure: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(authority.bundle))
    assert said(run(secure.url)) == "hi"


@pytest.mark.parametrize("variable", ["SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"])
def test_a_folder_of_authorities_is_trusted(
    variable: str, authority: Authority, secure: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(authority.folder))
    assert said(run(secure.url)) == "hi"


def test_an_unknown_authority_is_refused_at_once_with_a_remedy(secure: Loopback) -> None:
    outcome = run(secure.url)
    assert type(outcome.error) is ModelError
    assert "not trusted" in outcome.error.message
    assert "SSL_CERT_FILE" in outcome.error.message
    assert outcome.waits == []
    assert not secure.requests


def test_a_certificate_of_another_host_is_refused(
    authority: Authority, secure: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    with TinyProxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        outcome = run(f"https://other.example:{secure.port}/v1")
    assert type(outcome.error) is ModelError
    assert "not trusted" in outcome.error.message


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_bundle_that_cannot_be_read_names_its_variable(
    content: bytes | None, secure: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bundle.pem"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(path))
    outcome = run(secure.url)
    assert type(outcome.error) is ConfigurationError
    assert "REQUESTS_CA_BUNDLE" in outcome.error.message


def test_tls_where_there_is_none_and_the_reverse_are_errors(authority: Authority, secure: Loopback) -> None:
    with Loopback([GOOD]) as plain:
        hasty = Settings(connect_timeout_s=0.3)
        assert type(run(plain.url.replace("http://", "https://"), settings=hasty).error) is ModelError
    assert type(run(secure.url.replace("https://", "http://")).error) is ModelError


def test_a_large_request_goes_through_tls(
    authority: Authority, secure: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    assert said(run(secure.url, ask("x" * 5_000_000))) == "hi"
    assert len(secure.requests[0].body) > 5_000_000


@pytest.mark.parametrize("through", [False, True])
def test_the_server_sees_a_cancelled_client_leave_a_secure_connection_at_once(
    through: bool, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, left = threading.Event(), threading.Event()

    async def script(peer: Peer) -> None:
        await peer.send(head(200, [("Connection", "close")]) + frames(delta(content="a"), done=False))
        ready.set()
        await peer.until_gone()
        left.set()
        peer.writer.close()

    async def main(url: str) -> float:
        provider = provider_for(url)
        task = asyncio.ensure_future(consume(provider, ask()))
        assert await asyncio.to_thread(ready.wait, 5)
        await asyncio.sleep(0.05)
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(left.wait, 5)
        took = time.monotonic() - started
        await provider.aclose()
        return took

    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    with Loopback([script], tls=authority.server, host="localhost") as server, TinyProxy() as proxy:
        if through:
            monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        assert asyncio.run(main(server.url)) < 0.2


# Proxies


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
@pytest.mark.parametrize("spelling", ["http://127.0.0.1:{}", "127.0.0.1:{}", "http://127.0.0.1:{}/"])
def test_plain_requests_are_forwarded(variable: str, spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Loopback([GOOD]) as server, TinyProxy() as proxy:
        monkeypatch.setenv(variable, spelling.format(proxy.port))
        assert said(run(f"http://model.example:{server.port}/v1?a=b")) == "hi"
        assert proxy.seen == [f"POST http://model.example:{server.port}/v1/chat/completions?a=b"]
        assert server.requests[0].headers["host"] == f"model.example:{server.port}"


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_secure_requests_go_through_a_tunnel(
    variable: str, authority: Authority, secure: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    with TinyProxy() as proxy:
        monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.port}")
        assert said(run(f"https://model.example:{secure.port}/v1")) == "hi"
        assert proxy.seen == [f"CONNECT model.example:{secure.port}"]
        assert "sk-secret" not in "".join(proxy.heads)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_behind_tls_is_used(
    scheme: str, authority: Authority, secure: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    with TinyProxy(tls=authority.server) as proxy, Loopback([GOOD]) as plain:
        monkeypatch.setenv("ALL_PROXY", f"https://localhost:{proxy.port}")
        port = secure.port if scheme == "https" else plain.port
        assert said(run(f"{scheme}://model.example:{port}/v1")) == "hi"
        assert len(proxy.seen) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("kind", ["socks5", "socks5h"])
@pytest.mark.parametrize("user", [None, ("me", "p@ss")])
def test_socks_proxies_are_used(
    scheme: str,
    kind: str,
    user: tuple[str, str] | None,
    authority: Authority,
    secure: Loopback,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    with TinyProxy(user=user) as proxy, Loopback([GOOD]) as plain:
        monkeypatch.setenv("ALL_PROXY", f"{kind}://{'me:p%40ss@' if user else ''}127.0.0.1:{proxy.port}")
        port = secure.port if scheme == "https" else plain.port
        assert said(run(f"{scheme}://model.example:{port}/v1")) == "hi"
        assert proxy.seen == [f"SOCKS model.example:{port}"]


def test_credentials_go_to_the_proxy_and_nowhere_else(
    authority: Authority, secure: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    with TinyProxy(user=("me", "p@ss")) as proxy, Loopback([GOOD]) as plain:
        monkeypatch.setenv("ALL_PROXY", f"http://me:p%40ss@127.0.0.1:{proxy.port}")
        assert said(run(f"http://model.example:{plain.port}/v1")) == "hi"
        assert said(run(f"https://model.example:{secure.port}/v1")) == "hi"
        assert "proxy-authorization" not in secure.requests[0].headers


@pytest.mark.parametrize("kind", ["http", "socks5"])
@pytest.mark.parametrize("given", ["", "me:wrong-secret@"])
def test_a_proxy_that_refuses_us_is_named_without_its_password(
    kind: str, given: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    with TinyProxy(user=("me", "p@ss")) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"{kind}://{given}127.0.0.1:{proxy.port}")
        outcome = run("https://model.example/v1")
    assert type(outcome.error) is ModelError
    assert "proxy" in outcome.error.message
    assert "wrong-secret" not in outcome.error.message
    assert outcome.waits == []


def test_a_query_is_not_logged_on_the_way_through_a_proxy(
    authority: Authority, secure: Loopback, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    caplog.set_level("DEBUG")
    with TinyProxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        assert said(run(f"https://model.example:{secure.port}/v1?api-key=verysecretvalue")) == "hi"
    assert "verysecretvalue" in secure.requests[0].target
    assert "verysecretvalue" not in caplog.text
    assert "sk-secret" not in caplog.text


def test_a_socks_proxy_without_its_package_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    outcome = run("http://model.example/v1")
    assert type(outcome.error) is ConfigurationError
    assert "mxclaw_nb[socks]" in outcome.error.message
    with Loopback([GOOD]) as server:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert said(run(server.url)) == "hi", "where it is not needed nobody misses it"


@pytest.mark.parametrize("through", [True, False])
def test_cookies_are_not_kept(through: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cookie = answer(500, b"", [("Set-Cookie", "session=1; Path=/")])
    with Loopback([cookie, cookie, GOOD]) as server, TinyProxy() as proxy:
        if through:
            monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        assert said(run(server.url)) == "hi"
        assert not any("cookie" in request.headers for request in server.requests)


def test_a_change_of_the_environment_takes_effect_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with Loopback([GOOD]) as server, TinyProxy() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        assert said(run(server.url)) == "hi"
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert said(run(server.url)) == "hi"
        assert len(proxy.seen) == 1


def test_a_direct_endpoint_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with Loopback([GOOD]) as server:
        assert said(run(server.url, direct=True)) == "hi"


@pytest.mark.parametrize("value", ["ftp://h:1", "http://", "http://h:port", "://"])
def test_a_proxy_that_cannot_be_used_is_a_sentence(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", value)
    outcome = run("http://model.example/v1")
    assert type(outcome.error) is ConfigurationError
    assert "HTTP_PROXY" in outcome.error.message


@pytest.mark.parametrize(
    ("no_proxy", "host", "excepted"),
    [
        ("model.example", "model.example", True),
        ("model.example", "a.model.example", True),
        (".model.example", "a.model.example", True),
        ("model.example", "othermodel.example", False),
        ("MODEL.example", "model.EXAMPLE", True),
        ("a,b , model.example", "model.example", True),
        ("*", "anything", True),
        ("model.example:8443", "model.example", True),
        ("model.example:1", "model.example", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("::1", "::1", True),
        ("[::1]:8443", "::1", True),
        ("fd00::/8", "fd00::1", True),
        ("", "model.example", False),
        (",,", "model.example", False),
    ],
)
def test_hosts_that_need_no_proxy(no_proxy: str, host: str, excepted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert (proxy_for("https", host, 8443) is None) == excepted
