"""API keys: add, list, delete."""

import sys
import time
from typing import TextIO, cast

import click

from telegrammer.errors import Failure
from telegrammer.settings import Settings
from telegrammer.store.keys import Keys, check_name
from telegrammer.store.layout import open_database
from telegrammer_cli.commands import command, json_option
from telegrammer_cli.opening import open_existing
from telegrammer_cli.output import give_up_standard_output, print_json, print_table, say, utc


@command("add-key")
@click.argument("name")
def add_key(settings: Settings, name: str) -> None:
    """Make an API key and print it: once, alone on standard output.

    NAME tells keys apart: 1 to 128 bytes of UTF-8, no control characters. The key itself
    is not stored and cannot be shown again.
    """
    try:
        check_name(name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    with open_database(settings.db) as database:
        keys = Keys(database)
        key = keys.add(name, int(time.time()))
        if key is None:
            raise Failure(f"there is a key named {name} already: delete it or choose another name")
        try:
            _show(key)
        except OSError:
            keys.delete(name)
            give_up_standard_output()
            raise Failure("the key could not be printed, so it was deleted again") from None


def _show(key: str) -> None:
    # Started with standard output closed, Python has none, and click says nothing.
    if cast("TextIO | None", sys.stdout) is None:
        raise OSError("standard output is closed")
    click.echo(key)


@command("list-keys")
@json_option
def list_keys(settings: Settings, as_json: bool) -> None:
    """List the keys' names and when each was made.

    \b
    JSON: {"keys": [{"name": "ci", "created_at": 1790000000}]}
    in order of creation; times are Unix seconds.
    """
    with open_existing(settings.db) as database:
        found = Keys(database).all()
    if as_json:
        print_json({"keys": [{"name": key.name, "created_at": key.created_at} for key in found]})
    elif found:
        print_table(("CREATED (UTC)", "NAME"), [(utc(key.created_at), key.name) for key in found])
    else:
        say("No keys. Add one with `telegrammer add-key NAME`.")


@command("delete-key")
@click.argument("name")
def delete_key(settings: Settings, name: str) -> None:
    """Delete the key NAME, with its subscriptions and their deliveries.

    The next request with it is refused. A callback that is being sent may finish.
    """
    with open_existing(settings.db) as database:
        if not (_can_exist(name) and Keys(database).delete(name)):
            raise Failure(f"there is no key named {name}: `telegrammer list-keys` shows all")


def _can_exist(name: str) -> bool:
    try:
        check_name(name)
    except ValueError:
        return False
    return True
