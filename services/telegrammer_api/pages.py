"""The answers that the front gives by itself: our JSON error shape, never HTML.

They come before the application is asked, so before path, method and credential are
looked at: what is not well-formed, too large, too late or too much gets one of these
whatever it was meant for.
"""

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from gunicorn.http import errors as http_errors
from gunicorn.util import http_date

from telegrammer_api.front import BodyError, BodyTimedOut, BodyTooLong


@dataclass(frozen=True)
class Page:
    """An error answer, after which the connection closes."""

    status: int
    code: str
    message: str
    headers: tuple[tuple[str, str], ...] = ()

    def render(self, request_id: str, *, with_body: bool = True) -> bytes:
        """Return the whole response; ``with_body`` is false for an answer to HEAD."""
        error = {"code": self.code, "message": self.message}
        body = json.dumps({"ok": False, "error": error}, separators=(",", ":")).encode()
        lines = [
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}",
            f"Date: {http_date()}",
            "Connection: close",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            f"X-Request-Id: {request_id}",
            *(f"{name}: {value}" for name, value in self.headers),
        ]
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        return head + body if with_body else head


INVALID_REQUEST: Final = Page(400, "INVALID_REQUEST", "this is not a well-formed HTTP/1.1 request")
REQUEST_TIMEOUT: Final = Page(408, "REQUEST_TIMEOUT", "the request did not arrive in full in time")
PAYLOAD_TOO_LARGE: Final = Page(413, "PAYLOAD_TOO_LARGE", "the body has too many bytes on the wire")
URI_TOO_LONG: Final = Page(414, "URI_TOO_LONG", "the request line is too long")
EXPECTATION_FAILED: Final = Page(
    417, "EXPECTATION_FAILED", "the only expectation met here is 100-continue"
)
HEADERS_TOO_LARGE: Final = Page(431, "HEADERS_TOO_LARGE", "send fewer or shorter header fields")
INTERNAL_ERROR: Final = Page(500, "INTERNAL_ERROR", "an unforeseen failure; the log has its cause")
NOT_IMPLEMENTED: Final = Page(
    501, "NOT_IMPLEMENTED", "the only transfer coding understood here is chunked"
)
OVERLOADED: Final = Page(
    503, "OVERLOADED", "too many requests are waiting; try again", (("Retry-After", "1"),)
)

# The first class that fits decides.
_PAGES: Final[tuple[tuple[type[Exception], Page], ...]] = (
    (BodyTimedOut, REQUEST_TIMEOUT),
    (BodyTooLong, PAYLOAD_TOO_LARGE),
    (BodyError, INVALID_REQUEST),
    # What the application tried to send, although a subclass of a client's mistake.
    (http_errors.InvalidResponseHeader, INTERNAL_ERROR),
    (http_errors.InvalidResponseHeaderName, INTERNAL_ERROR),
    (http_errors.LimitRequestLine, URI_TOO_LONG),
    (http_errors.LimitRequestHeaders, HEADERS_TOO_LARGE),
    (http_errors.ExpectationFailed, EXPECTATION_FAILED),
    (http_errors.UnsupportedTransferCoding, NOT_IMPLEMENTED),
    (http_errors.ParseException, INVALID_REQUEST),
)


def page_for(error: BaseException) -> Page:
    """Return the answer to a request that ended in ``error``."""
    return next((page for kind, page in _PAGES if isinstance(error, kind)), INTERNAL_ERROR)
