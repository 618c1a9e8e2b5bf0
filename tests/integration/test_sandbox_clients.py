"""Two well-known libraries poll and send through the sandbox: it is what they expect."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.types import Message
from telegram import Update
from telegram.error import BadRequest, ChatMigrated, InvalidToken, RetryAfter
from telegram.ext import Application, ApplicationBuilder, ContextTypes, MessageHandler, filters

from support.sandbox import TOKEN, Sandbox

ANN, TEAM, OPERATIONS = 5000000001, -4000000001, -1002000000001
PTB = Application[Any, Any, Any, Any, Any, Any]


async def converse(sandbox: Sandbox) -> None:
    """Say something in three chats and wait until an echoing bot has answered each."""
    said = {chat_id: f"h\u00e9 \U0001f680 <{chat_id}>" for chat_id in (ANN, TEAM, OPERATIONS)}
    for chat_id, text in said.items():
        await asyncio.to_thread(sandbox.say, chat_id, text)
    sent = await asyncio.to_thread(sandbox.wait_sent, 3)

    assert len(sent) == 3
    assert {message["chat"]["id"]: message["text"] for message in sent} == said
    await asyncio.to_thread(sandbox.wait_confirmed, 3)


def application(sandbox: Sandbox, token: str = TOKEN) -> PTB:
    return ApplicationBuilder().token(token).base_url(f"{sandbox.url}/bot").build()


def with_ptb(sandbox: Sandbox, then: Callable[[PTB], Awaitable[None]]) -> None:
    async def run() -> None:
        async with application(sandbox) as app:
            await then(app)

    asyncio.run(run())


def test_python_telegram_bot_polls_and_answers(sandbox: Sandbox) -> None:
    async def echo(update: Update, _context: ContextTypes.DEFAULT_TYPE) -> None:
        assert update.effective_message is not None
        await update.effective_message.reply_text(update.effective_message.text or "")

    async def poll(app: PTB) -> None:
        app.add_handler(MessageHandler(filters.TEXT, echo))
        assert app.updater is not None
        await app.start()
        await app.updater.start_polling(timeout=20)
        await converse(sandbox)
        await app.updater.stop()
        await app.stop()

    with_ptb(sandbox, poll)
    assert sandbox.updates("waiting") == []


def test_python_telegram_bot_recognises_the_errors(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTB_TIMEDELTA", "1")  # without it, RetryAfter is a deprecation warning

    async def provoke(app: PTB) -> None:
        with pytest.raises(BadRequest, match="Chat not found"):
            await app.bot.send_message(999, "hi")
        new = await asyncio.to_thread(sandbox.migrate, TEAM)
        with pytest.raises(ChatMigrated) as migrated:
            await app.bot.send_message(TEAM, "hi")
        assert migrated.value.new_chat_id == new
        sandbox.fault_sample("sendMessage", "e48_429_flood_60.json")
        with pytest.raises(RetryAfter) as limited:
            await app.bot.send_message(ANN, "hi")
        assert limited.value.retry_after == timedelta(seconds=60)

    with_ptb(sandbox, provoke)


def test_python_telegram_bot_recognises_a_wrong_token(sandbox: Sandbox) -> None:
    async def start() -> None:
        app = application(sandbox, "123456:wrong")
        try:
            await app.initialize()
        finally:
            await app.bot.request.shutdown()

    with pytest.raises(InvalidToken):
        asyncio.run(start())


def test_aiogram_polls_and_answers(sandbox: Sandbox) -> None:
    dispatcher = Dispatcher()

    @dispatcher.message()
    async def echo(message: Message) -> None:
        await message.answer(message.text or "")

    async def poll() -> None:
        session = AiohttpSession(api=TelegramAPIServer.from_base(sandbox.url))
        async with Bot(TOKEN, session=session) as bot:
            assert (await bot.get_webhook_info()).url == ""
            assert await bot.delete_webhook(drop_pending_updates=True)
            polling = asyncio.create_task(dispatcher.start_polling(bot, handle_signals=False))
            await converse(sandbox)
            await dispatcher.stop_polling()
            await polling

    asyncio.run(poll())
    assert sandbox.updates("waiting") == []
