"""Everything that a running sandbox knows, behind one lock.

``changed`` is the lock and the bell: hold it to read or write, ring it
(``notify_all``) after a change that somebody may wait for.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from telegrammer.clock import Clock
from telegrammer_sandbox.faults import Faults
from telegrammer_sandbox.ledger import Ledger
from telegrammer_sandbox.polling import DEFAULT_KINDS, Poll, PollRules
from telegrammer_sandbox.updates import UpdateQueue
from telegrammer_sandbox.world import Chat, Json, User, World, text_content

FIRST_UPDATE_ID: Final = 100_000_001
MESSAGE_LIFETIME: Final = 86400


@dataclass(frozen=True)
class Bot:
    """The bot that the sandbox stands in for; its id is the token's first part."""

    token: str
    username: str

    @property
    def user(self) -> User:
        return User(int(self.token.partition(":")[0]), "Gate", username=self.username, is_bot=True)


class State:
    """The sandbox's state; every method wants ``changed`` to be held."""

    def __init__(self, bot: Bot, clock: Clock, first_update_id: int = FIRST_UPDATE_ID) -> None:
        self.bot = bot
        self._first_update_id = first_update_id
        self.clock = clock
        self.changed = threading.Condition()
        self.closing = False
        # Tells a page that the world it knew is gone, with this process or by a reset.
        self.epoch = int(clock.now() * 1000)
        self._begin()

    def _begin(self) -> None:
        self.world = World(self.bot.user)
        self.queue = UpdateQueue(self._first_update_id)
        self.rules = PollRules()
        self.allowed = DEFAULT_KINDS
        self.webhook_url = ""
        self.next_webhook_at = 0.0
        self.parked: Poll | None = None
        self.ledger = Ledger()
        self.faults = Faults()
        self.releases = 0

    def reset(self) -> None:
        """Begin anew: nothing that happened is remembered, and what is held goes on."""
        self.epoch += 1
        self._begin()
        self.changed.notify_all()

    def close(self) -> None:
        self.closing = True
        self.changed.notify_all()

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait up to ``seconds`` for the condition; return at once when closing."""
        self.changed.wait_for(lambda: self.closing or condition(), seconds)
        return condition()

    def say(self, chat: Chat, sender: User, text: str) -> tuple[Json, int | None]:
        """Post a person's message; return it and its update's id, if it became one."""
        message = self.world.post(chat, sender, self.clock.now(), text_content(text))
        kind = "channel_post" if chat.type == "channel" else "message"
        return message, self._enqueue(kind, message)

    def push_raw(self, body: bytes) -> int:
        """Queue an update byte for byte, whatever the bot asked for."""
        update_id = self.queue.add_raw(body)
        self.ledger.queued(update_id)
        self.changed.notify_all()
        return update_id

    def migrate(self, chat: Chat) -> Chat:
        """Turn a group into a supergroup, with Telegram's two service messages."""
        new = self.world.migrate(chat)
        anyone = next(iter(self.world.people.values()))
        now = self.clock.now()
        before = self.world.post(chat, anyone, now, {"migrate_to_chat_id": new.id})
        self._enqueue("message", before)
        after = self.world.post(new, anyone, now, {"migrate_from_chat_id": chat.id})
        self._enqueue("message", after)
        return new

    def restart_ids(self, next_id: int) -> None:
        self.ledger.forgotten()
        self.queue.restart(next_id)

    def person(self, chat: Chat, user_id: int | None, names: dict[str, str]) -> User:
        """Return who speaks: the one given, or whose chat it is, or the first there is.

        Names that are given are theirs from now on.
        """
        fallback = chat.user or next(iter(self.world.people.values()))
        wanted = user_id or fallback.id
        known = self.world.people.get(wanted)
        if known is not None and not names:
            return known
        before = known or User(wanted, "User", str(wanted))
        return self.world.meet(
            replace(
                before,
                first_name=names.get("first_name", before.first_name),
                last_name=names.get("last_name", before.last_name),
                username=names.get("username", before.username),
            )
        )

    def _enqueue(self, kind: str, content: Json) -> int | None:
        self.changed.notify_all()
        if kind not in self.allowed:
            return None
        expires_at = self.clock.now() + MESSAGE_LIFETIME
        update_id = self.queue.add(kind, as_ascii(content), expires_at)
        if update_id is not None:
            self.ledger.queued(update_id)
        return update_id


def as_ascii(value: object) -> str:
    """Return JSON as the official server writes it: pure ASCII, no spaces."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
