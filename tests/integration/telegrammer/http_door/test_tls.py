"""TLS and proxies: who is spoken to is who was meant."""

import contextlib
import socket
from collections.abc import Iterator

import pytest
import trustme

from support.doors import (
    drips_body,
    drips_chunks,
    drips_head,
    fails,
    never_reads,
    post,
    server_context,
    shown,
    silent,
    takes,
)
from support.peers import Connection, Peer, Serve, answering, relay, response
from support.running_api import free_port
from telegrammer import tls
from telegrammer.errors import TimedOut, Unreachable
from telegrammer.http import Door, Limits
from telegrammer.settings import Secret


@contextlib.contextmanager
def opened(proxy: str = "") -> Iterator[Door]:
    """Yield a door that trusts what is trusted by now."""
    with contextlib.closing(Door(Secret(proxy) if proxy else None)) as door:
        yield door


# TLS


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_bytes_that_nobody_asked_for_are_not_the_next_answer(
    trusted: trustme.CA, scheme: str
) -> None:
    """In one segment with the answer, they are off the wire before anything could see them.

    Over TLS in a record of their own, which stays where TLS is undone.
    """

    def serve(connection: Connection) -> None:
        while connection.read_request():
            connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            connection.send(response(b"answer"))
            connection.send(response(b"extra"))
            connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)

    context = server_context(trusted, "127.0.0.1") if scheme == "https" else None
    with Peer(serve, context) as peer, opened() as door:
        assert [post(door, peer.url(scheme=scheme)) for _ in range(3)] == [b"answer"] * 3


def test_a_door_with_a_context_reads_no_file(
    trusted: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens doors while it runs reads the authorities once, before."""
    ours = tls.client_context()
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
    with (
        contextlib.closing(Door(context=ours)) as door,
        Peer(answering(response(b"safe")), server_context(trusted, "127.0.0.1")) as peer,
    ):
        assert post(door, peer.url(scheme="https")) == b"safe"


def test_a_server_of_a_trusted_authority_is_accepted(trusted: trustme.CA) -> None:
    context = server_context(trusted, "127.0.0.1")
    with (
        Peer(answering(response(b"x" * 90_000)), context) as peer,
        opened() as door,
    ):
        for _ in range(3):
            assert post(door, peer.url(scheme="https"), body=b"y" * 90_000) == b"x" * 90_000
        assert peer.accepted == 1


def test_a_server_of_an_unknown_authority_is_refused(trusted: trustme.CA) -> None:
    context = server_context(trustme.CA(), "127.0.0.1")
    with Peer(silent, context) as peer, opened() as door, fails(Unreachable, "tls_failed"):
        post(door, peer.url(scheme="https"))


def test_a_certificate_for_another_name_is_refused(trusted: trustme.CA) -> None:
    context = server_context(trusted, "127.0.0.2", "other.test")
    with Peer(silent, context) as peer, opened() as door, fails(Unreachable, "tls_failed"):
        post(door, peer.url(scheme="https"))


def test_a_server_without_tls_is_refused(door: Door) -> None:
    with Peer(answering(response(b"plain"))) as peer, fails(Unreachable, "tls_failed"):
        post(door, peer.url(scheme="https"), Limits(connect=0.5, total=5, size=1000))


@pytest.mark.parametrize("serve", [silent, drips_head, drips_body, drips_chunks, never_reads])
def test_the_total_time_is_hard_over_tls_too(trusted: trustme.CA, serve: Serve) -> None:
    body = b"x" * 20_000_000 if serve is never_reads else b"{}"
    context = server_context(trusted, "127.0.0.1")
    limits = Limits(connect=5, total=0.4, size=100_000)
    with Peer(serve, context) as peer, opened() as door:
        url = peer.url(scheme="https")
        with takes(0.4, 2), fails(TimedOut, "timeout"):
            post(door, url, limits, body)


# Proxies


class Proxy:
    """A proxy that leads every tunnel to one port; what it was asked for is in ``asked``."""

    def __init__(self, target: int, kind: str, credential: str = "") -> None:
        self.asked: list[str] = []
        self._target = target
        self._credential = credential
        self.serve: Serve = self._socks if kind == "socks5h" else self._connect

    def _connect(self, connection: Connection) -> None:
        head = connection.read_head().decode()
        self.asked.append(head)
        if self._credential not in head:
            connection.send(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return
        connection.send(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        self._lead(connection)

    def _socks(self, connection: Connection) -> None:
        methods = connection.read(connection.read(2)[1])
        if self._credential:
            if b"\2" not in methods:
                connection.send(b"\5\xff")
                return
            connection.send(b"\5\2")
            _, length = connection.read(2)
            user = connection.read(length)
            password = connection.read(connection.read(1)[0])
            if f"{user.decode()}:{password.decode()}" != self._credential:
                connection.send(b"\1\1")
                return
            connection.send(b"\1\0")
        else:
            connection.send(b"\5\0")
        head = connection.read(5)
        assert head[:4] == b"\5\1\0\3", "CONNECT by name"
        name = connection.read(head[4]).decode()
        self.asked.append(f"{name}:{int.from_bytes(connection.read(2), 'big')}")
        connection.send(b"\5\0\0\1\x7f\0\0\1\x1f\x90")
        self._lead(connection)

    def _lead(self, connection: Connection) -> None:
        with socket.create_connection(("127.0.0.1", self._target)) as onward:
            relay(connection.socket, onward)


PROXIES = [
    ("http", "", ""),
    ("http", "user:p%40ss@", "Proxy-Authorization: Basic dXNlcjpwQHNz\r\n"),
    ("https", "", ""),
    ("https", "user:p%40ss@", "Proxy-Authorization: Basic dXNlcjpwQHNz\r\n"),
    ("socks5h", "", ""),
    ("socks5h", "user:p%40ss@", "user:p@ss"),
]


@pytest.mark.parametrize(("kind", "login", "credential"), PROXIES)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_leads_to_the_target_by_its_name(
    trusted: trustme.CA,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    login: str,
    credential: str,
    scheme: str,
) -> None:
    """The name is the proxy's to look up, the target's certificate ours to verify."""
    context = server_context(trusted, "api.test") if scheme == "https" else None
    proxy_context = server_context(trusted, "127.0.0.1") if kind == "https" else None
    with Peer(answering(response(b"through")), context) as target:
        proxy = Proxy(target.port, kind, credential)
        with (
            Peer(proxy.serve, proxy_context) as peer,
            opened(f"{kind}://{login}127.0.0.1:{peer.port}") as door,
        ):
            for _ in range(2):
                assert post(door, f"{scheme}://api.test/x") == b"through"

    port = 443 if scheme == "https" else 80
    assert len(proxy.asked) == 1
    assert f"api.test:{port}" in proxy.asked[0]
    assert "127.0.0.1" not in proxy.asked[0]


@pytest.mark.parametrize(("kind", "login", "credential"), [p for p in PROXIES if p[1]])
def test_a_proxy_that_refuses_us_is_a_failed_connection(
    trusted: trustme.CA, kind: str, login: str, credential: str
) -> None:
    proxy_context = server_context(trusted, "127.0.0.1") if kind == "https" else None
    for wrong in ("", "user:wrong@"):
        with (
            Peer(Proxy(1, kind, credential).serve, proxy_context) as peer,
            opened(f"{kind}://{wrong}127.0.0.1:{peer.port}") as door,
            fails(Unreachable, "connect_failed") as caught,
        ):
            post(door, "https://api.test/x")
        assert "wrong" not in shown(caught.value)


@pytest.mark.parametrize("kind", ["http", "socks5h"])
@pytest.mark.parametrize("said", [b"", b"\0", b"\5", b"nonsense\r\n\r\n", b"\5\0\5\1\0\1aaaaaa"])
def test_a_proxy_that_makes_no_sense_is_a_failed_connection(kind: str, said: bytes) -> None:
    def serve(connection: Connection) -> None:
        connection.read(3)
        connection.send(said)

    with (
        Peer(serve) as peer,
        opened(f"{kind}://127.0.0.1:{peer.port}") as door,
        fails(Unreachable, "connect_failed"),
    ):
        post(door, "https://api.test/x")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("http", "connect_failed"), ("https", "tls_failed"), ("socks5h", "connect_failed")],
)
def test_a_proxy_that_says_nothing_takes_the_time_to_connect(kind: str, reason: str) -> None:
    with (
        Peer(never_reads) as peer,
        opened(f"{kind}://127.0.0.1:{peer.port}") as door,
        takes(0.4, 2),
        fails(Unreachable, reason),
    ):
        post(door, "https://api.test/x", Limits(connect=0.4, total=5, size=1000))


def test_a_proxy_is_not_used_for_this_machine() -> None:
    with (
        Peer(answering(response(b"direct"))) as peer,
        opened(f"http://127.0.0.1:{free_port()}") as door,
    ):
        for host in ("127.0.0.1", "localhost"):
            assert post(door, peer.url(host=host)) == b"direct"


@pytest.mark.parametrize(
    "url", ["socks4://secret", "secret", "http://user:secret/x@h", f"http://secret:{'x' * 300}@h"]
)
def test_a_proxy_that_cannot_be_used_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|proxy") as caught:
        Door(proxy=Secret(url))
    assert "secret" not in shown(caught.value)
