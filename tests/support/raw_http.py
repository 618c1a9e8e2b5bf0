"""HTTP over a bare socket, for requests that no client library would send."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Response:
    """One response, read off the wire; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401  what JSON holds is the test's to know
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error in our shape."""
        return str(self.json()["error"]["code"])


def request(
    target: str = "/",
    method: str = "GET",
    *headers: str,
    body: bytes | None = None,
    version: str = "1.1",
) -> bytes:
    """Return a request's bytes: a Host, the given header lines, a Content-Length."""
    lines = [f"{method} {target} HTTP/{version}", "Host: gateway", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


class RawClient:
    """One connection. Every read raises ``TimeoutError`` after ``patience`` seconds.

    What was received and not yet returned by a method stays in ``buffer``.
    """

    def __init__(
        self, address: tuple[str, int], *, patience: float = 10.0, receive_buffer: int = 0
    ) -> None:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            if receive_buffer:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            self.sock.settimeout(patience)
            self.sock.connect(address)
        except OSError:
            self.sock.close()
            raise
        self.buffer = bytearray()
        self.began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    @property
    def age(self) -> float:
        """Seconds since the connection was made."""
        return time.monotonic() - self.began

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def drip(self, data: bytes, pause: float) -> None:
        """Send byte by byte until all is sent or the peer has gone."""
        for index in range(len(data)):
            try:
                self.sock.sendall(data[index : index + 1])
            except OSError:
                return
            time.sleep(pause)

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def receive(self) -> bytes:
        """Return what comes next; empty when the peer has closed or reset."""
        try:
            return self.sock.recv(65536)
        except ConnectionError:
            return b""

    def read_until(self, end: bytes) -> bytes:
        """Return everything up to and including ``end``; raise ``EOFError`` at a close."""
        while end not in self.buffer:
            self._more()
        return self._take(self.buffer.index(end) + len(end))

    def read_to_end(self) -> bytes:
        """Return everything until the peer closes."""
        while data := self.receive():
            self.buffer += data
        return self._take(len(self.buffer))

    def read_response(self, *, to_head: bool = False) -> Response:
        """Return the next response; ``to_head`` when it answers HEAD, so has no body."""
        status_line, *lines = self.read_until(b"\r\n\r\n").decode("latin-1").split("\r\n")[:-2]
        status = int(status_line.split()[1])
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        bodiless = to_head or status < 200 or status in (204, 304)
        return Response(status, headers, b"" if bodiless else self._body(headers))

    def exchange(self, data: bytes) -> Response:
        self.send(data)
        return self.read_response()

    def is_closed(self) -> bool:
        """Wait for the peer; tell whether it closed without sending more."""
        return not self.buffer and self.receive() == b""

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            return self._chunked()
        length = int(headers["content-length"])
        while len(self.buffer) < length:
            self._more()
        return self._take(length)

    def _chunked(self) -> bytes:
        body = b""
        while size := int(self.read_until(b"\r\n"), 16):
            while len(self.buffer) < size + 2:
                self._more()
            body += self._take(size + 2)[:size]
        self.read_until(b"\r\n")
        return body

    def _take(self, length: int) -> bytes:
        found = bytes(self.buffer[:length])
        del self.buffer[:length]
        return found

    def _more(self) -> None:
        data = self.receive()
        if not data:
            raise EOFError(f"closed after {bytes(self.buffer[:200])!r}")
        self.buffer += data
