"""migrate, backup, skip-update."""

import os
import time
from pathlib import Path

import pytest

from support.builders import Gateway, message
from support.cli import Run, assert_refused
from support.legacy import KEYS, dump, make_legacy
from support.processes import Processes
from telegrammer.model import State
from telegrammer.store.components import Component, Components
from telegrammer.store.connection import Database
from telegrammer.store.inbox import Inbox
from telegrammer.store.keys import Keys


@pytest.fixture
def legacy(db: Path) -> Path:
    db.parent.mkdir()
    make_legacy(db)
    return db


def test_migrate_tells_where_the_backup_is_and_what_to_do_about_the_keys(
    call: Run, legacy: Path
) -> None:
    before = dump(legacy)

    ended = call("migrate")

    assert (ended.status, ended.err) == (0, "")
    (saved,) = legacy.parent.glob("*.backup-*")
    assert f"Backup of the old database: {saved}\n" in ended.out
    for words in ("older", "remnants on the disk", "replace each", "delete the backup"):
        assert words in ended.out
    assert dump(saved) == before


def test_keys_keep_working_after_migrate(call: Run, legacy: Path) -> None:
    call("migrate")

    with Database(legacy) as database:
        assert [Keys(database).owner(str(key)) is not None for _, key, _ in KEYS] == [True, True]
    assert len(call("list-keys").out.splitlines()) == 3


def test_migrate_prints_no_key(call: Run, legacy: Path) -> None:
    shown = call("migrate").out

    assert not [key for _, key, _ in KEYS if str(key) in shown]


def test_a_second_migrate_has_nothing_to_do(call: Run, legacy: Path) -> None:
    call("migrate")

    ended = call("migrate")
    assert ended.status == 0
    assert "nothing to do" in ended.out
    assert len(list(legacy.parent.glob("*.backup-*"))) == 1


def test_a_key_that_cannot_be_kept_is_named(call: Run, db: Path) -> None:
    db.parent.mkdir()
    make_legacy(db, [("a", "same", 1), ("b", "same", 2)])

    assert_refused(call("migrate"), 1, "'b'", "twice")
    assert os.listdir(db.parent) == [db.name]


def test_backup_copies_a_database_in_use(run: Run, gateway: Gateway, tmp_path: Path) -> None:
    gateway.key("billing")
    copy = tmp_path / "copy.db"

    ended = run("backup", copy)

    assert (ended.status, ended.err) == (0, "")
    assert copy.stat().st_mode & 0o777 == 0o600
    with Database(copy) as database:
        assert [key.name for key in Keys(database).all()] == ["billing"]


def test_backup_replaces_nothing(call: Run, db: Path, tmp_path: Path) -> None:
    call("add-key", "x")
    copy = tmp_path / "copy.db"
    copy.write_text("precious")

    assert_refused(call("backup", copy), 1, "exists already")
    assert_refused(call("backup", tmp_path / "none" / "copy"), 1, "cannot create")
    assert copy.read_text() == "precious"


def test_backup_to_a_folder_that_is_gone(
    call: Run, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert_refused(call("backup", "copy"), 1, "current folder is gone", "begins with /")


def test_skip_update_lets_that_one_pass_and_says_where_its_bytes_go(
    run: Run, gateway: Gateway
) -> None:
    gateway.ingest(message(6))

    ended = run("skip-update", 7)

    assert (ended.status, ended.err) == (0, "")
    assert f"{gateway.path}.skipped/7.json" in ended.out
    assert gateway.inbox.skips() == {7}
    assert run("skip-update", 7).status == 0, "twice is as good as once"


def test_skip_update_before_the_first_poll_is_kept(call: Run, db: Path) -> None:
    call("add-key", "x")

    assert call("skip-update", 7).status == 0
    with Database(db) as database:
        assert Inbox(database).skips() == {7}


def test_an_update_that_was_taken_in_cannot_be_skipped(run: Run, gateway: Gateway) -> None:
    # Just now: after a week without updates a lower id may be one of a new sequence.
    gateway.ingest(message(6), now=int(time.time()))

    assert_refused(run("skip-update", 6), 1, "update 6")
    assert gateway.inbox.skips() == set()


def test_one_that_holds_the_poller_up_can_be_skipped_whatever_its_id(
    run: Run, gateway: Gateway
) -> None:
    """`status` names it and says so: a lower id may come again, or begin a new sequence."""
    gateway.ingest(message(6), now=int(time.time()))
    row = Component("poller", 1, State.BACKING_OFF, "malformed_update", 1, 1, update_id=5)
    Components(gateway.database).write(row)

    assert run("skip-update", 5).status == 0
    assert_refused(run("skip-update", 4), 1, "update 4")


@pytest.mark.parametrize("update", ["x", "-1", "", 2**63])
def test_what_is_no_update_id_is_wrong_usage(call: Run, update: object) -> None:
    assert call("skip-update", update).status == 2


def test_commands_run_beside_a_daemon_and_take_no_lock(
    processes: Processes, run: Run, gateway: Gateway, tmp_path: Path
) -> None:
    env = {"TELEGRAMMER_DB": str(gateway.path)}
    dispatcher = processes.spawn("telegrammer_dispatcher", env=env)
    dispatcher.wait_event("started")

    began = time.monotonic()
    assert run("add-key", "x").status == 0
    assert run("list-keys").status == 0
    assert run("backup", tmp_path / "copy").status == 0
    assert run("delete-key", "x").status == 0
    assert time.monotonic() - began < 10

    assert dispatcher.is_running
