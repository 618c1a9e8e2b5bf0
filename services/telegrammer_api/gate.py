"""What every request passes before its operation, in this order.

1. path and method, 2. credential, 3. size of the body, 4. its media type. Not a byte
of the body is read before the credential is known to be good, and nothing more is
done after a refusal.
"""

import re
from typing import Final

import falcon

from telegrammer.errors import StorageUnavailable
from telegrammer.store.connection import Database
from telegrammer.store.keys import Keys
from telegrammer_api.errors import ApiError, Code
from telegrammer_api.front import AUTHORIZATIONS, KEY_ID, ROUTE
from telegrammer_api.pool import Pool

BODY_LIMIT: Final = 65536

_CHUNK: Final = 16384
# One spelling for each path: no empty segment, no escape.
_PATH: Final = re.compile(r"(?:/[^/%]+)+")
_CREDENTIAL: Final = re.compile(r"bearer +([!-~]+)", re.IGNORECASE | re.ASCII)
_MEDIA_TYPE: Final = re.compile(
    r"application/json[ \t]*(?:;[ \t]*(?:charset=(?:utf-8|\"utf-8\")[ \t]*)?)*",
    re.IGNORECASE | re.ASCII,
)


class Request(falcon.Request):
    """A request that passed the gate: whose it is, and the body of a POST."""

    __slots__ = ("body", "owner_id")

    owner_id: int
    body: bytes


class Gate:
    """The middleware that refuses."""

    def __init__(self, pool: Pool[Database]) -> None:
        self._pool = pool

    def process_request(self, req: Request, resp: falcon.Response) -> None:
        """Refuse every spelling of a path that the router would take for another."""
        raw: str = req.env["RAW_URI"]
        path = raw.partition("?")[0]
        if path != req.path or "#" in raw or not _PATH.fullmatch(path):
            raise ApiError(Code.NOT_FOUND)

    def process_resource(
        self, req: Request, resp: falcon.Response, resource: object, params: dict[str, str]
    ) -> None:
        """Take the steps that follow once the path is known."""
        req.env[ROUTE] = req.uri_template
        _check_method(req.method, resource)
        req.owner_id = req.env[KEY_ID] = self._owner(req)
        if (_declared_length(req) or 0) > BODY_LIMIT:
            raise ApiError(Code.PAYLOAD_TOO_LARGE)
        if req.method == "POST":
            req.body = _read_body(req)
            _check_media_type(req)

    def _owner(self, req: Request) -> int:
        credential = _CREDENTIAL.fullmatch(req.env.get("HTTP_AUTHORIZATION", ""))
        if credential is None or req.env[AUTHORIZATIONS] != 1:
            raise ApiError(Code.UNAUTHORIZED)
        try:
            with self._pool.borrow() as database:
                owner = Keys(database).owner(credential[1])
        except StorageUnavailable as error:
            raise ApiError(Code.AUTH_UNAVAILABLE) from error
        if owner is None:
            raise ApiError(Code.UNAUTHORIZED)
        return owner


def _check_method(method: str, resource: object) -> None:
    offered = [name for name in falcon.HTTP_METHODS if hasattr(resource, f"on_{name.lower()}")]
    if method not in offered:
        raise ApiError(Code.METHOD_NOT_ALLOWED, headers={"Allow": ", ".join(offered)})


def _read_body(req: Request) -> bytes:
    """Return the whole body: one that is too short is a ``BodyError`` of the front."""
    stream = req.env["wsgi.input"]
    body = bytearray()
    while chunk := stream.read(min(_CHUNK, BODY_LIMIT + 1 - len(body))):
        body += chunk
        if len(body) > BODY_LIMIT:
            raise ApiError(Code.PAYLOAD_TOO_LARGE)
    return bytes(body)


def _declared_length(req: Request) -> int | None:
    text = req.env.get("CONTENT_LENGTH", "")
    return int(text) if text else None


def _check_media_type(req: Request) -> None:
    coding = req.env.get("HTTP_CONTENT_ENCODING", "identity").lower()
    if coding != "identity" or not _MEDIA_TYPE.fullmatch(req.env.get("CONTENT_TYPE", "")):
        raise ApiError(Code.UNSUPPORTED_MEDIA_TYPE)
