"""Dead letters: list, retry, delete."""

import dataclasses
import time
from typing import Final

import click

from telegrammer import notification
from telegrammer.errors import Failure
from telegrammer.settings import Settings
from telegrammer.store.queue import Queue
from telegrammer_cli.commands import command, json_option
from telegrammer_cli.opening import open_existing
from telegrammer_cli.output import print_json, print_table, say, utc

_ID: Final = click.IntRange(min=0)
_IDS: Final = range(2**63)  # what a delivery can have


@command("list-failed-deliveries")
@json_option
def list_failed_deliveries(settings: Settings, as_json: bool) -> None:
    """List the deliveries that were given up, the oldest first.

    \b
    JSON: {"failed_deliveries": [{"id": 9, "key": "ci", "subscription_id": 17,
           "chat_id": 5000000001, "update_id": 700000001, "attempts": 8,
           "created_at": 1790000000, "died_at": 1790000900, "reason": "http_404"}]}
    times are Unix seconds; "key" is the name of the subscriber's. There is no payload and no
    URL in either form.
    """
    with open_existing(settings.db) as database:
        dead = Queue(database).dead_jobs()
    if as_json:
        print_json({"failed_deliveries": [dataclasses.asdict(job) for job in dead]})
        return
    if not dead:
        say("No failed deliveries.")
        return
    print_table(
        (
            *("ID", "SUBSCRIPTION", "CHAT", "UPDATE", "ATTEMPTS"),
            *("CREATED (UTC)", "FAILED (UTC)", "REASON", "KEY"),
        ),
        [
            (
                *(job.id, job.subscription_id, job.chat_id, job.update_id, job.attempts),
                *(utc(job.created_at), utc(job.died_at), job.reason, job.key),
            )
            for job in dead
        ],
    )


@command("retry-delivery")
@click.argument("delivery_id", metavar="ID", type=_ID)
def retry_delivery(settings: Settings, delivery_id: int) -> None:
    """Give the failed delivery ID its whole budget again, from now.

    It takes its old place in its subscription, before everything that came later. Its time
    of creation becomes that of the retry: its lifetime counts from there.
    """
    with open_existing(settings.db) as database:
        known = delivery_id in _IDS and Queue(database).revive(delivery_id, int(time.time()))
        _require(known, delivery_id)
    notification.touch(settings.db)


@command("delete-delivery")
@click.argument("delivery_id", metavar="ID", type=_ID)
def delete_delivery(settings: Settings, delivery_id: int) -> None:
    """Delete the failed delivery ID for good."""
    with open_existing(settings.db) as database:
        known = delivery_id in _IDS and Queue(database).delete_dead(delivery_id)
        _require(known, delivery_id)


def _require(found: bool, delivery_id: int) -> None:
    if not found:
        raise Failure(
            f"there is no failed delivery {delivery_id}:"
            " `telegrammer list-failed-deliveries` shows all"
        )
