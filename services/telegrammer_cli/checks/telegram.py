"""The token, its bot, and a webhook that would keep the poller out."""

import contextlib
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from telegrammer.errors import ConfigurationError, HttpError, PollingRefused, TelegramError
from telegrammer.http import Door
from telegrammer.settings import Secret, Settings
from telegrammer.telegram.client import BotApi
from telegrammer_cli.checks.finding import Finding, error, ok

_WAIT: Final = 10.0  # seconds for each answer


def examine(settings: Settings, bound_to: int | None) -> Iterator[Finding]:
    """Yield what the Bot API says; ``bound_to`` is the bot that the database belongs to."""
    if settings.bot_token is None:
        yield error("token", "none is set: TELEGRAMMER_BOT_TOKEN or TELEGRAMMER_BOT_TOKEN_FILE")
        return
    try:
        with contextlib.closing(Door(proxy=settings.telegram_proxy)) as door:
            yield from _ask(settings, settings.bot_token, door, bound_to)
    except ConfigurationError as problem:
        yield error("token", str(problem))
    except HttpError as problem:
        yield error(
            "token",
            f"no answer from {settings.bot_api_url} ({problem.reason}): look at the network,"
            " the proxy, and TELEGRAMMER_BOT_API_URL",
        )
    except PollingRefused as problem:
        yield error("token", f"refused ({problem.code}): give the token that BotFather shows")
    except TelegramError as problem:
        yield error("token", f"{settings.bot_api_url} answered {problem.code}: try again later")


def _ask(settings: Settings, token: Secret, door: Door, bound_to: int | None) -> Iterator[Finding]:
    api = BotApi(door, settings.bot_api_url, token)
    bot_id = api.get_me(_WAIT)
    yield ok("token", f"it is bot {bot_id}'s")
    if bound_to is not None and bound_to != bot_id:
        yield error(
            "bot",
            f"the database belongs to bot {bound_to}: use that bot's token or another database",
        )
    elif bound_to is not None:
        yield ok("bot", "the database is this bot's")
    yield _judge_webhook(api.get_webhook_url(_WAIT))


def _judge_webhook(url: str) -> Finding:
    if not url:
        return ok("webhook", "none stands")
    return error(
        "webhook",
        f"one stands at {_host(url)}, so polling is refused (409): if it is of no more use, end"
        " it with the Bot API's method deleteWebhook (https://core.telegram.org/bots/api)",
    )


def _host(url: str) -> str:
    """Return the host alone: people put secrets into a webhook's path."""
    try:
        return urlsplit(url).hostname or "an unknown host"
    except ValueError:
        return "an unknown host"
