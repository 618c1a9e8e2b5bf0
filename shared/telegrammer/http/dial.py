"""From a host's name to an open stream: name, connection, proxy, TLS."""

import base64
import contextlib
import errno
import select
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, unquote

from socksio import socks5

from telegrammer.errors import Unreachable
from telegrammer.http.line import Line, Stage
from telegrammer.http.streams import Answer, PlainStream, Stream, lend, secure
from telegrammer.settings import is_loopback, plain_url

# A later address is tried beside the earlier ones after this long (RFC 8305 says 250 ms),
# so that a black-holed IPv6 costs a quarter of a second and not the time to connect.
_STAGGER: Final = 0.25
_MOST_ADDRESSES: Final = 8
_PORTS: Final = {"http": 80, "https": 443, "socks5h": 1080}

# As ``getaddrinfo`` gives it: family, type, protocol, canonical name, socket address.
_Address = tuple[
    int, int, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
]


@dataclass(frozen=True)
class Server:
    """Who is spoken to: a target or a proxy."""

    scheme: str
    host: str
    port: int


@dataclass(frozen=True)
class Proxy:
    """A proxy and, where it asks for them, our name and password."""

    server: Server
    user: str = field(repr=False)
    password: str = field(repr=False)


def parse_target(url: str) -> Server:
    """Return the server of an ``http`` or ``https`` URL, or raise ``ValueError``.

    User information is refused: requests would send it as a credential.
    """
    parts = plain_url(url, ("http", "https"))
    if "@" in parts.netloc:
        raise ValueError("a URL must not hold user information")
    return _server(parts)


def parse_proxy(url: str) -> Proxy:
    """Return the proxy of an ``http``, ``https`` or ``socks5h`` URL, or raise ``ValueError``."""
    parts = plain_url(url, tuple(_PORTS))
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if max(len(user.encode()), len(password.encode())) > 255:
        raise ValueError("a proxy's user name and password have at most 255 bytes each")
    return Proxy(_server(parts), user, password)


def _server(parts: SplitResult) -> Server:
    return Server(parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme])


class Dialler:
    """Opens streams. The proxy is not used for this machine itself."""

    def __init__(self, line: Line, context: ssl.SSLContext, proxy: Proxy | None) -> None:
        self._line = line
        self._context = context
        self._proxy = proxy
        self._lookup: _Lookup | None = None

    def dial(self, target: Server) -> Stream:
        """Return an open stream to ``target``; on failure nothing stays open.

        The line's stage says what failed when an ``OSError`` comes out.
        """
        proxy = None if is_loopback(target.host) else self._proxy
        first = target if proxy is None else proxy.server
        plain = PlainStream(self._connect(first), self._line)
        stream: Stream = plain
        with contextlib.ExitStack() as undo:
            undo.callback(plain.close)
            if proxy is not None:
                stream = self._through(proxy, stream, target)
            if target.scheme == "https":
                stream = self._secure(stream, target)
            undo.pop_all()
        self._line.stage = Stage.OPEN
        return stream

    def _through(self, proxy: Proxy, stream: Stream, target: Server) -> Stream:
        """Ask for a tunnel whatever the target: no request is ever shown to a proxy."""
        if proxy.server.scheme == "https":
            stream = self._secure(stream, proxy.server)
        self._line.stage = Stage.CONNECTING
        if proxy.server.scheme == "socks5h":
            _tunnel_socks(stream, proxy, target)
        else:
            _tunnel_http(stream, proxy, target)
        return stream

    def _secure(self, stream: Stream, server: Server) -> Stream:
        self._line.stage = Stage.SECURING
        return secure(stream, self._context, server.host)

    def _connect(self, server: Server) -> socket.socket:
        """Return the first connection that stands, of all the server's addresses."""
        addresses = self._resolve(server)
        self._line.stage = Stage.CONNECTING
        attempts: dict[int, socket.socket] = {}
        try:
            while addresses or attempts:
                if addresses and (attempt := _begin_connection(addresses.pop(0))):
                    attempts[attempt.fileno()] = attempt
                patience = _STAGGER if addresses else None
                ready = self._line.wait(attempts, select.POLLOUT, patience) if attempts else []
                for descriptor in ready:
                    attempt = attempts.pop(descriptor)
                    if attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                        return attempt
                    attempt.close()
        finally:
            for attempt in attempts.values():
                attempt.close()
        raise Unreachable(Stage.CONNECTING.value)

    def _resolve(self, server: Server) -> list[_Address]:
        """Return the server's addresses.

        A lookup that still hangs is taken up again by the next exchange, so that a resolver
        without an answer costs one thread and not one for each try. What it found meanwhile
        may be old.
        """
        self._line.stage = Stage.RESOLVING
        lookup = self._lookup
        if lookup is None or lookup.server != server or lookup.found.done():
            lookup = self._lookup = _Lookup(server)
        self._line.wait_for(lookup.found)
        self._lookup = None
        return lookup.found.result()[:_MOST_ADDRESSES]


class _Lookup:
    """A name being looked up, in a thread, since nothing can interrupt ``getaddrinfo``."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.found: futures.Future[list[_Address]] = futures.Future()
        threading.Thread(target=self._run, name="dns", daemon=True).start()

    def _run(self) -> None:
        try:
            found = socket.getaddrinfo(self.server.host, self.server.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):  # UnicodeError: a label that no name can have
            self.found.set_exception(Unreachable(Stage.RESOLVING.value))
        else:
            self.found.set_result(list(found))


def _begin_connection(address: _Address) -> socket.socket | None:
    """Return a socket on its way to the address; None when there is no way to it."""
    family, kind, protocol, _, place = address
    try:
        attempt = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
    except OSError:  # a machine without IPv6
        return None
    attempt.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if attempt.connect_ex(place) in (0, errno.EINPROGRESS):
        return attempt
    attempt.close()
    return None


def _tunnel_http(stream: Stream, proxy: Proxy, target: Server) -> None:
    host = f"[{target.host}]" if ":" in target.host else target.host
    place = f"{host}:{target.port}"
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
    if proxy.user or proxy.password:
        credential = base64.b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {credential}")
    stream.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
    with contextlib.closing(Answer(lend(stream), method="CONNECT")) as answer:
        answer.begin()
        if not 200 <= answer.status < 300:
            raise Unreachable(Stage.CONNECTING.value)


def _tunnel_socks(stream: Stream, proxy: Proxy, target: Server) -> None:
    """Ask a SOCKS5 proxy (RFC 1928, 1929), which looks the target's name up itself."""
    protocol = socks5.SOCKS5Connection()

    def ask(request: object, read_reply: Callable[[Stream], bytes]) -> socks5.SOCKS5State:
        protocol.send(request)
        stream.sendall(protocol.data_to_send())
        protocol.receive_data(read_reply(stream))
        return protocol.state

    methods = [socks5.SOCKS5AuthMethod.NO_AUTH_REQUIRED]
    if proxy.user or proxy.password:
        methods.append(socks5.SOCKS5AuthMethod.USERNAME_PASSWORD)
    state = ask(socks5.SOCKS5AuthMethodsRequest(methods), _read_two)
    if state is socks5.SOCKS5State.CLIENT_WAITING_FOR_USERNAME_PASSWORD:
        names = socks5.SOCKS5UsernamePasswordRequest(proxy.user.encode(), proxy.password.encode())
        state = ask(names, _read_two)
    if state is socks5.SOCKS5State.CLIENT_AUTHENTICATED:
        place = (target.host, target.port)
        command = socks5.SOCKS5Command.CONNECT
        state = ask(socks5.SOCKS5CommandRequest.from_address(command, place), _read_socks_reply)
    if state is not socks5.SOCKS5State.TUNNEL_READY:
        raise Unreachable(Stage.CONNECTING.value)


def _read_two(stream: Stream) -> bytes:
    return _read(stream, 2)


def _read_socks_reply(stream: Stream) -> bytes:
    """Return a whole reply: how long it is depends on the kind of address in it."""
    start = _read(stream, 5)
    if start[3:4] == socks5.SOCKS5AType.DOMAIN_NAME:
        size = 1 + start[4]
    else:
        size = 16 if start[3:4] == socks5.SOCKS5AType.IPV6_ADDRESS else 4
    return start + _read(stream, size - 1 + 2)


def _read(stream: Stream, size: int) -> bytes:
    found = bytearray(size)
    rest = memoryview(found)
    while rest:
        count = stream.recv_into(rest)
        if not count:
            raise Unreachable(Stage.CONNECTING.value)
        rest = rest[count:]
    return bytes(found)
