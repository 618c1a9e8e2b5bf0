"""The database itself: migrate, back up, let one malformed update pass."""

import time
from pathlib import Path

import click

from telegrammer.errors import Failure
from telegrammer.settings import Settings
from telegrammer.store import migration
from telegrammer.store.inbox import Inbox
from telegrammer_cli.commands import command
from telegrammer_cli.opening import open_existing
from telegrammer_cli.output import say


@command("migrate")
def migrate(settings: Settings) -> None:
    """Bring an older database to this version's layout.

    Stop the old daemon first. A backup is made beside the database; then keys are hashed
    in one transaction. Existing keys keep working. Any failure leaves the database as it
    was.
    """
    saved = migration.migrate(settings.db, time.time())
    if saved is None:
        say(f"{settings.db} has this version's layout already: nothing to do.")
        return
    say(f"Migrated {settings.db}.")
    say(f"Backup of the old database: {saved}")
    say(
        "The keys go on working, but they still stand in clear in that backup, in any older"
        " one, and perhaps in remnants on the disk, and hashing made none of them stronger."
    )
    say(
        "So replace each (add-key, hand it out, delete-key), and delete the backup once you"
        " need no way back."
    )


@command("backup")
@click.argument("file", type=click.Path(path_type=Path))
def backup(settings: Settings, file: Path) -> None:
    """Copy the database to a new FILE while everything runs.

    The copy holds messages and the digests of keys: it is readable by you alone (0600).
    """
    migration.back_up(settings.db, file)
    say(f"Copied {settings.db} to {file}.")


@command("skip-update")
@click.argument("update_id", metavar="ID", type=click.IntRange(0, 2**63 - 1))
def skip_update(settings: Settings, update_id: int) -> None:
    """Let the poller pass over the malformed update ID, and over no other.

    `telegrammer status` names the one that holds it back. Its bytes are kept. The poller
    may be running or not; an update that is not malformed is delivered all the same.
    """
    with open_existing(settings.db) as database:
        if not Inbox(database).request_skip(update_id, int(time.time())):
            raise Failure(
                f"update {update_id} has been taken in already: `telegrammer status` names"
                " the one that waits"
            )
    say(
        f"If update {update_id} is malformed the poller passes over it with its next tries,"
        f" and keeps it as {settings.db}.skipped/{update_id}.json"
    )
