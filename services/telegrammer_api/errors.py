"""Everything that can go wrong, as a caller sees it: one table, one body.

Codes are for programs and never change; messages are for people and say what to do.
What never reaches the application is answered by the front: ``pages``.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import falcon
import msgspec

from telegrammer.errors import (
    BrokenResponse,
    HttpError,
    RateLimited,
    Rejected,
    StorageUnavailable,
    SubscriptionLimit,
    TelegramError,
    TimedOut,
)
from telegrammer.logs import redacted
from telegrammer_api.front import BodyError, BodyTimedOut, BodyTooLong


class Code(Enum):
    """The member's name is the code; its value the HTTP status and the usual message."""

    INVALID_REQUEST = 400, "the body broke off or its chunks are malformed: send it again"
    UNAUTHORIZED = 401, "send one header, `Authorization: Bearer KEY`, with a valid API key"
    NOT_FOUND = (
        404,
        "there is nothing at this path: spell it as documented, without a slash at its end",
    )
    USERNAME_NOT_FOUND = (
        404,
        "this username is not known: it must write to the bot in a private chat first,"
        " or use chat_id",
    )
    SUBSCRIPTION_NOT_FOUND = 404, "you have no subscription with this id: see GET /subscriptions"
    METHOD_NOT_ALLOWED = 405, "this path does not offer this method: see the Allow header"
    REQUEST_TIMEOUT = 408, "the request did not arrive in time: send it again, faster"
    SUBSCRIPTION_LIMIT = 409, "the limit of subscriptions is reached: delete one first"
    PAYLOAD_TOO_LARGE = 413, "the body is too large: send at most 65536 bytes"
    UNSUPPORTED_MEDIA_TYPE = (
        415,
        "send the body as `Content-Type: application/json`, in UTF-8 and not compressed",
    )
    TELEGRAM_REJECTED = 422, "Telegram refused the destination or the content"
    TELEGRAM_RATE_LIMITED = 429, "Telegram limits the rate: wait, then send again"
    INTERNAL_ERROR = 500, "something failed in the gateway: its log tells, by X-Request-Id"
    UPSTREAM_ERROR = (
        502,
        "the Bot API's answer cannot be used: see the gateway's log; it may have taken the message",
    )
    UPSTREAM_UNAVAILABLE = (
        502,
        "the Bot API cannot be reached, or the connection broke and it may have taken the message",
    )
    AUTH_UNAVAILABLE = 503, "the key cannot be checked now: try again later"
    STORAGE_UNAVAILABLE = 503, "the database cannot do this now: try again later"
    UPSTREAM_TIMEOUT = (
        504,
        "the Bot API did not answer in time: it may have taken the message all the same",
    )

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message


class ApiError(Exception):
    """Ends a request with ``code``. ``message`` takes the place of the usual one."""

    def __init__(
        self,
        code: Code,
        message: str = "",
        *,
        field: str | None = None,
        migrate_to_chat_id: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code.name)
        self.code = code
        self.headers = dict(headers or {})
        self._members: dict[str, str | int] = {
            "code": code.name,
            "message": message or code.message,
        }
        if field is not None:
            self._members["field"] = field
        if migrate_to_chat_id is not None:
            self._members["migrate_to_chat_id"] = migrate_to_chat_id
        if code is Code.UNAUTHORIZED:
            self.headers["WWW-Authenticate"] = "Bearer"

    def body(self) -> bytes:
        """Return the JSON that the caller gets."""
        return msgspec.json.encode({"ok": False, "error": self._members})


# The first class that fits decides; what fits none is unforeseen.
_CODES: Final = (
    (StorageUnavailable, Code.STORAGE_UNAVAILABLE),
    (SubscriptionLimit, Code.SUBSCRIPTION_LIMIT),
    (TimedOut, Code.UPSTREAM_TIMEOUT),
    (BrokenResponse, Code.UPSTREAM_ERROR),
    (HttpError, Code.UPSTREAM_UNAVAILABLE),
    (TelegramError, Code.UPSTREAM_ERROR),
    (BodyTimedOut, Code.REQUEST_TIMEOUT),
    (BodyTooLong, Code.PAYLOAD_TOO_LARGE),
    (BodyError, Code.INVALID_REQUEST),
    (falcon.HTTPNotFound, Code.NOT_FOUND),
)


def invalid(message: str, field: str | None = None) -> ApiError:
    """Return the error for a request whose body is to blame."""
    return ApiError(Code.INVALID_REQUEST, message, field=field)


def translated(error: Exception) -> ApiError:
    """Return what the caller is told when ``error`` ended the request."""
    match error:
        case ApiError():
            return error
        case Rejected():
            moved = error.migrate_to_chat_id
            text = redacted(error.description)
            return ApiError(Code.TELEGRAM_REJECTED, text, migrate_to_chat_id=moved)
        case RateLimited():
            wait = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
            text = redacted(error.description)
            return ApiError(Code.TELEGRAM_RATE_LIMITED, text, headers=wait)
        case _:
            found = (code for kind, code in _CODES if isinstance(error, kind))
            return ApiError(next(found, Code.INTERNAL_ERROR))
