"""`telegrammer-api`: wiring, and nothing else."""

import contextlib
import functools
import os
from collections.abc import Iterator

from telegrammer import __version__, tls
from telegrammer.clock import SystemClock
from telegrammer.errors import StorageUnavailable
from telegrammer.heartbeat import Heartbeat, beating, remove_row
from telegrammer.http import Door
from telegrammer.logs import Log
from telegrammer.model import State
from telegrammer.options import run_daemon
from telegrammer.settings import Settings
from telegrammer.store.components import Component, Components
from telegrammer.store.connection import Database
from telegrammer.store.inbox import Inbox
from telegrammer.store.layout import open_database
from telegrammer.store.subscriptions import Limits
from telegrammer.telegram.client import bot_id_of
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
    token = settings.require_token()
    with open_database(settings.db) as database:
        # As far as it is bound yet: nothing is sent through another bot than it belongs to.
        Inbox(database).require_bot(bot_id_of(token))
    context = tls.client_context()  # read once: its file may be gone when a door is opened
    Door(settings.telegram_proxy, context=context).close()
    listener = server.bind(settings.host, settings.port)
    _log_start(settings)
    now = int(SystemClock().now())
    row = Component(COMPONENT, os.getpid(), State.RUNNING, None, since=now, heartbeat=now)
    limits = server.Limits(
        workers=settings.api_workers,
        threads=settings.api_threads,
        queue=settings.api_queue,
        request_timeout=settings.request_timeout,
        longest_request=settings.request_timeout + settings.send_timeout,
    )
    try:
        server.serve(functools.partial(application, settings, context, row), listener, limits)
    finally:
        _remove_row(settings)
    Log(COMPONENT).info("stopped")


@contextlib.contextmanager
def application(settings: Settings, context: tls.Context, row: Component) -> Iterator[Application]:
    """Yield the application for one worker; all workers beat in the master's ``row``.

    It opens without the database: a worker that takes another's place while that is out of
    order answers 503 like the others.
    """
    clock = SystemClock()
    with contextlib.ExitStack() as held:
        pool = held.enter_context(contextlib.closing(Pool(lambda: Database(settings.db))))
        sender = held.enter_context(contextlib.closing(MessageSender(settings, context)))
        held.enter_context(beating(Heartbeat(_PooledRows(pool), COMPONENT, clock, row)))
        limits = Limits(settings.max_subscriptions_per_key, settings.max_subscriptions)
        yield create_app(pool, sender, limits, settings.max_jobs, clock)


class _PooledRows:
    def __init__(self, pool: Pool[Database]) -> None:
        self._pool = pool

    def write(self, row: Component) -> None:
        with self._pool.borrow() as database:
            Components(database).write(row)


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


def _remove_row(settings: Settings) -> None:
    with contextlib.suppress(StorageUnavailable), Database(settings.db) as database:
        remove_row(Components(database), COMPONENT)


if __name__ == "__main__":
    main()
