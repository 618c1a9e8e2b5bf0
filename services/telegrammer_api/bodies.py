"""Request bodies: JSON text -> what a caller wants, checked field by field.

Everything here raises ``ApiError`` with ``INVALID_REQUEST`` and the field to blame.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NoReturn

from telegrammer.callbacks.url import CallbackUrl
from telegrammer.model import plain_username
from telegrammer_api.errors import invalid

TEXT_LIMIT: Final = 4096  # code points, as Telegram counts them before entities

_INT64: Final = range(-(2**63), 2**63)
_NAME_SHOWN: Final = 64

Fields = dict[str, object]


@dataclass(frozen=True, slots=True)
class SendBody:
    """``chat`` is a chat's id, or a username in lower case without ``@``."""

    chat: int | str
    text: str

    @classmethod
    def parse(cls, body: bytes) -> "SendBody":
        fields = _fields(body, known=("chat_id", "username", "text"))
        if "chat_id" in fields and "username" in fields:
            raise invalid("give chat_id or username, not both", "chat_id")
        if "chat_id" not in fields and "username" not in fields:
            raise invalid("chat_id is missing: give it, or username", "chat_id")
        chat = _chat_id(fields) if "chat_id" in fields else _username(fields)
        return cls(chat, _text(fields))


@dataclass(frozen=True, slots=True)
class SubscribeBody:
    """A chat, and where its messages are wanted."""

    chat_id: int
    callback_url: CallbackUrl

    @classmethod
    def parse(cls, body: bytes) -> "SubscribeBody":
        fields = _fields(body, known=("chat_id", "callback_url"))
        return cls(_chat_id(fields), _callback_url(fields))


def _chat_id(fields: Fields) -> int:
    value = _required(fields, "chat_id")
    # bool is a kind of int, and 1.0 and 1e3 are floats: only an integer literal is one.
    if type(value) is not int or value == 0 or value not in _INT64:
        raise invalid("chat_id must be an integer of 64 bits, signed and not zero", "chat_id")
    return value


def _username(fields: Fields) -> str:
    name = plain_username(_string(fields, "username").removeprefix("@"))
    if name is None:
        raise invalid(
            "username must have 1 to 64 letters, digits or underscores of ASCII,"
            " after an optional @",
            "username",
        )
    return name


def _text(fields: Fields) -> str:
    value = _string(fields, "text")
    if not 1 <= len(value) <= TEXT_LIMIT:
        raise invalid(f"text must have 1 to {TEXT_LIMIT} characters", "text")
    return value


def _callback_url(fields: Fields) -> CallbackUrl:
    try:
        return CallbackUrl.parse(_string(fields, "callback_url"))
    except ValueError as error:
        raise invalid(f"callback_url {error}", "callback_url") from None


def _string(fields: Fields, name: str) -> str:
    value = _required(fields, name)
    if not isinstance(value, str):
        raise invalid(f"{name} must be a string", name)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid(f"{name} must not hold half of a surrogate pair", name) from None
    return value


def _required(fields: Fields, name: str) -> object:
    if name not in fields:
        raise invalid(f"{name} is missing", name)
    return fields[name]


def _fields(body: bytes, known: Collection[str]) -> Fields:
    """Return the members of the one JSON object that the body must be."""
    try:
        value = json.loads(
            body.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant
        )
    except UnicodeDecodeError:
        raise invalid("the body must be UTF-8") from None
    except json.JSONDecodeError as error:
        where = f"it is not JSON from character {error.pos + 1} on" if body else "it is empty"
        raise invalid(f"the body must be one JSON object: {where}") from None
    except (ValueError, RecursionError):
        # NaN, nested too deep, or a number of thousands of digits.
        raise invalid("the body must be one JSON object") from None
    if not isinstance(value, dict):
        raise invalid("the body must be one JSON object")
    for name in value:
        if name not in known:
            shown = _shown(name)
            raise invalid(f"unknown field {shown}: use only {', '.join(known)}", shown)
    return value


def _unique(pairs: list[tuple[str, object]]) -> Fields:
    fields: Fields = {}
    for name, value in pairs:
        if name in fields:
            raise invalid(f"the field {_shown(name)} stands there twice", _shown(name))
        fields[name] = value
    return fields


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def _shown(name: str) -> str:
    """Return a caller's field name in printable ASCII, cut short."""
    return json.dumps(name)[1:-1][:_NAME_SHOWN]
