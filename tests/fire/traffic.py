"""People who write, and programs that use the HTTP API, for as long as they are let."""

import http.client
import json
import random
import threading
import time
from collections.abc import Set
from typing import Final

from fire.book import Send, Subscription
from fire.diary import Excuse
from fire.telegram_faults import SEND_FAULTS, send_fault
from fire.world import FORESIGHTED, World
from support.secrets import MARK
from telegrammer_sandbox.faults import Fault

LONGEST_ANSWER: Final = 25.0
"""Seconds: a look-up and an operation that each wait for the lock, and a send."""

_STORAGE: Final = frozenset({(503, "AUTH_UNAVAILABLE"), (503, "STORAGE_UNAVAILABLE")})
_GOODBYE: Final = 2.0
"""Seconds: a connection that Telegram has dropped may not be known to be gone for so long."""

_STRAY: Final = 15.0
"""Seconds: so long may a call whose caller is gone still come and meet another one's fault."""

_MOVING: Final = 1.0
"""Seconds that a group may take to become a supergroup."""

_NO_KEY: Final = frozenset({(401, "UNAUTHORIZED")})
_MOST_SUBSCRIPTIONS: Final = 12
_FEWEST_SUBSCRIPTIONS: Final = 2

Outcome = tuple[int, str]


class People:
    """Write to the bot, now and then several at once."""

    def __init__(self, world: World, rng: random.Random, rate: float) -> None:
        """``rate`` is in messages a second."""
        self._world = world
        self._rng = rng
        self._rate = rate
        self._count = 0

    def act(self) -> float:
        """Write something; return the seconds until the next time."""
        burst = self._rng.choice((1, 1, 1, 1, 6))
        for _ in range(burst):
            self._count += 1
            text = f"{MARK}-said-{self._count}"
            self._world.say(self._rng.choice(self._world.chats), text)
        return self._rng.expovariate(self._rate) * burst


class Caller:
    """A program with a key: it sends, subscribes, leaves and looks, and checks every answer."""

    def __init__(self, world: World, rng: random.Random, name: str) -> None:
        self._world = world
        self._rng = rng
        self._name = name
        self._key = world.keys[name]
        self._client: http.client.HTTPConnection | None = None
        self._mine: list[Subscription] = []  # all that were asked for with this key
        self._open: list[Subscription] = []
        self._unsettled: list[Subscription] = []
        self._count = 0

    def act(self) -> float:
        """Do one thing; return the seconds until the next."""
        self._begin_anew()
        acts = [self._send] * 4 + [self._look, self._list, self._subscribe, self._leave]
        if self._unsettled:
            acts += [self.settle] * 4
        if self._world.coming is not None:
            acts += [self._prepare] * 12
        if self._world.is_leaving_time:
            acts += [self._leave] * 8
        self._rng.choice(acts)()
        return self._rng.uniform(0.02, 0.2)

    def settle(self) -> None:
        """Ask again where no answer told what became of a subscription."""
        self._begin_anew()
        for subscription in list(self._unsettled):
            if subscription.id is None:
                self._ask_for(subscription)
            else:
                self._ask_to_leave(subscription)

    @property
    def is_settled(self) -> bool:
        return not self._unsettled and not self._has_lost_its_key

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def subscribe_to(self, chat_id: int, twin_of: Subscription | None = None) -> None:
        subscription = self._world.book.new_subscription(chat_id, twin_of)
        self._mine.append(subscription)
        self._unsettled.append(subscription)
        self._ask_for(subscription)

    # -- what it does ----------------------------------------------------------------

    def _subscribe(self) -> None:
        if len(self._open) < _MOST_SUBSCRIPTIONS:
            self.subscribe_to(self._rng.choice(self._world.chats))

    def _prepare(self) -> None:
        """Hear of a group that is about to move, and, as one of the two, of what it will be."""
        coming = self._world.coming
        if coming is None:
            return
        group, supergroup = coming
        there = [each for each in self._open if each.chat_id == group]
        if not there:
            self.subscribe_to(group)
        elif self._name == FORESIGHTED:
            known = {id(each.twin_of) for each in self._mine}
            for subscription in there:
                if id(subscription) not in known:
                    self.subscribe_to(supergroup, subscription)

    def _leave(self) -> None:
        # Whether a twin stood when the group moved decides what becomes of the other one.
        found = [each for each in self._open if each.twin_of is None]
        if len(found) > _FEWEST_SUBSCRIPTIONS and self._rng.random() < 0.5:
            subscription = self._rng.choice(found)
            self._open.remove(subscription)
            subscription.leaving_at = time.time()
            self._unsettled.append(subscription)
            self._ask_to_leave(subscription)

    def _ask_for(self, subscription: Subscription) -> None:
        url = self._world.receiver.url + subscription.path
        chat_id = self._world.book.now_called(subscription.chat_id)
        body = {"chat_id": chat_id, "callback_url": url}
        answer = self._call("POST", "/subscribe", body, {(200, "")})
        if answer is not None and answer[0] == 200:
            subscription.id = json.loads(answer[1])["subscription_id"]
            subscription.granted_as = chat_id
            subscription.granted_at = time.time()
            self._unsettled.remove(subscription)
            twin = subscription.twin_of
            if twin is not None and twin.id == subscription.id:
                subscription.same_as = twin  # the group had moved, and it with it
            else:
                self._open.append(subscription)

    def _ask_to_leave(self, subscription: Subscription) -> None:
        target = f"/subscriptions/{subscription.id}"
        allowed = {(204, ""), (404, "SUBSCRIPTION_NOT_FOUND")}
        answer = self._call("DELETE", target, None, allowed)
        if answer is not None and answer[0] in (204, 404):
            subscription.left_at = time.time()
            self._unsettled.remove(subscription)

    @property
    def _has_lost_its_key(self) -> bool:
        return self._world.keys[self._name] is not self._key

    def _begin_anew(self) -> None:
        """Take the new key, if the old one was deleted, and subscribe to everything again."""
        if not self._has_lost_its_key:
            return
        assert self._key.leaving_at is not None
        for subscription in self._mine:
            leaving_at = subscription.leaving_at or self._key.leaving_at
            subscription.leaving_at = min(leaving_at, self._key.leaving_at)
            subscription.left_at = subscription.left_at or self._key.left_at
        self._mine, self._open, self._unsettled = [], [], []
        self._key = self._world.keys[self._name]
        for chat_id in list(self._world.chats):
            self.subscribe_to(chat_id)

    def _look(self) -> None:
        self._call("GET", "/health", None, {(200, ""), (503, "")})

    def _list(self) -> None:
        answer = self._call("GET", "/subscriptions", None, {(200, "")})
        if answer is None or answer[0] != 200 or self._unsettled:
            return
        if self._key.leaving_at is not None:
            return
        # Those for a group that moved may have retired, or be of no use to anybody.
        moves = self._world.book.moves
        moved = {move.old for move in moves} | {move.new for move in moves}
        rows = json.loads(answer[1])["subscriptions"]
        listed = {each["id"] for each in rows if each["chat_id"] not in moved}
        if listed != {each.id for each in self._open if each.chat_id not in moved}:
            self._world.diary.violation(f"GET /subscriptions: {rows}")

    def _send(self) -> None:
        # One after the other: a fault is for whichever call comes next.
        with self._world.sending:
            self._send_alone()

    def _send_alone(self) -> None:
        self._count += 1
        text = f"{MARK}-sent-{self._name}-{self._count}"
        chats = [*self._world.chats, *(move.old for move in self._world.book.moves)]
        send = Send(text, self._rng.choice(chats), time.time())
        self._world.book.sends.append(send)
        fault = self._set_fault(send)
        answer = self._call("POST", "/send", {"chat_id": send.chat_id, "text": text}, None)
        send.ended = time.time()
        met = fault is not None and not self._world.telegram.remove_fault(fault)
        if send.fault == "held":
            self._world.telegram.release()
        if answer is None:
            self._world.unanswered_at = send.ended
            return
        send.status, send.code = answer[0], _code(*answer)
        self._check("POST /send " + send.fault, answer, self._told(send, met=met), send.began)
        if send.fault == "dropped":
            self._world.dropped_at = send.ended

    def _set_fault(self, send: Send) -> Fault | None:
        if self._rng.random() > 0.3:
            return None
        send.fault = self._rng.choice(sorted(SEND_FAULTS))
        fault = send_fault(send.fault)
        self._world.telegram.set_fault(fault)
        return fault

    def _told(self, send: Send, *, met: bool) -> set[Outcome]:
        """Return what the caller may be told; ``met`` says that a call has met the fault."""
        if send.began - self._world.unanswered_at < _STRAY:
            return set().union(*(kind.told for kind in SEND_FAULTS.values()))
        told = set(SEND_FAULTS[send.fault].told) if met else {(200, "")}
        told = self._told_of_move(send, told)
        if send.began - self._world.dropped_at < _GOODBYE:
            told.add((502, "UPSTREAM_UNAVAILABLE"))
        if self._world.diary.was(Excuse.SLOW, send.began, send.ended):
            told |= {(200, ""), (502, "UPSTREAM_UNAVAILABLE"), (504, "UPSTREAM_TIMEOUT")}
        return told

    def _told_of_move(self, send: Send, told: set[Outcome]) -> set[Outcome]:
        """What would be a success is a refusal where the group is a supergroup now."""
        move = self._world.book.move_of(send.chat_id)
        if move is None or (200, "") not in told:
            return told
        is_over = send.began > move.at + _MOVING
        return (told - {(200, "")} if is_over else told) | {(422, "TELEGRAM_REJECTED")}

    # -- how it asks -------------------------------------------------------------------

    def _call(
        self, method: str, target: str, body: object, allowed: set[Outcome] | None
    ) -> tuple[int, bytes] | None:
        """Return status and body; None when no answer came, for which there was a reason."""
        began = time.time()
        try:
            answer = self._exchange(method, target, body)
        except (OSError, http.client.HTTPException) as error:
            self._hang_up()
            if not self._world.diary.was(Excuse.API_GONE, began - 6, time.time()):
                self._world.diary.violation(f"{method} {target}: {type(error).__name__} {error}")
            return None
        if allowed is not None:
            self._check(f"{method} {target}", answer, allowed, began)
        return answer

    def _exchange(self, method: str, target: str, body: object) -> tuple[int, bytes]:
        if self._client is None:
            self._client = http.client.HTTPConnection(
                "127.0.0.1", self._world.port, timeout=LONGEST_ANSWER
            )
        headers = {"Authorization": f"Bearer {self._key.text}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        self._client.request(method, target, data, headers)
        response = self._client.getresponse()
        answer = response.status, response.read()
        if self._rng.random() < 0.3:
            self._hang_up()
        return answer

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _check(
        self, what: str, answer: tuple[int, bytes], allowed: Set[Outcome], began: float
    ) -> None:
        self._world.diary.count("API answers")
        outcome = answer[0], _code(*answer)
        allowed = self._allowed_by_key(allowed, began)
        if outcome in allowed:
            return
        if outcome in _STORAGE and self._world.diary.was(Excuse.STORAGE, began - 1, time.time()):
            self._world.diary.count("API 503 without storage")
            return
        span = f"{began:.3f} to {time.time():.3f}"
        self._world.diary.violation(f"{what}: {outcome}, not one of {sorted(allowed)}, {span}")

    def _allowed_by_key(self, allowed: Set[Outcome], began: float) -> Set[Outcome]:
        """Once the key is gone no request that begins is let in, while it goes any may be."""
        if self._key.leaving_at is None:
            return allowed
        is_gone = self._key.left_at is not None and self._key.left_at < began
        return _NO_KEY if is_gone else allowed | _NO_KEY


def _code(status: int, body: bytes) -> str:
    """Return an error's code; empty for a success and for a health report."""
    if status < 400 or b'"components"' in body:
        return ""
    error = json.loads(body)["error"]
    return str(error["code"])


class Crowd:
    """Threads that act until they are told to stop."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.failures: list[BaseException] = []

    def add(self, actor: People | Caller, name: str) -> None:
        def run() -> None:
            try:
                while not self._stop.wait(actor.act()):
                    pass
            except BaseException as error:
                self.failures.append(error)
                raise

        self._threads.append(threading.Thread(target=run, name=name))

    def __enter__(self) -> "Crowd":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
