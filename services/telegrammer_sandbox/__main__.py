"""``python -m telegrammer_sandbox``: run the sandbox until it is told to stop."""

import re
import sys
import time
from typing import Final

import click

from telegrammer.process import stop_on_signals
from telegrammer.settings import is_loopback
from telegrammer_sandbox.server import Server
from telegrammer_sandbox.state import FIRST_UPDATE_ID, Bot

# Not a secret: it opens nothing but a sandbox.
_TOKEN: Final = "123456:sandbox-token-for-this-machine-only"  # noqa: S105
_BEGINNING: Final = 1_767_225_600  # 2026: ids stay far below what scripts like to push
_TOKEN_FORM: Final = re.compile(r"[1-9][0-9]{0,15}:[A-Za-z0-9_-]{1,63}", re.ASCII)


def _checked_host(_context: click.Context, _parameter: click.Parameter, host: str) -> str:
    if not is_loopback(host):
        raise click.BadParameter("the sandbox serves this machine only: give a loopback address")
    return host


def _checked_token(_context: click.Context, _parameter: click.Parameter, token: str) -> str:
    if not _TOKEN_FORM.fullmatch(token):
        raise click.BadParameter("a token looks like 123456:ABC-DEF")
    return token


@click.command(context_settings={"max_content_width": 100, "show_default": True})
@click.option("--host", default="127.0.0.1", callback=_checked_host, help="Loopback address.")
@click.option("--port", default=8081, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option(
    "--token",
    default=_TOKEN,
    callback=_checked_token,
    help="The bot's token; its first part is the bot's id. Real ones have no business here.",
)
@click.option("--username", default="gate_sandbox_bot", help="The bot's username.")
def main(host: str, port: int, token: str, username: str) -> None:
    """Run a stand-in for Telegram's Bot API on this machine.

    A bot finds it with the Bot API URL http://HOST:PORT and the token. People are played
    in the browser: the page at http://HOST:PORT/ shows the chats, what is typed there
    reaches the bot as updates, and what the bot sends appears at once. Nothing leaves
    this machine, and nothing is kept when it stops (SIGTERM, or Ctrl-C). Update ids go on
    with the time of day; a gateway that has seen higher ones needs a new database.

    \b
    A gateway whose environment has these three uses it, with a database of its own:
      TELEGRAMMER_BOT_API_URL=http://127.0.0.1:8081
      TELEGRAMMER_BOT_TOKEN=123456:sandbox-token-for-this-machine-only
      TELEGRAMMER_DB=~/.local/state/telegrammer/sandbox.db

    Tests and scripts direct it over HTTP under /sandbox/, see
    python -m pydoc telegrammer_sandbox.control
    """
    with stop_on_signals() as stop:
        try:
            # A gateway takes ids below those that it has seen for old ones. These go on where
            # no sandbox before this one has come, unless it gave out more than one a second.
            first = FIRST_UPDATE_ID + max(0, int(time.time()) - _BEGINNING)
            server = Server(Bot(token, username), host, port, first_update_id=first)
        except OSError as error:
            reason = f"{error.strerror}; --port chooses another"
            click.echo(f"Error: cannot listen on {host} port {port}: {reason}", err=True)
            sys.exit(1)
        with server:
            click.echo(f"The sandbox is at {server.url}/  (Bot API URL: {server.url})")
            stop.wait(None)


if __name__ == "__main__":
    main(prog_name="telegrammer sandbox")  # as people start it
