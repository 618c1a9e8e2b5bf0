"""Streams of bytes whose every wait is the line's."""

import http.client
import io
import select
import socket
import ssl
from typing import Protocol, cast

from urllib3.util.ssltransport import SSLTransport

from telegrammer.http.line import Line


class Stream(Protocol):
    """What an HTTP exchange needs of a connection. An end of stream reads as nothing."""

    def recv_into(self, buffer: memoryview) -> int: ...

    def sendall(self, data: bytes) -> None: ...

    def fileno(self) -> int: ...

    def holds_bytes(self) -> bool:
        """Tell whether bytes have been taken off the wire that nobody has read."""

    def close(self) -> None: ...


class PlainStream:
    """A connected, non-blocking socket."""

    def __init__(self, connected: socket.socket, line: Line) -> None:
        self._socket = connected
        self._line = line

    def recv_into(self, buffer: memoryview) -> int:
        while True:
            self._line.wait([self.fileno()], select.POLLIN)
            try:
                count = self._socket.recv_into(buffer)
            except BlockingIOError:  # ready, and then not: the kernel may do that
                continue
            self._line.received(count)
            return count

    def recv(self, most: int) -> bytes:
        buffer = bytearray(most)
        return bytes(buffer[: self.recv_into(memoryview(buffer))])

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._line.wait([self.fileno()], select.POLLOUT)
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                continue

    def fileno(self) -> int:
        return self._socket.fileno()

    def holds_bytes(self) -> bool:
        return False

    def close(self) -> None:
        self._socket.close()


class SecureStream(SSLTransport):
    """TLS over a stream, over TLS as well."""

    def __init__(self, below: Stream, context: ssl.SSLContext, name: str) -> None:
        self._below = below
        super().__init__(cast("socket.socket", below), context, server_hostname=name)

    def holds_bytes(self) -> bool:
        return bool(self.incoming.pending or self.sslobj.pending()) or self._below.holds_bytes()


def secure(below: Stream, context: ssl.SSLContext, host: str) -> Stream:
    """Return TLS over ``below``, shaken hands and verified; over TLS as well."""
    name = host.rstrip(".")  # certificates name hosts without the root's dot
    return cast("Stream", SecureStream(below, context, name))


class Answer(http.client.HTTPResponse):
    """An answer, after whatever interim ones came before it (RFC 9110, 15.2).

    ``http.client`` passes over 100 alone: it would take another for the answer, and the
    answer for that to the next request. 101 ends the exchange: nobody asked for it.
    """

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]
        if status == http.client.SWITCHING_PROTOCOLS:
            raise http.client.HTTPException("not asked for")
        return version, http.client.CONTINUE if 100 <= status < 200 else status, reason


def lend(stream: Stream) -> socket.socket:
    """Return ``stream`` as the socket that ``http.client`` asks for, which cannot close it."""
    return cast("socket.socket", _Lent(stream))


class _Lent:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.sendall = stream.sendall

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._stream))

    def close(self) -> None:
        """Close nothing: who opened the stream closes it."""


class _Reader(io.RawIOBase):
    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._stream.recv_into(buffer)
