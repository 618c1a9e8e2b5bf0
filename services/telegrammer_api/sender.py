"""Sends messages, each through a door of its own while it runs."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final

from telegrammer.http import Door
from telegrammer.settings import Settings
from telegrammer.telegram.client import BotApi


class Doors:
    """Doors for threads that come and go: each borrows one for an exchange."""

    def __init__(self, open_door: Callable[[], Door]) -> None:
        self._open_door = open_door
        self._idle: list[Door] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def borrow(self) -> Iterator[Door]:
        """Yield a door. After any failure it connects anew, so it can be lent again."""
        with self._lock:
            door = self._idle.pop() if self._idle else None
        door = door or self._open_door()
        try:
            yield door
        finally:
            with self._lock:
                self._idle.append(door)

    def close(self) -> None:
        """Close every door; none may be lent out."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()


class Sender:
    """The bot's sendMessage, within the settings' times. Any thread may call it."""

    def __init__(self, settings: Settings) -> None:
        self._settings: Final = settings
        self._token: Final = settings.require_token()
        self._doors: Final = Doors(lambda: Door(proxy=settings.telegram_proxy))

    def __call__(self, chat_id: int, text: str) -> bytes:
        """Return the Bot API's envelope; raise ``HttpError`` or ``TelegramError``."""
        settings = self._settings
        with self._doors.borrow() as door:
            bot = BotApi(door, settings.bot_api_url, self._token)
            return bot.send_message(chat_id, text, settings.connect_timeout, settings.send_timeout)

    def close(self) -> None:
        self._doors.close()
