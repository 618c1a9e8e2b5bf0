"""Sends messages, each through a door of its own while it runs."""

from typing import Final

from telegrammer import tls
from telegrammer.http import Door
from telegrammer.settings import Settings
from telegrammer.telegram.client import BotApi
from telegrammer_api.pool import Pool


class MessageSender:
    """The bot's sendMessage, within the settings' times. Any thread may call it."""

    def __init__(self, settings: Settings, context: tls.Context) -> None:
        self._settings: Final = settings
        self._token: Final = settings.require_token()
        self._doors: Final = Pool(lambda: Door(settings.telegram_proxy, context=context))

    def __call__(self, chat_id: int, text: str) -> bytes:
        """Return the Bot API's envelope; raise ``HttpError`` or ``TelegramError``."""
        settings = self._settings
        with self._doors.borrow() as door:
            bot = BotApi(door, settings.bot_api_url, self._token)
            return bot.send_message(chat_id, text, settings.connect_timeout, settings.send_timeout)

    def close(self) -> None:
        self._doors.close()
