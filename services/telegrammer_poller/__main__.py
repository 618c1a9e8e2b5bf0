"""`telegrammer-poller`: wiring, and nothing else."""

import contextlib
import functools
import random

from telegrammer import __version__
from telegrammer.clock import SystemClock
from telegrammer.heartbeat import Heartbeat, beating, remove_row
from telegrammer.http import Door
from telegrammer.logs import Log
from telegrammer.options import run_daemon
from telegrammer.process import Stop, beside, lock_path, one_instance, stop_on_signals
from telegrammer.settings import Settings
from telegrammer.store.components import Components
from telegrammer.store.connection import Database
from telegrammer.store.inbox import Inbox
from telegrammer.store.layout import open_database
from telegrammer.telegram.client import BotApi
from telegrammer_poller.loop import Poller, Rules


def main() -> None:
    """Run the command."""
    run_daemon(
        "telegrammer-poller",
        "Long-poll the Bot API and store each message before acknowledging it.",
        run,
    )


def run(settings: Settings) -> None:
    """Poll until a signal; raise ``ExitError`` when it cannot begin."""
    token = settings.require_token()
    clock = SystemClock()
    with contextlib.ExitStack() as held:
        database = held.enter_context(open_database(settings.db))
        held.enter_context(one_instance(lock_path(settings.db, "poller"), "poller"))
        stop = held.enter_context(stop_on_signals())
        components = Components(held.enter_context(Database(settings.db)))
        heartbeat = Heartbeat(components, "poller", clock)
        held.callback(remove_row, components, "poller")
        held.enter_context(beating(heartbeat))
        door = held.enter_context(contextlib.closing(Door(settings.telegram_proxy)))
        held.enter_context(beside(functools.partial(_cut_on, stop, door), stop, "cut"))
        poller = Poller(
            BotApi(door, settings.bot_api_url, token),
            Inbox(database),
            heartbeat,
            Rules(settings.poll_timeout, settings.max_jobs),
            database=settings.db,
            clock=clock,
            spread=random.random,
        )
        log = Log("poller")
        log.info("started", version=__version__, db=str(settings.db))
        poller.run(stop)
        log.info("stopped")


def _cut_on(stop: Stop, door: Door) -> None:
    """Cut the running exchange when the stop comes: unconfirmed updates come again."""
    stop.wait(None)
    door.cut()


if __name__ == "__main__":
    main()
