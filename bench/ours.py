"""Our own parts, set up for a measurement: a filled database, the real processes."""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.harness import child, environment
from telegrammer.model import Message, Update
from telegrammer.store.connection import Database
from telegrammer.store.inbox import Inbox
from telegrammer.store.keys import Keys
from telegrammer.store.layout import open_database
from telegrammer.store.subscriptions import Limits, Subscriptions

BOT_ID: Final = 123456
TOKEN: Final = f"{BOT_ID}:bench-token-for-this-machine-only"  # opens nothing
PAYLOAD_BYTES: Final = 700
NO_LIMITS: Final = Limits(100_000, 100_000)
_BATCH: Final = 1000


def payload(chat_id: int, number: int) -> str:
    """Return a Message of about 700 bytes."""
    message = {
        "message_id": number,
        "from": {"id": 5000000001, "is_bot": False, "first_name": "Ann", "language_code": "en"},
        "chat": {"id": chat_id, "title": "Ops", "type": "supergroup"},
        "date": 1770000000,
        "text": "",
    }
    message["text"] = "x" * (PAYLOAD_BYTES - len(json.dumps(message)))
    return json.dumps(message)


@contextlib.contextmanager
def new_database() -> Iterator[Database]:
    """Yield an empty database, bound to the bot, in a folder that goes at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="telegrammer-bench-") as folder,
        contextlib.closing(open_database(Path(folder) / "telegrammer.db")) as database,
    ):
        Inbox(database).bind(BOT_ID)
        yield database


def new_key(database: Database, name: str = "bench") -> str:
    key = Keys(database).add(name, int(time.time()))
    assert key is not None
    return key


def subscribe(database: Database, chat_ids: Sequence[int], url: str) -> list[int]:
    """Subscribe ``url``, which may hold ``{}`` for the chat, to each chat."""
    owner = Keys(database).owner(new_key(database, f"owner-{time.monotonic_ns()}"))
    assert owner is not None
    now = int(time.time())
    register = Subscriptions(database).register
    ids = [register(owner, chat, url.format(chat), NO_LIMITS, now) for chat in chat_ids]
    return [one for one in ids if one is not None]


def fill(database: Database, chat_ids: Sequence[int], jobs: int) -> None:
    """Ingest ``jobs`` messages, to each chat in turn."""
    inbox = Inbox(database)
    first = inbox.cursor() or 1
    now = int(time.time())
    texts = {chat: payload(chat, 1) for chat in chat_ids}
    for start in range(0, jobs, _BATCH):
        updates = [
            Update(first + n, Message(chat, texts[chat]))
            for n in range(start, min(start + _BATCH, jobs))
            for chat in [chat_ids[n % len(chat_ids)]]
        ]
        inbox.ingest(updates, max_jobs=10_000_000, now=now)


def jobs_left(database: Database) -> int:
    with database.read() as tx:
        row: tuple[int] = tx.execute("SELECT count(*) FROM deliveries").fetchone()
    return row[0]


def running_components(database: Database) -> int:
    """Return how many of our processes say that they run."""
    with database.read() as tx:
        row: tuple[int] = tx.execute(
            "SELECT count(*) FROM components WHERE state = 'running'"
        ).fetchone()
    return row[0]


@contextlib.contextmanager
def process(module: str, database: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of our processes as an operator would; its log goes to a file beside."""
    log = database.with_name(f"{module}.log")
    command = [sys.executable, "-m", module, "--db", str(database), *options]
    env = {**environment(), "TELEGRAMMER_BOT_TOKEN": TOKEN}
    with log.open("wb") as file, child(command, env=env, stderr=file) as running:
        yield running
