"""``POST /send``: one message, one answer, no second try."""

from collections.abc import Callable

import falcon

from telegrammer.store.connection import Database
from telegrammer.store.inbox import Inbox
from telegrammer_api.bodies import SendBody
from telegrammer_api.errors import ApiError, Code
from telegrammer_api.gate import Request
from telegrammer_api.pool import Pool

SendMessage = Callable[[int, str], bytes]
"""Sends a text to a chat; returns the Bot API's envelope, byte for byte. Raises
``HttpError`` or ``TelegramError``. It is never called twice for one request."""


class Send:
    """``/send``."""

    def __init__(self, pool: Pool[Database], send_message: SendMessage) -> None:
        self._pool = pool
        self._send_message = send_message

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        wanted = SendBody.parse(req.body)
        chat_id = wanted.chat if isinstance(wanted.chat, int) else self._chat_of(wanted.chat)
        resp.data = self._send_message(chat_id, wanted.text)

    def _chat_of(self, username: str) -> int:
        with self._pool.borrow() as database:
            chat_id = Inbox(database).chat_of(username)
        if chat_id is None:
            raise ApiError(Code.USERNAME_NOT_FOUND)
        return chat_id
