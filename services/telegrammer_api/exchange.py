"""One request on its way through the application: gunicorn's parser and response,
our body.

The parser is fed from memory only, so that it never waits; once the head is complete
the same source reads the body from the socket, with a total deadline. The response is
gathered in memory and never waits either: whoever called sends it.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from gunicorn.config import Config
from gunicorn.http import wsgi
from gunicorn.http.body import Body, LengthReader
from gunicorn.http.errors import InvalidHeader, ParseException, UnsupportedTransferCoding
from gunicorn.http.message import Request
from gunicorn.http.unreader import Unreader

from telegrammer_api.front import (
    AUTHORIZATIONS,
    REQUEST_ID,
    ROUTE,
    Application,
    BodyError,
    BodyTimedOut,
    BodyTooLong,
)
from telegrammer_api.rooms import Then

RECEIVE: Final = 8192
"""Bytes asked from a socket at once."""

LONGEST_BODY: Final = 256 * 1024
"""Bytes of a body on the wire, with the sizes and extensions of its chunks, which the
application does not see; more is answered 413."""

_MOST_RECEIVED: Final = 65536


class HeadIncomplete(Exception):  # noqa: N818
    """The bytes at hand are the beginning of a head, and well-formed so far."""


class Source(Unreader):  # type: ignore[misc]
    """Where gunicorn's parser and body readers take their bytes from.

    Raises ``HeadIncomplete`` when a head needs more than what was received, and a
    ``BodyError`` when the body does not come in full within ``seconds`` of
    ``open_body``.
    """

    def __init__(self, sock: socket.socket, received: bytes, seconds: float) -> None:
        super().__init__()
        self.buf.write(received)
        self._sock = sock
        self._seconds = seconds
        self._deadline: float | None = None
        self._body_left = LONGEST_BODY

    def open_body(self, *, invite: bool) -> None:
        """Let the body be read from the socket; ``invite`` sends ``100 Continue``."""
        self._deadline = time.monotonic() + self._seconds
        if invite:
            with contextlib.suppress(OSError):  # a lost peer shows when it is read
                self._sock.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def chunk(self, size_hint: int | None = None) -> bytes:
        if self._deadline is None:
            raise HeadIncomplete
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise BodyTimedOut
        self._sock.settimeout(remaining)
        try:
            data = self._sock.recv(min(max(size_hint or 0, RECEIVE), _MOST_RECEIVED))
        except TimeoutError:
            raise BodyTimedOut from None
        except OSError:
            raise BodyError from None
        finally:
            self._sock.setblocking(False)
        if not data:
            raise BodyError
        self._body_left -= len(data)
        if self._body_left < 0:
            raise BodyTooLong
        return data


class RequestBody(Body):  # type: ignore[misc]
    """``wsgi.input``. A short body is an error, never an end."""

    def __init__(self, body: Body, source: Source, *, invite: bool) -> None:
        super().__init__(body.reader)
        self._source = source
        self._invite = invite
        self._opened = False

    @property
    def consumed(self) -> bool:
        """Tell whether the next byte on the wire is the next request's."""
        if self.failed:
            return False
        if isinstance(self.reader, LengthReader):
            return bool(self.reader.length == 0)
        return self.reader.parser is None

    def _read_reader(self, size: int) -> bytes:
        if not self._opened and not self.consumed:
            self._opened = True
            self._source.open_body(invite=self._invite)
        try:
            return cast("bytes", super()._read_reader(size))
        except ParseException:
            raise BodyError from None


class StrictRequest(Request):  # type: ignore[misc]
    """gunicorn's request, stricter where it is generous (RFC 9112, 3.2 and 6.1)."""

    version: tuple[int, int]
    body: RequestBody
    authorizations: int
    """How many Authorization headers came."""
    _expected_100_continue: bool

    def _peer_is_trusted_proxy(self) -> bool:
        """Believe nobody about schemes, paths and addresses."""
        return False

    def should_close(self) -> bool:
        """Tell whether the peer wants the end; also as one of several options (RFC 9112, 9.6)."""
        options = [value.lower().split(",") for name, value in self.headers if name == "CONNECTION"]
        asked = any(option.strip(" \t") == "close" for listed in options for option in listed)
        return asked or bool(super().should_close())

    def parse_request_line(self, line_bytes: bytes) -> None:
        super().parse_request_line(line_bytes)
        # A later HTTP/1 is answered in ours, never in its own name (RFC 9110, 6.2).
        self.version = min(self.version, (1, 1))

    def set_body_reader(self) -> None:
        super().set_body_reader()
        names = [name for name, _ in self.headers]
        if self.version >= (1, 1) and "HOST" not in names:
            raise InvalidHeader("HOST", req=self)
        for name, value in self.headers:
            if name == "TRANSFER-ENCODING" and value.lower() != "chunked":
                # gunicorn would hand the coded bytes to the application.
                raise UnsupportedTransferCoding(value)
        self.authorizations = names.count("AUTHORIZATION")
        # Taken from gunicorn, which would send it before the application is asked.
        invite, self._expected_100_continue = self._expected_100_continue, False
        self.body = RequestBody(self.body, self.unreader, invite=invite)


class _Gathered:
    """Stands in for the socket under gunicorn's response."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.sendall = self._pieces.append

    def bytes(self) -> bytes:
        return b"".join(self._pieces)


class _Response(wsgi.Response):  # type: ignore[misc]
    def should_close(self) -> bool:
        # Decided once: what the head announced stays so when the body is read later.
        if not self.must_close and (super().should_close() or not self.req.body.consumed):
            self.force_close()
        return bool(self.must_close)


class _Closable(Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True)
class Call:
    """What a request's answer depends on beside the request itself."""

    peer: tuple[str, int]
    server: tuple[str, int]
    request_id: str
    last: bool
    """The connection closes after this answer, whatever the peer asked for."""


@dataclass(frozen=True)
class Reply:
    """The application's answer as it goes on the wire."""

    data: bytes
    status: int
    route: str | None
    then: Then


def run(application: Application, request: StrictRequest, config: Config, call: Call) -> Reply:
    """Return the application's answer. Raises whatever the application raises."""
    gathered = _Gathered()
    response, environ = wsgi.create(
        request, gathered, call.peer, call.server, config, response_class=_Response
    )
    environ["wsgi.multithread"] = True
    environ[REQUEST_ID] = call.request_id
    environ[AUTHORIZATIONS] = request.authorizations
    response.version = "telegrammer"
    response.headers.append(("X-Request-Id", call.request_id))
    if call.last:
        response.force_close()
    _write(application(environ, response.start_response), response)
    then = Then.KEEP
    if response.should_close():
        # A peer that asked for the end and was read to the end sends nothing more.
        finished = request.should_close() and request.body.consumed
        then = Then.CLOSE if finished else Then.LINGER
    return Reply(gathered.bytes(), response.status_code, environ.get(ROUTE), then)


def _write(pieces: Iterable[bytes], response: wsgi.Response) -> None:
    try:
        for piece in pieces:
            response.write(piece)
        response.close()
    finally:
        if hasattr(pieces, "close"):
            cast("_Closable", pieces).close()
