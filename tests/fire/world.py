"""Everything that the campaign acts on: the stack, a Telegram, receivers, a disk, a clock."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fire.book import Book, Said
from fire.diary import Diary
from fire.receivers import CALLBACK_TIMEOUT
from fire.stack import FAKETIME, Stack
from fire.telegram_faults import SEND_TIMEOUT
from support.receiver import Receiver
from support.running_api import free_port
from support.sandbox import TOKEN, USERNAME, Sandbox
from telegrammer.store.keys import Keys
from telegrammer.store.layout import open_database
from telegrammer_sandbox.faults import Fault
from telegrammer_sandbox.server import Server
from telegrammer_sandbox.state import Bot

CHATS: Final = (1001, 1002, 1003, -5001, -1001234567890)
KEYS: Final = ("one", "two")
BOT_ID: Final = int(TOKEN.partition(":")[0])
ATTEMPTS: Final = 6
"""The gateway's attempts for a callback in the campaign: some 30 s of delays."""

_DISK_SIZE: Final = "48m"


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
        self.is_mounted = self._mount()

    def remount(self, mode: str) -> None:
        _run("mount", "-o", f"remount,{mode}", str(self.folder))

    def close(self) -> None:
        if self.is_mounted:
            _run("umount", "-l", str(self.folder))

    def _mount(self) -> bool:
        if os.geteuid() != 0 or shutil.which("mount") is None:
            return False
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("mount", "-t", "tmpfs", "-o", f"size={_DISK_SIZE}", "fire", str(self.folder))
            return True
        return False


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
    keys: dict[str, str]
    """The keys' texts by name."""
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
        at = time.time()
        update_id = self.telegram.say(chat_id, text)
        if update_id is not None:
            self.book.said.append(Said(update_id, chat_id, text, at))

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
            if "Traceback" in done.stderr:
                self.diary.violation(f"skip-update: {done.stderr}")
            if done.returncode == 0 or "behind" in done.stderr:
                self.to_skip.remove(update_id)

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run the operator's command."""
        return subprocess.run(
            [sys.executable, "-m", "telegrammer_cli", *arguments, "--db", str(self.database)],
            env={**self.stack.env, "LD_PRELOAD": ""},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def offers(disk: Disk) -> frozenset[str]:
    """Return what the machine offers of what hazards may need."""
    found = {"disk": disk.is_mounted, "clock": FAKETIME.exists()}
    return frozenset(name for name, is_there in found.items() if is_there)


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
        yield World(folder, stack, telegram, receiver, disk, port, diary, book, keys)


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


def _add_keys(database: Path) -> dict[str, str]:
    with open_database(database) as connection:
        keys = {name: Keys(connection).add(name, int(time.time())) for name in KEYS}
    return {name: key for name, key in keys.items() if key is not None}


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
