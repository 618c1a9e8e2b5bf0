"""What the campaign knows to have happened: messages, keys, subscriptions, callbacks, sends."""

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from fire.receivers import GOOD, THOUGHTFUL, Behaviour, Verdict
from support.receiver import Received, Reply
from support.secrets import MARK

_SERVICE: Final = ("migrate_to_chat_id", "migrate_from_chat_id")


@dataclass(frozen=True)
class Said:
    """A message that somebody wrote: it waits for the gateway under ``update_id``.

    A service message's text is what ``name_of`` makes of it.
    """

    update_id: int
    chat_id: int
    text: str
    at: float


@dataclass(frozen=True)
class Move:
    """A group that became a supergroup; ``at`` is before anybody could know."""

    old: int
    new: int
    at: float


@dataclass(frozen=True)
class Revival:
    """A dead letter that an operator had tried again; ``at`` is before he did."""

    subscription: int
    update_id: int
    at: float


@dataclass
class Key:
    """A caller's credential: ``leaving_at`` is before, ``left_at`` after its deletion."""

    name: str
    text: str
    leaving_at: float | None = None
    left_at: float | None = None


@dataclass
class Subscription:
    """One callback URL for one chat; ``asked_at`` is the first request for it.

    ``id`` and ``granted_at`` come with the 200, to a request for ``granted_as``: the
    chat, or what it had become. ``leaving_at`` comes with the first wish to delete it
    or its key, ``left_at`` when it was certainly gone. ``twin_of`` has the same URL on
    the group of which this chat is the supergroup; ``same_as`` turned out to be this one.
    """

    number: int
    chat_id: int
    asked_at: float
    twin_of: "Subscription | None" = None
    same_as: "Subscription | None" = None
    id: int | None = None
    granted_as: int | None = None
    granted_at: float | None = None
    leaving_at: float | None = None
    left_at: float | None = None

    @property
    def place(self) -> int:
        """The number by which its callbacks come."""
        return self.number if self.twin_of is None else self.twin_of.place

    @property
    def path(self) -> str:
        return f"/s/{self.place}?q={MARK}"


@dataclass(frozen=True)
class Receipt:
    """One callback as a receiver saw it, and what it answered."""

    at: float
    delivery_id: str
    text: str
    behaviour: Behaviour

    @property
    def subscription(self) -> int:
        """The id of the subscription that it says it is for."""
        return int(self.delivery_id.split("-")[1])

    @property
    def accepted(self) -> bool:
        return self.behaviour.verdict is Verdict.ACCEPTED


@dataclass
class Send:
    """One ``POST /send``: ``status`` is None while, or when, no answer came."""

    text: str
    chat_id: int
    began: float
    ended: float = 0.0
    status: int | None = None
    code: str = ""
    fault: str = ""


@dataclass
class Book:
    """Everything, in order. Each list has one writer; receipts have many."""

    said: list[Said] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    sequence_begins: int = 0
    """Where in ``said`` the newest sequence of update ids begins."""
    restarts: int = 0
    """How often Telegram began a sequence of update ids below the last one."""
    revivals: list[Revival] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    subscriptions: list[Subscription] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    receipts: dict[int, list[Receipt]] = field(default_factory=dict)
    behaviours: dict[int, Behaviour] = field(default_factory=dict)
    """How receivers behave that do not just accept, by their subscription's number."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def new_subscription(self, chat_id: int, twin_of: Subscription | None = None) -> Subscription:
        with self._lock:
            number = len(self.subscriptions)
            subscription = Subscription(number, chat_id, time.time(), twin_of)
            self.subscriptions.append(subscription)
            self.receipts[number] = []
        return subscription

    def move_of(self, chat_id: int) -> Move | None:
        """Return what became of the group, if it is no longer one."""
        return next((move for move in self.moves if move.old == chat_id), None)

    def now_called(self, chat_id: int) -> int:
        """Return the id under which people write in the chat now."""
        move = self.move_of(chat_id)
        return move.new if move else chat_id

    def answer(self, request: Received) -> Reply:
        """Note a callback and answer it as its receiver does at the moment."""
        number = int(request.target.removeprefix("/s/").partition("?")[0])
        text = name_of(json.loads(request.body))
        with self._lock:
            usual = GOOD if number % 3 else THOUGHTFUL
            behaviour = self.behaviours.get(number, usual)
            receipt = Receipt(time.time(), request.delivery_id, text, behaviour)
            self.receipts[number].append(receipt)
        return behaviour.reply()


def name_of(message: dict[str, object]) -> str:
    """Return a message's text, or which service message it is."""
    service = (f"{name} {message[name]}" for name in _SERVICE if name in message)
    return next(service, str(message.get("text", "")))
