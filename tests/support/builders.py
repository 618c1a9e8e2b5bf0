"""Rows and nouns with their defaults filled in."""

from pathlib import Path

from telegrammer.model import Message, Update
from telegrammer.store.connection import Database
from telegrammer.store.inbox import Inbox, Ingested
from telegrammer.store.keys import Keys
from telegrammer.store.layout import open_database
from telegrammer.store.queue import Job, Queue
from telegrammer.store.subscriptions import Limits, Subscriptions

NOW = 1_790_000_000
BOT = 6000000001
CHAT = -1001
LIMITS = Limits(per_key=100, total=1000)


class Gateway:
    """A database with everything that stands on it, and shortcuts to fill it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database: Database = open_database(path)
        self.keys = Keys(self.database)
        self.subscriptions = Subscriptions(self.database)
        self.inbox = Inbox(self.database)
        self.queue = Queue(self.database)
        self.inbox.bind(BOT)

    def key(self, name: str = "app") -> tuple[int, str]:
        """Return a new key's owner id and its text."""
        key = self.keys.add(name, NOW)
        assert key is not None
        owner = self.keys.owner(key)
        assert owner is not None
        return owner, key

    def subscribe(self, owner: int, url: str, chat: int = CHAT) -> int:
        subscription = self.subscriptions.register(owner, chat, url, LIMITS, NOW)
        assert subscription is not None
        return subscription

    def ingest(self, *updates: Update, now: int = NOW, max_jobs: int = 100_000) -> Ingested:
        return self.inbox.ingest(updates, max_jobs, now)

    def jobs(self) -> list[tuple[int, int, str, str, int, str | None]]:
        """Return (subscription, update, payload, state, attempts, last error), in order of id."""
        with self.database.read() as tx:
            return tx.execute(
                "SELECT subscription_id, update_id, payload, state, attempt_count, last_error"
                " FROM deliveries ORDER BY id"
            ).fetchall()

    def close(self) -> None:
        self.database.close()


def message(update_id: int, chat: int = CHAT, payload: str | None = None) -> Update:
    text = f'{{"message_id": {update_id}}}' if payload is None else payload
    return Update(update_id, Message(chat, text))


def private(update_id: int, chat: int, username: str | None) -> Update:
    return Update(update_id, Message(chat, "{}", is_private=True, username=username))


def job(**changes: int | str) -> Job:
    values: dict[str, int | str] = {
        "id": 1,
        "subscription_id": 17,
        "update_id": 5,
        "payload": "{}",
        "attempt_count": 0,
        "next_attempt_at": NOW,
        "created_at": NOW,
        "callback_url": "http://a/",
    }
    return Job(**{**values, **changes})  # type: ignore[arg-type]
