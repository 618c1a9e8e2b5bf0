"""`telegrammer-dispatcher`: wiring, and nothing else."""

import contextlib
import random

from telegrammer import __version__
from telegrammer.callbacks.sender import Sender
from telegrammer.clock import SystemClock
from telegrammer.heartbeat import Heartbeat, remove_row
from telegrammer.logs import Log
from telegrammer.notification import Watch
from telegrammer.options import run_daemon
from telegrammer.process import lock_path, one_instance, stop_on_signals
from telegrammer.settings import Settings
from telegrammer.store.components import Components
from telegrammer.store.layout import open_database
from telegrammer_dispatcher.delivery import Budget, Flight
from telegrammer_dispatcher.loop import Dispatcher, Rules


def main() -> None:
    """Run the command."""
    run_daemon(
        "telegrammer-dispatcher",
        "Deliver each stored message to its subscribers, in order, with bounded retries.",
        run,
    )


def run(settings: Settings) -> None:
    """Deliver until a signal; raise ``ExitError`` when it cannot begin."""
    clock = SystemClock()
    with contextlib.ExitStack() as held:
        database = held.enter_context(open_database(settings.db))
        held.enter_context(one_instance(lock_path(settings.db, "dispatcher"), "dispatcher"))
        stop = held.enter_context(stop_on_signals())
        components = Components(database)
        heartbeat = Heartbeat(components, "dispatcher", clock)
        held.callback(remove_row, components, "dispatcher")
        watch = held.enter_context(contextlib.closing(Watch(settings.db)))
        sender: Sender[Flight] = held.enter_context(
            Sender(
                settings.callback_workers,
                settings.callback_connect_timeout,
                settings.callback_timeout,
            )
        )
        dispatcher = Dispatcher(
            database,
            sender,
            watch,
            heartbeat,
            Rules(
                Budget(settings.callback_attempts, settings.callback_lifetime),
                settings.dead_retention,
            ),
            clock,
            random.random,
        )
        log = Log("dispatcher")
        log.info(
            "started", version=__version__, db=str(settings.db), workers=settings.callback_workers
        )
        dispatcher.run(stop)
        log.info("stopped")


if __name__ == "__main__":
    main()
