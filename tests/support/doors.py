"""What tests of the HTTP door share: how to use it, and what can go wrong around it."""

import contextlib
import select
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Iterator

import pytest
import trustme

from support.peers import Connection
from telegrammer.errors import HttpError
from telegrammer.http import Door, Limits

GENEROUS = Limits(connect=10, total=10, size=100_000)


def post(door: Door, url: str, limits: Limits = GENEROUS, body: bytes = b"{}") -> bytes:
    headers = {"Content-Type": "application/json"}
    return door.exchange("POST", url, limits, body, headers).body


@contextlib.contextmanager
def takes(least: float, most: float) -> Iterator[None]:
    """Check how long the block takes, in seconds."""
    begin = time.monotonic()
    yield
    assert least <= time.monotonic() - begin <= most


@contextlib.contextmanager
def fails(kind: type[HttpError], reason: str) -> Iterator[pytest.ExceptionInfo[HttpError]]:
    """Check that the block raises exactly this."""
    with pytest.raises(kind) as caught:
        yield caught
    assert (type(caught.value), str(caught.value)) == (kind, reason)


def shown(error: BaseException | None) -> str:
    """Return all that a log could say of an error, with every error behind it."""
    text = ""
    while error is not None:
        text += repr(error) + str(error.args) + "".join(traceback.format_exception(error))
        error = error.__cause__ or error.__context__
    return text


def server_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


class SlowNames:
    """A resolver that answers only when it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked = 0

    def __call__(self, *_: object, **__: object) -> list[object]:
        self.asked += 1
        self.go.wait(30)
        return []

    def let_go(self) -> None:
        self.go.set()
        for thread in threading.enumerate():
            if thread.name == "dns":
                thread.join()


@contextlib.contextmanager
def dead_address() -> Iterator[int]:
    """Yield a port where connections are neither taken nor refused: its queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        while True:
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            if not select.select([], [filler], [], 0.1)[1]:
                break
        yield listener.getsockname()[1]


def resolve_to(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """Let every name have one loopback address for each of these ports."""

    def found(*_: object, **__: object) -> list[object]:
        stream = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*stream, ("127.0.0.1", port)) for port in ports]

    monkeypatch.setattr(socket, "getaddrinfo", found)


def silent(connection: Connection) -> None:
    connection.read_request()
    connection.hold()


def drips_head(connection: Connection) -> None:
    connection.send(b"HTTP/1.1 200 OK\r\n")
    connection.drip(b"X-Header: value\r\n")


def drips_status(connection: Connection) -> None:
    connection.drip(b"HTTP/1.1 200 " + b"O" * 1000)


def drips_body(connection: Connection) -> None:
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n")
    connection.drip(b"x")


def drips_chunks(connection: Connection) -> None:
    connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    connection.drip(b"1\r\nx\r\n")


def drips_trailers(connection: Connection) -> None:
    connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
    connection.drip(b"X-Trailer: value\r\n")


def continues_for_ever(connection: Connection) -> None:
    connection.drip(b"HTTP/1.1 100 Continue\r\n\r\n", pause=0.01)


def never_reads(connection: Connection) -> None:
    connection.hold()


STALLING = [
    silent,
    drips_head,
    drips_status,
    drips_body,
    drips_chunks,
    drips_trailers,
    continues_for_ever,
    never_reads,
]
