"""`telegrammer-api`: wiring, and nothing else."""

import contextlib
import functools
import os
from collections.abc import Iterator

from telegrammer import __version__
from telegrammer.clock import SystemClock
from telegrammer.errors import StorageUnavailable
from telegrammer.heartbeat import Heartbeat, beating_beside_others
from telegrammer.http import Door
from telegrammer.logs import Log
from telegrammer.model import State
from telegrammer.options import run_daemon
from telegrammer.settings import Settings
from telegrammer.store.components import Components
from telegrammer.store.connection import Database
from telegrammer.store.layout import open_database
from telegrammer.store.subscriptions import Limits
from telegrammer_api import server
from telegrammer_api.app import create_app
from telegrammer_api.front import Application
from telegrammer_api.pool import Pool
from telegrammer_api.sending import MessageSender

COMPONENT = "api"


def main() -> None:
    """Run the command."""
    run_daemon("telegrammer-api", "Serve the HTTP API: messages out, subscriptions, health.", run)


def run(settings: Settings) -> None:
    """Serve until a signal; raise ``ExitError`` when it cannot begin.

    Whatever was opened to check it is closed before the workers are forked.
    """
    settings.require_token()
    open_database(settings.db).close()
    Door(proxy=settings.telegram_proxy).close()
    listener = server.bind(settings.host, settings.port)
    _log_start(settings)
    master = os.getpid()
    limits = server.Limits(
        workers=settings.api_workers,
        threads=settings.api_threads,
        queue=settings.api_queue,
        request_timeout=settings.request_timeout,
    )
    try:
        server.serve(functools.partial(application, settings, master), listener, limits)
    finally:
        _remove_row(settings, master)
    Log(COMPONENT).info("stopped")


@contextlib.contextmanager
def application(settings: Settings, master: int) -> Iterator[Application]:
    """Yield the application for one worker; all workers beat in the master's row."""
    clock = SystemClock()
    with contextlib.ExitStack() as held:
        pool = held.enter_context(contextlib.closing(Pool(lambda: Database(settings.db))))
        sender = held.enter_context(contextlib.closing(MessageSender(settings)))
        heartbeat = Heartbeat(
            held.enter_context(Database(settings.db)), COMPONENT, clock, pid=master
        )
        heartbeat.report(State.RUNNING)
        held.enter_context(beating_beside_others(heartbeat))
        limits = Limits(settings.max_subscriptions_per_key, settings.max_subscriptions)
        yield create_app(pool, sender, limits, settings.max_jobs, clock)


def _log_start(settings: Settings) -> None:
    Log(COMPONENT).info(
        "started",
        version=__version__,
        db=str(settings.db),
        bot_api_url=settings.bot_api_url,
        proxy=settings.telegram_proxy is not None,
        workers=settings.api_workers,
        threads=settings.api_threads,
        queue=settings.api_queue,
        request_timeout=settings.request_timeout,
        connect_timeout=settings.connect_timeout,
        send_timeout=settings.send_timeout,
    )


def _remove_row(settings: Settings, master: int) -> None:
    with contextlib.suppress(StorageUnavailable), Database(settings.db) as database:
        Components(database).remove(COMPONENT, master)


if __name__ == "__main__":
    main()
