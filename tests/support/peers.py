"""Servers that misbehave on purpose: a function for each connection, in a thread of its own."""

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable

Serve = Callable[["Connection"], None]


class Connection:
    """One client's connection, as the serving function sees it."""

    def __init__(self, peer: "Peer", connected: socket.socket) -> None:
        self.peer = peer
        self.socket = connected

    def secure(self, context: ssl.SSLContext) -> None:
        """Go on in TLS, as the server."""
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )
        self.socket.do_handshake()

    def read_head(self) -> bytes:
        """Return everything up to the first empty line; less when the client left."""
        head = b""
        while b"\r\n\r\n" not in head and (byte := self.socket.recv(1)):
            head += byte
        return head

    def read_request(self) -> bytes:
        """Return head and body of a request; less when the client left."""
        head = self.read_head()
        body = b""
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                body = self.read(int(line.partition(b":")[2]))
        return head + body

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self.socket.recv(size - len(data))):
            data += more
        return data

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def drip(self, data: bytes, pause: float = 0.05) -> None:
        """Send byte after byte, over and over, until the peer is closed or the client left."""
        while True:
            for position in range(len(data)):
                self.send(data[position : position + 1])
                if self.peer.closing.wait(pause):
                    return

    def hold(self) -> None:
        """Do nothing until the peer is closed."""
        self.peer.closing.wait(60)


class Peer:
    """Listens on a free loopback port; closing it ends every connection and thread."""

    def __init__(self, serve: Serve, context: ssl.SSLContext | None = None) -> None:
        self.closing = threading.Event()
        self.accepted = 0
        self._serve = serve
        self._context = context
        self._open: set[Connection] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, name="peer")]
        self._threads[0].start()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    # Not SSLSocket's own, which pulls TLS away under the thread that reads.
                    socket.socket.shutdown(connection.socket, socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        self._listener.close()

    def url(self, path: str = "/", scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            thread = threading.Thread(target=self._run, args=(connected,), name="peer")
            self._threads.append(thread)
            thread.start()

    def _run(self, connected: socket.socket) -> None:
        connection = Connection(self, connected)
        with self._lock:
            self._open.add(connection)
        # A client that leaves is what most of these servers are about.
        with contextlib.suppress(OSError):
            if self._context is not None:
                connection.secure(self._context)
            self._serve(connection)
        with self._lock:
            self._open.discard(connection)
            connection.socket.close()


def response(body: bytes = b"", *headers: str, status: str = "200 OK") -> bytes:
    """Return a complete response with a ``Content-Length``."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("ascii") + body


def answering(*answers: bytes) -> Serve:
    """Return a server of one connection after the other that gives these answers in turn,
    the last one again and again."""

    def serve(connection: Connection) -> None:
        for answer in [*answers, *[answers[-1]] * 1000]:
            if not connection.read_request():
                return
            connection.send(answer)

    return serve


def relay(one: socket.socket, other: socket.socket) -> None:
    """Carry bytes both ways until either side ends."""
    across = {one: other, other: one}
    while True:
        waiting = [end for end in across if isinstance(end, ssl.SSLSocket) and end.pending()]
        for end in waiting or select.select(list(across), [], [])[0]:
            data = end.recv(65536)
            if not data:
                return
            across[end].sendall(data)
