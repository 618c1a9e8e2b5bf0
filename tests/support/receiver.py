"""A callback receiver that does to a delivery whatever a test wants.

It speaks HTTP over bare sockets, so that it sees the request target as it came and
can misbehave at any byte.
"""

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

Raw = Callable[[socket.socket, threading.Event], None]


@dataclass(frozen=True)
class Received:
    """One request. ``headers`` have lower-case names."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def delivery_id(self) -> str:
        return self.headers["x-telegrammer-delivery-id"]


@dataclass(frozen=True)
class Reply:
    """An answer; ``raw`` instead gets the connection, and an event set at the end."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    raw: Raw | None = None


def drip(data: bytes, pause: float = 0.05) -> Raw:
    """Send the bytes one by one."""

    def send(connection: socket.socket, closing: threading.Event) -> None:
        for byte in data:
            if closing.wait(pause):
                return
            connection.sendall(bytes([byte]))

    return send


def endless(head: bytes, chunk: bytes = b"x" * 1000) -> Raw:
    """Send the head and then never stop."""

    def send(connection: socket.socket, closing: threading.Event) -> None:
        connection.sendall(head)
        while not closing.is_set():
            connection.sendall(chunk)

    return send


def silent(_connection: socket.socket, closing: threading.Event) -> None:
    """Never answer."""
    closing.wait()


class Receiver:
    """Listens on a free port; ``answer`` decides each reply and may be replaced."""

    def __init__(self, answer: Callable[[Received], Reply] = lambda _: Reply()) -> None:
        self.answer = answer
        self.received: list[Received] = []
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def wait(self, count: int, timeout: float = 10) -> list[Received]:
        """Return what came once there are ``count`` requests; fail after ``timeout`` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.received) >= count, timeout):
                raise AssertionError(f"{len(self.received)} of {count} callbacks came")
            return list(self.received)

    @property
    def connections(self) -> int:
        """How many connections there have been."""
        return self._server.accepted

    def note(self, request: Received) -> None:
        with self._changed:
            self.received.append(request)
            self._changed.notify_all()

    @property
    def closing(self) -> threading.Event:
        return self._closing

    def __enter__(self) -> "Receiver":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()  # joins the connections' threads


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.receiver = receiver
        self.accepted = 0
        self._open: set[socket.socket] = set()

    def process_request(self, request: object, client_address: object) -> None:
        self.accepted += 1
        self._open.add(cast("socket.socket", request))
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def shutdown_request(self, request: object) -> None:
        self._open.discard(cast("socket.socket", request))
        super().shutdown_request(request)  # type: ignore[arg-type]

    def hang_up(self) -> None:
        """Wake the threads that wait for another request of a kept connection."""
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections break on purpose here."""


class _Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        receiver = cast("_Server", self.server).receiver
        while (request := self._read()) is not None:
            receiver.note(request)
            reply = receiver.answer(request)
            if reply.raw is not None:
                reply.raw(self.connection, receiver.closing)
                return
            self.wfile.write(_serialized(reply))

    def _read(self) -> Received | None:
        line = self.rfile.readline().decode("latin-1").rstrip("\r\n")
        if not line:
            return None
        method, target, _version = line.split(" ")
        headers = {}
        while field_line := self.rfile.readline().decode("latin-1").rstrip("\r\n"):
            name, _, value = field_line.partition(":")
            headers[name.lower()] = value.strip()
        body = self.rfile.read(int(headers.get("content-length", "0")))
        return Received(method, target, headers, body, time.time())


def _serialized(reply: Reply) -> bytes:
    headers = {"Content-Length": str(len(reply.body)), **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} Reason", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + reply.body
