"""The door through which every request of ours leaves."""

import http.client
import select
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import requests
import urllib3
from socksio.exceptions import SOCKSError
from urllib3 import HTTPHeaderDict

from telegrammer import USER_AGENT, tls
from telegrammer.clock import Clock, SystemClock
from telegrammer.errors import BrokenResponse, HttpError, Unreachable
from telegrammer.http.dial import Dialler, Server, parse_proxy, parse_target
from telegrammer.http.line import Limits, Line, Stage
from telegrammer.http.streams import Answer, Stream, lend
from telegrammer.settings import Secret

# Servers drop connections that were idle for a while, some after 15 s. One that is
# dropped just when a request leaves costs that request, and a POST is not repeated.
_IDLE_SECONDS: Final = 10.0
_CHUNK: Final = 64 * 1024

# What the libraries between us and the stream raise.
_FOREIGN: Final = (
    OSError,
    http.client.HTTPException,
    SOCKSError,
    urllib3.exceptions.HTTPError,
    ValueError,  # http.client reads a chunk of a negative size
)

_HEADERS: Final = {
    "User-Agent": USER_AGENT,
    "Accept-Encoding": "identity",
}


@dataclass(frozen=True)
class Response:
    """A complete response. ``headers`` is read without regard to case."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class Door:
    """Sends requests, one at a time, over one connection that is kept for a while.

    One thread at a time uses a door; ``cut`` alone may be called from any other. Nothing
    is taken from the environment but the CA file; there are no cookies, redirects or
    retries. The proxy is not used for loopback addresses.
    """

    def __init__(
        self,
        proxy: Secret | None = None,
        clock: Clock | None = None,
        context: tls.Context | None = None,
    ) -> None:
        """Take ``tls.client_context()``, which doors can share, or make one.

        Raises ``ValueError`` for a wrong proxy, ``ConfigurationError`` for a wrong CA file.
        """
        clock = clock or SystemClock()
        context = context or tls.client_context()
        through = None if proxy is None else parse_proxy(proxy.reveal())
        self._line = Line(clock)
        self._wire = _Wire(self._line, Dialler(self._line, context, through), clock)

    def exchange(
        self,
        method: str,
        url: str,
        limits: Limits,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send a request and return its whole response, whatever its status.

        Raises ``Unreachable``, ``TimedOut``, ``BrokenResponse`` or ``Cut``, with nothing
        in them but a code, and ``ValueError`` for a URL that is not plain ``http`` or
        ``https``. After an error the next request has a new connection.
        """
        parse_target(url)
        # Raised here, with no other error as its context: those hold the URL.
        outcome = self._attempt(method, url, limits, body, headers or {})
        if isinstance(outcome, HttpError):
            raise outcome
        return outcome

    def cut(self) -> None:
        """End the running exchange, and every later one, with ``Cut``."""
        self._line.cut()

    def drop(self) -> None:
        """Close the connection; the next request opens another."""
        self._wire.drop()

    def close(self) -> None:
        """Give everything back. The door is of no use afterwards."""
        self._wire.drop()
        self._line.close()

    def _attempt(
        self, method: str, url: str, limits: Limits, body: bytes | None, headers: Mapping[str, str]
    ) -> Response | HttpError:
        self._line.begin(limits)
        try:
            # Without a session, which only adds what is not wanted here: cookies, redirects,
            # the environment's proxies and passwords.
            request = requests.Request(method, url, {**_HEADERS, **headers}, data=body)
            answer = self._wire.send(request.prepare())
            whole = _read_body(answer, limits.size)
        except HttpError as error:
            failure = type(error)(error.reason)
        except _FOREIGN as error:
            failure = _failure(error, self._line.stage)
        else:
            self._wire.keep()
            return Response(answer.status, answer.headers, whole)
        self.drop()
        return failure


class _Wire:
    """What requests has prepared, over one stream of ours."""

    def __init__(self, line: Line, dialler: Dialler, clock: Clock) -> None:
        self._line = line
        self._dialler = dialler
        self._clock = clock
        self._server: Server | None = None
        self._stream: Stream | None = None
        self._may_stay = False
        self._idle_since: float | None = None

    def send(self, request: requests.PreparedRequest) -> urllib3.HTTPResponse:
        url = request.url or ""
        server = parse_target(url)
        connection = http.client.HTTPConnection(server.host, server.port)
        connection.response_class = Answer
        connection.sock = lend(self._connected(server))
        headers = {"Host": urlsplit(url).netloc, **request.headers}
        connection.request(request.method or "", request.path_url, request.body, headers)
        answer = connection.getresponse()
        self._may_stay = not answer.will_close
        return urllib3.HTTPResponse(
            answer,
            HTTPHeaderDict(answer.headers.items()),
            answer.status,
            reason=answer.reason,
            preload_content=False,
            request_method=request.method,
        )

    def keep(self) -> None:
        """Let the connection wait for the next request, if the server lets it.

        Only after a response that was read in full: what is left of one would be taken
        for the answer to the next request.
        """
        if self._may_stay:
            self._idle_since = self._clock.monotonic()
        else:
            self.drop()

    def drop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _connected(self, server: Server) -> Stream:
        if self._stream is None or self._server != server or not self._is_fresh(self._stream):
            self.drop()
            self._stream = self._dialler.dial(server)
            self._server = server
        self._idle_since = None
        return self._stream

    def _is_fresh(self, stream: Stream) -> bool:
        """Tell whether the kept connection waits in silence, and not for too long.

        Bytes without a request are the server's goodbye, or not HTTP.
        """
        if self._idle_since is None or self._clock.monotonic() - self._idle_since > _IDLE_SECONDS:
            return False
        if stream.holds_bytes():
            return False
        return not self._line.wait([stream.fileno()], select.POLLIN, at_most=0)


def _read_body(raw: urllib3.HTTPResponse, most: int) -> bytes:
    """Return the whole body; urllib3 finds one that is too short at its end only.

    Packed once at most: a small body that is packed within packed can unpack for hours, and
    no deadline is looked at meanwhile.
    """
    if "," in raw.headers.get("Content-Encoding", ""):
        raise BrokenResponse("bad_response")
    body = bytearray()
    while chunk := raw.read(_CHUNK, decode_content=True):
        body += chunk
        if len(body) > most:
            raise BrokenResponse("too_large")
    return bytes(body)


def _failure(error: Exception, stage: Stage) -> HttpError:
    """Translate what a library raised; our own errors come through them unchanged."""
    if stage is not Stage.OPEN:
        return Unreachable(stage.value)
    if isinstance(error, OSError):  # while the request left, or before an answer began
        return Unreachable("connection_closed")
    if isinstance(error, urllib3.exceptions.ProtocolError | urllib3.exceptions.SSLError):
        return BrokenResponse("connection_closed")
    return BrokenResponse("bad_response")
