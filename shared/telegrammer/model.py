"""The nouns, as every room understands them."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_USERNAME: Final = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Message:
    """A Bot API Message: what the gateway must know of it, and its own JSON text.

    ``username`` is the chat's, only for private chats, without ``@``, in lower case.
    ``migrated_to`` and ``migrated_from`` stand in the two service messages that a group
    leaves when it becomes a supergroup.
    """

    chat_id: int
    payload: str
    is_private: bool = False
    username: str | None = None
    migrated_to: int | None = None
    migrated_from: int | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """One update. ``message`` is None for kinds that the gateway does not deliver."""

    update_id: int
    message: Message | None = None


@dataclass(frozen=True, slots=True)
class MalformedUpdate:
    """An update that must not be passed over silently.

    ``update_id`` is None when not even that could be read. ``reason`` says what is
    wrong without quoting it; ``text`` is its own JSON text.
    """

    update_id: int | None
    reason: str
    text: str


def plain_username(text: str) -> str | None:
    """Return a username in the one spelling that is stored and looked up: lower case.

    None when it has none: 1 to 64 ASCII letters, digits and underscores.
    """
    return text.lower() if _USERNAME.fullmatch(text) else None


class State(StrEnum):
    """What a component does, as ``/health`` and ``status`` say it."""

    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing_off"
    CAPACITY = "capacity"
    STOPPED = "stopped"
    STALE = "stale"
    ABSENT = "absent"
