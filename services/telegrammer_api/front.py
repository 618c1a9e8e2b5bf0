"""What the HTTP front and the application say to each other.

The front (``worker``, ``server``) owns the sockets: heads, framing, deadlines,
overload. The application gets one complete head at a time as a WSGI request and
reads the body itself, or does not. Beside PEP 3333:

* ``RAW_URI`` is the request target as it came, so that aliases can be refused.
* ``100 Continue`` goes out at the body's first read, never before.
* An answer given while the body is unread closes the connection.
* The front adds ``X-Request-Id`` to every response, and writes the line of the log.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final
from wsgiref.types import StartResponse, WSGIEnvironment

REQUEST_ID: Final = "telegrammer.request_id"
"""environ: the request's id, a text, as the response and the log line carry it."""

AUTHORIZATIONS: Final = "telegrammer.authorizations"
"""environ: how many Authorization headers came; WSGI itself joins them into one."""

ROUTE: Final = "telegrammer.route"
"""environ: the application sets it to the matched route's template, for the log."""

KEY_ID: Final = "telegrammer.key_id"
"""environ: the application sets it to the id of the caller's key, for the log."""

Application = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]

OpenApplication = Callable[[], AbstractContextManager[Application]]
"""Makes the application inside a worker process, after the fork, and ends it when
that worker's last request is answered."""


class BodyError(Exception):
    """The body broke off, or its chunks are not HTTP: 400 ``INVALID_REQUEST``.

    The connection will be closed after the answer. One that leaves the application
    unhandled is answered by the front in the same way.
    """


class BodyTooLong(BodyError):  # noqa: N818
    """The body has too much beside what is read of it: 413 ``PAYLOAD_TOO_LARGE``."""


class BodyTimedOut(BodyError):  # noqa: N818
    """The body was not there in full in time: 408 ``REQUEST_TIMEOUT``."""
