"""What stands in the Bot API's answers.

Shapes are checked by hand, on values from ``slices.load``: msgspec refuses escapes of
lone surrogates, which are legal JSON and must be delivered as they came.
"""

from dataclasses import dataclass
from typing import Any, Final

from telegrammer.model import MalformedUpdate, Message, Update, plain_username
from telegrammer.telegram import slices

_MOST_UPDATES: Final = 100  # getUpdates gives no more, whatever it is asked for
_MOST_UPDATE_ID: Final = 2**53  # beyond, other languages' readers lose digits
_INT64: Final = range(-(2**63), 2**63)
_MOST_DESCRIPTION: Final = 500
_MOST_RETRY_AFTER: Final = 7 * 86400


@dataclass(frozen=True)
class Envelope:
    """An answer's envelope. ``result`` is the result's own text, empty when there is none.

    ``description`` is as it came; see ``one_line``.
    """

    ok: bool
    result: str
    error_code: int | None
    description: str
    retry_after: int | None
    migrate_to_chat_id: int | None


def parse_envelope(body: bytes) -> Envelope | None:
    """Return the envelope in a response's body, or None when there is none in it.

    An envelope is an object in UTF-8 with a boolean ``ok``. Optional members of a wrong
    type or out of range count as absent. ``description`` is made fit for a line of text:
    no control characters, at most 500 characters. ``retry_after`` is in seconds, 1 second
    to 7 days.
    """
    try:
        texts = slices.members(body.decode("utf-8"))
        result = texts.pop("result", "")
        values = {name: slices.load(text) for name, text in texts.items()}
    except ValueError:
        return None
    ok, parameters = values.get("ok"), values.get("parameters")
    description = values.get("description")
    if not isinstance(ok, bool):
        return None
    if not isinstance(parameters, dict):
        parameters = {}
    return Envelope(
        ok=ok,
        result=result,
        error_code=_integer(values.get("error_code"), range(100, 1000)),
        description=description if isinstance(description, str) else "",
        retry_after=sane_retry_after(parameters.get("retry_after")),
        migrate_to_chat_id=_integer(parameters.get("migrate_to_chat_id"), _INT64),
    )


def one_line(description: str) -> str:
    """Return it fit for a line of text: no control characters, at most 500 characters."""
    printable = "".join(c if c.isprintable() else " " for c in description)
    return " ".join(printable.split())[:_MOST_DESCRIPTION]


def sane_retry_after(seconds: object) -> int | None:
    """Return ``seconds`` when it is an integer from 1 second to 7 days, else None."""
    return _integer(seconds, range(1, _MOST_RETRY_AFTER + 1))


def parse_updates(result: str) -> list[Update | MalformedUpdate]:
    """Return what stands in the result of ``getUpdates``, in its order.

    Raises ``ValueError`` when that is not an array of at most 100 elements. An element of a
    wrong shape becomes a ``MalformedUpdate``; only what the gateway must know of an update
    can be wrong.
    """
    return [_parse_update(text) for text in slices.elements(result, _MOST_UPDATES)]


def _parse_update(text: str) -> Update | MalformedUpdate:
    update_id: int | None = None
    try:
        texts = slices.members(text)
        update_id = _update_id(texts)
        update = slices.load(text)
        if "message" not in update:
            return Update(update_id)
        return Update(update_id, _message(update["message"], texts["message"]))
    except ValueError as error:
        return MalformedUpdate(update_id, str(error), text)


def _update_id(texts: dict[str, str]) -> int:
    """Return the id even of an update that is wrong elsewhere, so that it can be named."""
    update_id = slices.load(texts.get("update_id", "null"))
    _require(_integer(update_id) is not None, "update_id is not an integer")
    _require(update_id in range(_MOST_UPDATE_ID), "update_id is out of range")
    return int(update_id)


def _message(message: Any, text: str) -> Message:  # noqa: ANN401 - any JSON value
    _require(isinstance(message, dict), "message is not an object")
    for name in ("message_id", "date"):
        _require(_integer(message.get(name)) is not None, f"message.{name} is not an integer")
    chat = message.get("chat")
    _require(isinstance(chat, dict), "message.chat is not an object")
    _require(_integer(chat.get("id")) is not None, "message.chat.id is not an integer")
    _require(chat["id"] in _INT64, "message.chat.id is out of range")
    _require(isinstance(chat.get("type"), str), "message.chat.type is not a string")
    is_private = chat["type"] == "private"
    username = chat.get("username")
    return Message(
        chat_id=chat["id"],
        payload=text,
        is_private=is_private,
        username=plain_username(username) if is_private and isinstance(username, str) else None,
        migrated_to=_integer(message.get("migrate_to_chat_id"), _INT64),
        migrated_from=_integer(message.get("migrate_from_chat_id"), _INT64),
    )


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise ValueError(reason)


def _integer(value: object, within: range | None = None) -> int | None:
    """Return ``value`` when it is an integer literal, in range; a boolean is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if within is None or value in within else None
