"""What the campaign knows to have happened: messages, subscriptions, callbacks, sends."""

import json
import threading
import time
from dataclasses import dataclass, field

from fire.receivers import GOOD, THOUGHTFUL, Behaviour, Verdict
from support.receiver import Received, Reply
from support.secrets import MARK


@dataclass(frozen=True)
class Said:
    """A message that somebody wrote: it waits for the gateway under ``update_id``."""

    update_id: int
    chat_id: int
    text: str
    at: float


@dataclass
class Subscription:
    """One callback URL; ``asked_at`` is the first request for it.

    ``id`` and ``granted_at`` come with the 200; ``leaving_at`` with the first wish to
    delete it or its key, ``left`` once that was answered.
    """

    number: int
    key: str
    chat_id: int
    asked_at: float
    id: int | None = None
    granted_at: float | None = None
    leaving_at: float | None = None
    left: bool = False

    @property
    def path(self) -> str:
        return f"/s/{self.number}?q={MARK}"


@dataclass(frozen=True)
class Receipt:
    """One callback as a receiver saw it, and what it answered."""

    at: float
    delivery_id: str
    text: str
    behaviour: Behaviour

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
    subscriptions: list[Subscription] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    receipts: dict[int, list[Receipt]] = field(default_factory=dict)
    behaviours: dict[int, Behaviour] = field(default_factory=dict)
    """How receivers behave that do not just accept, by their subscription's number."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def new_subscription(self, key: str, chat_id: int) -> Subscription:
        with self._lock:
            number = len(self.subscriptions)
            subscription = Subscription(number, key, chat_id, time.time())
            self.subscriptions.append(subscription)
            self.receipts[number] = []
        return subscription

    def answer(self, request: Received) -> Reply:
        """Note a callback and answer it as its receiver does at the moment."""
        number = int(request.target.removeprefix("/s/").partition("?")[0])
        text = json.loads(request.body).get("text", "")
        with self._lock:
            usual = GOOD if number % 3 else THOUGHTFUL
            behaviour = self.behaviours.get(number, usual)
            receipt = Receipt(time.time(), request.delivery_id, text, behaviour)
            self.receipts[number].append(receipt)
        return behaviour.reply()
