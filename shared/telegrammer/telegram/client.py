"""The Bot API's methods that the gateway uses, and what their answers mean."""

import functools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from telegrammer.errors import (
    PollingRefused,
    RateLimited,
    Rejected,
    TelegramError,
    UpstreamFailed,
)
from telegrammer.http import Door, Limits, Response
from telegrammer.model import MalformedUpdate, Update
from telegrammer.settings import Secret
from telegrammer.telegram import parsing, slices

T = TypeVar("T")

_CONNECT: Final = 5.0
_ANSWER: Final = 10.0  # seconds for an answer, beyond what a long poll waits by itself
_MIB: Final = 1024 * 1024
_BOT_IDS: Final = range(1, 2**63)  # what a database can hold
_SECONDS: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


def bot_id_of(token: Secret) -> int:
    """Return the id of a token's bot: its first part (Bot API, "Authorizing your bot")."""
    return int(token.reveal().partition(":")[0])


class BotApi:
    """One bot, through one door: one thread at a time.

    Every method raises the door's ``HttpError`` when no usable response came, and a
    ``TelegramError`` when one came that is not a success. A success is a 2xx whose
    envelope says ``"ok": true`` and holds a result of the method's type; whatever else
    is wrong with an answer as a whole is ``UpstreamFailed``.
    """

    def __init__(self, door: Door, base_url: str, token: Secret) -> None:
        """Take ``base_url`` as ``Settings`` has it: checked, no slash at its end."""
        self._door = door
        self._base_url = base_url
        self._token = token
        self._concealed = _spellings(token)

    def get_me(self, total_timeout: float = _ANSWER) -> int:
        """Return the bot's own id. ``PollingRefused`` means a wrong token."""
        bot_id = self._poll_object("getMe", total_timeout).get("id")
        if type(bot_id) is not int or bot_id not in _BOT_IDS:
            raise UpstreamFailed(200)
        return bot_id

    def get_webhook_url(self, total_timeout: float = _ANSWER) -> str:
        """Return the URL of the standing webhook, empty when there is none."""
        info = self._poll_object("getWebhookInfo", total_timeout)
        if not isinstance(info.get("url"), str):
            raise UpstreamFailed(200)
        return str(info["url"])

    def get_updates(
        self, offset: int | None, limit: int, timeout: int
    ) -> list[Update | MalformedUpdate]:
        """Wait up to ``timeout`` seconds for updates; return at most ``limit`` (1 to 100).

        ``offset`` makes Telegram forget every update below it, for good; with None it
        forgets nothing. Raises ``PollingRefused`` for 401, 404 and 409.
        """
        parameters = {"limit": limit, "timeout": timeout, "allowed_updates": ["message"]}
        if offset is not None:
            parameters["offset"] = offset
        limits = Limits(connect=_CONNECT, total=timeout + _ANSWER, size=16 * _MIB)
        return self._call("getUpdates", parameters, limits, _updates)

    def send_message(
        self, chat_id: int, text: str, connect_timeout: float, total_timeout: float
    ) -> bytes:
        """Send a text; return the envelope of the success, in its own bytes.

        Raises ``Rejected`` when Telegram refuses chat or text, finally. After
        ``TimedOut``, and after a connection that broke, Telegram may have taken the
        message.
        """
        limits = Limits(connect=connect_timeout, total=total_timeout, size=_MIB)
        parameters = {"chat_id": chat_id, "text": text}
        return self._call("sendMessage", parameters, limits, _envelope)

    def drop_connection(self) -> None:
        """Let the next call open a connection of its own."""
        self._door.drop()

    def _poll_object(self, method: str, total_timeout: float) -> dict[str, Any]:
        limits = Limits(connect=_CONNECT, total=total_timeout, size=_MIB)
        return self._call(method, {}, limits, functools.partial(_object, polling=True))

    def _call(
        self,
        method: str,
        parameters: Mapping[str, object],
        limits: Limits,
        read: Callable[[Response], T],
    ) -> T:
        """Return what ``read`` makes of the response."""
        url = f"{self._base_url}/bot{self._token.reveal()}/{method}"
        headers = {"Content-Type": "application/json"}
        body = json.dumps(parameters).encode("ascii")
        response = self._door.exchange("POST", url, limits, body, headers)
        try:
            return read(response)
        except TelegramError as error:
            # A server, or a proxy in its place, may quote the URL. Before it is cut: half of a
            # token would not be found.
            error.description = parsing.one_line(
                self._concealed.sub("[redacted]", error.description)
            )
            if isinstance(error, UpstreamFailed):
                # What is no answer of the Bot API may be another's: no later one comes this way.
                self._door.drop()
            raise


def _spellings(token: Secret) -> re.Pattern[str]:
    """Return what finds the token, each character plain or percent-encoded, once or more often."""
    return re.compile(
        "".join(f"(?:{re.escape(c)}|%(?:25)*(?i:{ord(c):02x}))" for c in token.reveal())
    )


def _updates(response: Response) -> list[Update | MalformedUpdate]:
    try:
        return parsing.parse_updates(_result(response, polling=True))
    except ValueError:
        raise UpstreamFailed(response.status) from None


def _envelope(response: Response) -> bytes:
    _object(response, polling=False)
    return response.body


def _object(response: Response, polling: bool) -> dict[str, Any]:
    """Return the result of a success, an object."""
    result = _result(response, polling)
    try:
        value = slices.load(result)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UpstreamFailed(response.status)
    return value


def _result(response: Response, polling: bool) -> str:
    """Return the text of a success's result; raise for any other answer.

    Of a refusal, the envelope's own code counts before the HTTP status.
    """
    envelope = parsing.parse_envelope(response.body)
    if envelope is None:
        raise _refusal(response, response.status, None, polling)
    if not envelope.ok:
        raise _refusal(response, envelope.error_code or response.status, envelope, polling)
    if not 200 <= response.status < 300:
        raise UpstreamFailed(response.status)
    return envelope.result


def _refusal(
    response: Response, code: int, envelope: parsing.Envelope | None, polling: bool
) -> TelegramError:
    description = envelope.description if envelope else ""
    if code == 429:
        return RateLimited(description, _retry_after(response, envelope))
    if polling and code in (401, 404, 409):
        return PollingRefused(code, description)
    # A front end's bare 400 or 403 says nothing about chat or text.
    if not polling and envelope and code in (400, 403):
        return Rejected(code, description, envelope.migrate_to_chat_id)
    return UpstreamFailed(code, description)


def _retry_after(response: Response, envelope: parsing.Envelope | None) -> int | None:
    """Return the seconds to wait, from the envelope or the header; not from any text."""
    if envelope and envelope.retry_after:
        return envelope.retry_after
    header = response.headers.get("Retry-After", "")
    return parsing.sane_retry_after(int(header)) if _SECONDS.fullmatch(header) else None
