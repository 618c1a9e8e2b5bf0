"""Everything that the campaign acts on: the stack, a Telegram, receivers, a disk, a clock."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fire.book import Book, Key, Move, Revival, Said
from fire.diary import Diary
from fire.receivers import CALLBACK_TIMEOUT
from fire.stack import FAKETIME, TICK, Stack
from fire.telegram_faults import SEND_TIMEOUT
from support.receiver import Receiver
from support.running_api import free_port
from support.sandbox import TOKEN, USERNAME, Sandbox
from support.secrets import MARK
from telegrammer.store.keys import Keys
from telegrammer.store.layout import open_database
from telegrammer_sandbox.faults import Fault
from telegrammer_sandbox.server import Server
from telegrammer_sandbox.state import Bot

CHATS: Final = (1001, 1002, 1003, -5001, -5002, -1001234567890)
KEYS: Final = ("one", "two")
FORESIGHTED: Final = "one"
"""Who subscribes to a group that will be a supergroup under its new id as well."""

BOT_ID: Final = int(TOKEN.partition(":")[0])
ATTEMPTS: Final = 6
"""The gateway's attempts for a callback in the campaign: some 30 s of delays."""

_DISK_SIZE: Final = "48m"
_MUCH: Final = 6  # messages
_FIRST_SUPERGROUP: Final = -1_002_000_000_100  # the id of the first that the sandbox makes
_PATIENCE: Final = 30.0  # seconds that an operator tries for
_QUIET: Final = 9 * 86400  # seconds: more than a week, however the clock jumps afterwards


class Telegram:
    """The Bot API stand-in, in this process: whatever is killed, it remembers."""

    def __init__(self, server: Server) -> None:
        self.state: Final = server.state
        self.url: Final = server.url
        self._people: Final = Sandbox(server.url, TOKEN)

    def say(self, chat_id: int, text: str) -> int | None:
        """Write as a person; None when the bot has not yet asked for messages."""
        return self._people.say(chat_id, text)

    def push_malformed(self) -> int:
        """Queue an update that has an id and a message without its required fields."""
        with self.state.changed:
            update_id = self.state.queue.tail
            body = f'{{"update_id":{update_id},"message":{{"message_id":"x"}}}}'
            return self.state.push_raw(body.encode())

    def set_fault(self, fault: Fault) -> None:
        with self.state.changed:
            self.state.faults.waiting.append(fault)

    def remove_fault(self, fault: Fault) -> bool:
        """Take it back; False when a call has met it for the last time."""
        with self.state.changed:
            waiting = self.state.faults.waiting
            found = [index for index, other in enumerate(waiting) if other is fault]
            for index in found:
                del waiting[index]
        return bool(found)

    def release(self) -> None:
        with self.state.changed:
            self.state.releases += 1
            self.state.changed.notify_all()

    def migrate(self, group: int) -> tuple[int, int]:
        """Make it a supergroup; return its new id and the first of the two updates' ids."""
        with self.state.changed:
            first = self.state.queue.tail
            new = self.state.migrate(self.state.world.chat(group))
            assert self.state.queue.tail == first + 2
            return new.id, first

    def restart_ids(self, next_id: int) -> bool:
        """Begin a new sequence; tell whether it is below the last. Nothing must wait."""
        with self.state.changed:
            assert not len(self.state.queue)
            is_lower = next_id < self.state.queue.tail
            self.state.restart_ids(next_id)
            return is_lower

    def is_given(self, update_id: int, state: str) -> bool:
        """Tell whether a call that gets the update is in that state."""
        with self.state.changed:
            calls = self.state.ledger.calls
            return any(update_id in call.handed_out and call.state == state for call in calls)

    def waiting(self) -> int:
        with self.state.changed:
            return len(self.state.queue)

    def confirmed(self) -> dict[int, float]:
        """Return when each update was acknowledged by an offset."""
        with self.state.changed:
            return {
                update.update_id: update.confirmed_at or 0.0
                for update in self.state.ledger.updates
                if update.state == "confirmed"
            }


class Disk:
    """A small file system of our own, where mounting is allowed, or just a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ballast = folder / "ballast"
        folder.mkdir()
        self.lack = self._mount()
        """Why there is no file system of our own; empty when there is one."""

    def remount(self, mode: str) -> None:
        _run("mount", "-o", f"remount,{mode}", str(self.folder))

    def close(self) -> None:
        if not self.lack:
            _run("umount", "-l", str(self.folder))

    def _mount(self) -> str:
        if os.geteuid() != 0:
            return "only root may mount a tmpfs"
        if shutil.which("mount") is None:
            return "there is no program to mount a tmpfs"
        try:
            _run("mount", "-t", "tmpfs", "-o", f"size={_DISK_SIZE}", "fire", str(self.folder))
        except subprocess.CalledProcessError as error:
            return f"no tmpfs can be mounted: {error.stderr.decode().strip()}"
        return ""


@dataclass
class World:
    """What hazards and traffic get in their hands."""

    folder: Path
    stack: Stack
    telegram: Telegram
    receiver: Receiver
    disk: Disk
    port: int
    diary: Diary
    book: Book
    keys: dict[str, Key]
    """The keys that programs use now, by name."""
    chats: list[int] = field(default_factory=lambda: list(CHATS))
    """Where people write now."""
    coming: tuple[int, int] | None = None
    """A group that is about to be a supergroup, and its id then."""
    is_leaving_time: bool = False
    """Whether programs delete one subscription after the other."""
    talking: threading.RLock = field(default_factory=threading.RLock)
    """Whoever writes to the bot holds it: the book has messages in Telegram's order."""
    dropped_at: float = 0.0
    """When Telegram last closed a connection without a word."""
    unanswered_at: float = 0.0
    """When a send last remained without an answer."""
    sending: threading.Lock = field(default_factory=threading.Lock)
    to_skip: list[int] = field(default_factory=list)
    """Malformed updates that an operator has not got past yet."""

    @property
    def database(self) -> Path:
        return self.disk.folder / "gateway.db"

    @property
    def notification(self) -> Path:
        return self.disk.folder / "gateway.db.notify"

    def say(self, chat_id: int, text: str) -> None:
        with self.talking:
            at = time.time()
            now_called = self.book.now_called(chat_id)
            update_id = self.telegram.say(now_called, text)
            if update_id is not None:
                self.book.said.append(Said(update_id, now_called, text, at))

    def say_much(self, text: str, *chat_ids: int) -> None:
        """Write so much that for a while there are live jobs."""
        for chat_id in chat_ids * _MUCH:
            with self.talking:
                self.say(chat_id, f"{MARK}-{text}-{len(self.book.said)}")

    def next_group(self) -> tuple[int, int] | None:
        """Return a group and the id that it would have as a supergroup."""
        groups = [chat for chat in self.chats if -(10**12) < chat < 0]
        return (groups[0], _FIRST_SUPERGROUP - len(self.book.moves)) if groups else None

    def move(self, group: int, supergroup: int) -> None:
        """Let a group become that supergroup."""
        with self.talking:
            at = time.time()
            self.book.moves.append(Move(group, supergroup, at))
            new, first = self.telegram.migrate(group)
            assert new == supergroup
            self.book.said += [
                Said(first, group, f"migrate_to_chat_id {supergroup}", at),
                Said(first + 1, supergroup, f"migrate_from_chat_id {group}", at),
            ]
            self.chats[self.chats.index(group)] = supergroup
        self.diary.count("groups that became supergroups")

    def delete_key(self, name: str) -> None:
        """Delete the key that programs use; they notice."""
        key = self.keys[name]
        key.leaving_at = time.time()
        if self._insist("delete-key", name, "there is no key") is not None:
            key.left_at = time.time()
            self.diary.count("keys deleted")

    def replace_key(self, name: str) -> None:
        """Give a program a new key of the old name."""
        text = self._insist("add-key", name)
        if text is not None:
            key = Key(name, text.strip())
            self.book.keys.append(key)
            self.keys[name] = key

    def revive_dead_letters(self, most: int) -> None:
        """Have the newest dead letters tried again, as far as the database lets an operator."""
        listed = self.command("list-failed-deliveries", "--json")
        if listed.returncode:
            return
        for dead in json.loads(listed.stdout)["failed_deliveries"][-most:]:
            at = time.time()
            if self.command("retry-delivery", str(dead["id"])).returncode == 0:
                revival = Revival(dead["subscription_id"], dead["update_id"], at)
                self.book.revivals.append(revival)
                self.diary.count("dead letters that were revived")

    def restart_ids(self, first: int) -> None:
        """Let Telegram count on from there; somebody writes under that very id."""
        with self.talking:
            if self.telegram.restart_ids(first):
                self.book.restarts += 1
            self.book.sequence_begins = len(self.book.said)
            self.say(self.chats[0], f"{MARK}-after-a-week-{first}")
        self.diary.count("new sequences of update ids")

    def last_heard(self) -> Said | None:
        """Return somebody's newest words under the present update ids that were acknowledged."""
        confirmed = self.telegram.confirmed()
        with self.talking:
            said = self.book.said[self.book.sequence_begins :]
        heard = (s for s in reversed(said) if s.update_id in confirmed and MARK in s.text)
        return next(heard, None)

    def cursor(self) -> int:
        """Return the update id that the poller asks for next; 0 when it cannot be read."""
        return self._read("SELECT next_offset FROM poll_state")

    def has_dead_letters(self) -> bool:
        """Tell whether something is dead; False when that cannot be read."""
        return self._read("SELECT count(*) FROM deliveries WHERE state = 'DEAD'") > 0

    def _read(self, query: str) -> int:
        with contextlib.suppress(sqlite3.OperationalError):
            with contextlib.closing(sqlite3.connect(self.database)) as database:
                found = database.execute(query).fetchone()
            return int(found[0])
        return 0

    def let_a_week_pass(self) -> bool:
        """Set back the time of the last update; False when the database cannot be written."""
        then = int(time.time()) - _QUIET
        try:
            with (
                contextlib.closing(sqlite3.connect(self.database, timeout=5)) as database,
                database,
            ):
                changed = database.execute("UPDATE ingestion SET last_update_at = ?", (then,))
                return changed.rowcount == 1
        except sqlite3.OperationalError:
            return False

    def set_clock(self, offset: int) -> None:
        """Let the wall clock of all three differ by so many seconds from the true one."""
        new = self.stack.clock_file.with_suffix(".new")
        new.write_text(f"{offset:+}\n", "ascii")
        new.replace(self.stack.clock_file)
        self.diary.count("clock jumps")

    def revive_poller(self) -> None:
        """Restart a poller that was refused, or told to wait for hours, as an operator would."""
        poller = self.stack.services["poller"]
        with poller.lock:
            waits = poller.events_of_this_life("poll_failed")[-1:]
            is_told_to_wait = any("reason=rate_limited" in text for text in waits)
            is_refused = bool(poller.events_of_this_life("polling_stopped"))
            if poller.wanted and (is_refused or is_told_to_wait):
                self.stack.stop("poller")
                self.stack.again("poller")

    def restart_all_around(self, change: Callable[[], None]) -> None:
        for name in self.stack.services:
            self.stack.stop(name)
        change()
        for name in self.stack.services:
            self.stack.again(name)

    def skip_updates(self) -> None:
        """Let an operator pass over the malformed updates, as far as the database lets him."""
        for update_id in list(self.to_skip):
            done = self.command("skip-update", str(update_id))
            if done.returncode == 0 or "taken in already" in done.stderr:
                self.to_skip.remove(update_id)

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run the operator's command."""
        done = subprocess.run(
            [sys.executable, "-m", "telegrammer_cli", *arguments, "--db", str(self.database)],
            env={**self.stack.env, "LD_PRELOAD": ""},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if "Traceback" in done.stderr:
            self.diary.violation(f"{arguments}: {done.stderr}")
        return done

    def _insist(self, command: str, name: str, is_done: str = "\0") -> str | None:
        """Run a command until it succeeds or says ``is_done``; return what it printed."""
        end = time.monotonic() + _PATIENCE
        while (done := self.command(command, name)).returncode != 0:
            if is_done in done.stderr:
                break
            if time.monotonic() > end:
                self.diary.violation(f"{command} {name}: not in {_PATIENCE} s: {done.stderr}")
                return None
            time.sleep(TICK)
        return done.stdout


def lacks(disk: Disk) -> dict[str, str]:
    """Return what the machine lacks of what hazards may need, each with the reason."""
    found = {"disk": disk.lack, "clock": "" if FAKETIME.exists() else f"there is no {FAKETIME}"}
    return {name: reason for name, reason in found.items() if reason}


@contextlib.contextmanager
def new_world(folder: Path, switch_interval: float | None = None) -> Iterator[World]:
    """Yield a world whose processes are not started; at the end nothing is left of it."""
    diary, book = Diary(), Book()
    with contextlib.ExitStack() as held:
        disk = Disk(folder / "disk")
        held.callback(disk.close)
        server = held.enter_context(Server(Bot(TOKEN, USERNAME)))
        receiver = held.enter_context(Receiver(book.answer))
        port = free_port()
        database = disk.folder / "gateway.db"
        settings = _settings(database, server.url, port)
        if switch_interval is not None:
            settings["FIRE_SWITCH_INTERVAL"] = str(switch_interval)
        stack = Stack(folder, diary, settings)
        held.callback(stack.close)
        telegram = Telegram(server)
        keys = _add_keys(database)
        world = World(folder, stack, telegram, receiver, disk, port, diary, book, keys)
        book.keys += keys.values()
        yield world


def _settings(database: Path, url: str, port: int) -> dict[str, str]:
    settings = {
        "DB": database,
        "BOT_TOKEN": TOKEN,
        "BOT_API_URL": url,
        "PORT": port,
        "REQUEST_TIMEOUT": "3s",
        "CONNECT_TIMEOUT": "2s",
        "SEND_TIMEOUT": f"{SEND_TIMEOUT}s",
        "POLL_TIMEOUT": "3s",
        "CALLBACK_WORKERS": 8,
        "CALLBACK_CONNECT_TIMEOUT": "1s",
        "CALLBACK_TIMEOUT": f"{CALLBACK_TIMEOUT}s",
        "CALLBACK_ATTEMPTS": ATTEMPTS,
        "DEAD_RETENTION": "3650d",
    }
    return {f"TELEGRAMMER_{name}": str(value) for name, value in settings.items()}


def _add_keys(database: Path) -> dict[str, Key]:
    with open_database(database) as connection:
        texts = {name: Keys(connection).add(name, int(time.time())) for name in KEYS}
    return {name: Key(name, text) for name, text in texts.items() if text is not None}


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
