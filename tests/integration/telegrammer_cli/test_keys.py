"""add-key, list-keys, delete-key."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from support.builders import Gateway, message
from support.cli import Run, assert_refused
from support.processes import Processes
from telegrammer.store.keys import Keys
from telegrammer.store.layout import open_database


def names(db: Path) -> list[str]:
    with open_database(db) as database:
        return [key.name for key in Keys(database).all()]


def test_add_key_prints_the_key_alone_and_it_works(run: Run, db: Path) -> None:
    ended = run("add-key", "billing")

    assert (ended.status, ended.err) == (0, "")
    assert re.fullmatch(r"[0-9a-f]{64}\n", ended.out)
    with open_database(db) as database:
        assert Keys(database).owner(ended.out.strip()) is not None


def test_add_key_makes_the_database_closed_to_others(call: Run, db: Path) -> None:
    call("add-key", "billing")

    assert db.stat().st_mode & 0o777 == 0o600
    assert db.parent.stat().st_mode & 0o777 == 0o700


def test_a_taken_name_is_refused(call: Run, db: Path) -> None:
    call("add-key", "billing")

    assert_refused(call("add-key", "billing"), 1, "billing", "already")
    assert names(db) == ["billing"]


@pytest.mark.parametrize("name", ["", "a" * 129, "a\nb", "\x1b[2J", os.fsdecode(b"\xff")])
def test_a_name_that_cannot_be_is_wrong_usage_and_makes_nothing(
    call: Run, db: Path, name: str
) -> None:
    ended = call("add-key", name)

    assert ended.status == 2
    assert "a key's name" in ended.err
    assert "\x1b" not in ended.err
    assert not db.exists()


def test_list_keys_has_names_and_times_but_no_digest(run: Run, gateway: Gateway) -> None:
    gateway.key("billing")
    gateway.key("ci runner")

    assert run("list-keys").out.splitlines() == [
        "CREATED (UTC)         NAME",
        "2026-09-21T14:13:20Z  billing",
        "2026-09-21T14:13:20Z  ci runner",
    ]
    assert json.loads(run("list-keys", "--json").out) == {
        "keys": [
            {"name": "billing", "created_at": 1790000000},
            {"name": "ci runner", "created_at": 1790000000},
        ]
    }


def test_a_listing_of_nothing_says_so(run: Run, gateway: Gateway) -> None:
    assert "No keys" in run("list-keys").out
    assert json.loads(run("list-keys", "--json").out) == {"keys": []}


def test_a_name_cannot_turn_a_terminals_text_around(run: Run, gateway: Gateway) -> None:
    """Format and separator characters are no control characters: they may be in names."""
    gateway.key("a\u202eb\u2028c")

    assert run("list-keys").out.splitlines()[1].endswith(r"a\u202eb\u2028c")
    assert json.loads(run("list-keys", "--json").out)["keys"][0]["name"] == "a\u202eb\u2028c"


def test_a_name_is_printed_in_any_locale(run: Run, gateway: Gateway) -> None:
    gateway.key("Zürich")

    ended = run("list-keys", LC_ALL="C", PYTHONIOENCODING="ascii:strict", PYTHONUTF8="0")

    assert ended.status == 0
    assert ended.out.splitlines()[1].endswith("  Zürich")


def test_delete_key_takes_what_it_owned(run: Run, gateway: Gateway) -> None:
    owner, _ = gateway.key("billing")
    gateway.subscribe(owner, "http://a/")
    gateway.ingest(message(1))

    ended = run("delete-key", "billing")

    assert (ended.status, ended.out, ended.err) == (0, "", "")
    assert gateway.jobs() == []
    assert gateway.keys.all() == []


@pytest.mark.parametrize("name", ["ci", "BILLING", "", "a\nb", os.fsdecode(b"\xff"), "x" * 1000])
def test_an_unknown_name_is_told_in_one_line(run: Run, gateway: Gateway, name: str) -> None:
    gateway.key("billing")

    assert_refused(run("delete-key", name), 1, "no key named")
    assert len(gateway.keys.all()) == 1


def test_a_name_that_looks_like_an_option_is_reached_behind_two_dashes(call: Run, db: Path) -> None:
    assert call("add-key", "--", "--list-keys").status == 0
    assert names(db) == ["--list-keys"]
    assert call("delete-key", "--", "--list-keys").status == 0
    assert names(db) == []


@pytest.mark.parametrize("target", [">/dev/full", ">&-"])
def test_a_key_that_could_not_be_shown_is_not_kept(
    processes: Processes, db: Path, target: str
) -> None:
    """Nobody would ever know it."""
    script = f'exec "$0" -X dev -W error -m telegrammer_cli add-key lost --db "$1" {target}'
    process = processes.start("sh", ["sh", "-c", script, sys.executable, str(db)], {})

    assert process.wait() == 1
    (line,) = process.stderr.splitlines()
    assert "deleted again" in line
    assert names(db) == []
