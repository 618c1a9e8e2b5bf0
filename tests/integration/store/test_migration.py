"""Plaintext keys -> digests; copies of a live database."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.legacy import KEYS, SCHEMA, Row, dump, make_legacy, snapshot
from telegrammer.errors import Failure, IncompatibleDatabase, StorageUnavailable, UnsafeFile
from telegrammer.store import migration as module
from telegrammer.store.keys import KeyInfo, Keys
from telegrammer.store.layout import open_database
from telegrammer.store.migration import back_up, migrate

NOW = 1_790_000_000
BACKUP = "t.db.backup-20260921T141320Z"


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "t.db"
    make_legacy(path)
    return path


def keys_of(path: Path) -> list[KeyInfo]:
    with open_database(path) as database:
        return Keys(database).all()


def knows(path: Path, key: str) -> bool:
    with open_database(path) as database:
        return Keys(database).owner(key) is not None


def test_keys_keep_working_with_their_names_and_times(db: Path) -> None:
    migrate(db, NOW)

    assert keys_of(db) == [KeyInfo("billing", 1_600_000_000), KeyInfo("ci", 1_620_284_889)]
    assert [knows(db, str(key)) for _, key, _ in KEYS] == [True, True]
    assert not knows(db, "legacy key two ü"), "a digest of the exact text"


def test_a_backup_is_made_first_that_is_the_old_database(db: Path) -> None:
    before = dump(db)

    saved = migrate(db, NOW)

    assert saved == db.with_name(BACKUP)
    assert dump(saved) == before
    assert saved.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_database_and_backup_are_0600_afterwards_whatever_they_were(db: Path, umask: int) -> None:
    db.chmod(0o666)
    before = os.umask(umask)
    try:
        migrate(db, NOW)
    finally:
        os.umask(before)

    modes = {path.name: path.stat().st_mode & 0o777 for path in db.parent.iterdir()}
    assert modes == {"t.db": 0o600, BACKUP: 0o600}


def test_no_key_is_left_in_the_database_file(db: Path) -> None:
    migrate(db, NOW)

    content = db.read_bytes()
    assert not [key for _, key, _ in KEYS if str(key).encode() in content]


def test_a_migrated_database_is_like_a_new_one(db: Path, tmp_path: Path) -> None:
    migrate(db, NOW)
    for path in (db, tmp_path / "new.db"):
        with open_database(path) as database:
            Keys(database).delete("billing")
            Keys(database).delete("ci")

    schemas = [
        [line for line in dump(path) if "INSERT" not in line] for path in (db, tmp_path / "new.db")
    ]
    assert schemas[0] == schemas[1]


def test_a_second_migration_has_nothing_to_do(db: Path) -> None:
    migrate(db, NOW)
    before = dump(db)

    assert migrate(db, NOW + 1) is None
    assert dump(db) == before
    assert len(list(db.parent.glob("*backup*"))) == 1


def test_keys_that_stand_only_in_an_open_wal_are_kept(db: Path) -> None:
    """The old daemon was killed, or still runs."""
    live = sqlite3.connect(db)
    try:
        live.execute("PRAGMA journal_mode = WAL")
        live.execute("PRAGMA wal_autocheckpoint = 0")
        live.execute("INSERT INTO api_keys VALUES ('late', 'late key', 5)")
        live.commit()
        assert b"late key" not in db.read_bytes()

        saved = migrate(db, NOW)
    finally:
        live.close()

    assert saved is not None
    assert any("late key" in line for line in dump(saved))
    assert knows(db, "late key")


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        (0, 0),
        (1_600_000_000, 1_600_000_000),
        (1_600_000_000.9, 1_600_000_000),
        ("1600000000", 1_600_000_000),
        ("2020-09-13 12:26:40", 1_600_000_000),
        ("2020-09-13T12:26:40Z", 1_600_000_000),
        ("2020-09-13T14:26:40+02:00", 1_600_000_000),
        ("2020-09-13 12:26:40.5", 1_600_000_000),
    ],
)
def test_times_are_kept_as_numbers_and_as_sqlites_texts(
    tmp_path: Path, time: object, seconds: int
) -> None:
    db = tmp_path / "t.db"
    make_legacy(db, [("name", "key", time)])
    migrate(db, NOW)

    assert keys_of(db) == [KeyInfo("name", seconds)]


CONTROL = "a\x1b[2Jb"
BAD_ROWS: dict[str, tuple[list[Row], str]] = {
    "one key under two names": ([("a", "same", 1), ("b", "same", 2)], "'b'.*stands twice"),
    "one name twice": ([("a", "one", 1), ("a", "two", 2)], "'a'.*stands twice"),
    "a number as name": ([(5, "key", 1)], "5.*not a text"),
    "a blob as name": ([(b"a", "key", 1)], "not a text"),
    "no name": ([(None, "key", 1)], "None.*not a text"),
    "a blob as key": ([("a", b"key", 1)], "'a'.*not a text"),
    "an empty key": ([("a", "", 1)], "'a'.*not a text"),
    "an empty name": ([("", "key", 1)], "1 to 128 bytes"),
    "a long name": ([("ü" * 65, "key", 1)], "1 to 128 bytes"),
    "a name with controls": ([(CONTROL, "key", 1)], "control characters"),
    "no time": ([("a", "key", None)], "'a'.*creation time"),
    "a word as time": ([("a", "key", "yesterday")], "'a'.*creation time"),
    "a time without end": ([("a", "key", float("inf"))], "'a'.*creation time"),
    "milliseconds": ([("a", "key", 1_600_000_000_000_000)], "'a'.*creation time"),
    "a time in bytes": ([("a", "key", b"\x01")], "'a'.*creation time"),
}


@pytest.mark.parametrize("kind", list(BAD_ROWS))
def test_a_key_that_cannot_be_kept_is_named_and_nothing_is_changed(
    tmp_path: Path, kind: str
) -> None:
    rows, message = BAD_ROWS[kind]
    db = tmp_path / "t.db"
    make_legacy(db, [("good", "good key", 1), *rows], SCHEMA.replace(" TEXT PRIMARY KEY", ""))
    before = snapshot(tmp_path)

    with pytest.raises(Failure, match=message) as refused:
        migrate(db, NOW)

    assert {name: content for name, (content, _, _) in snapshot(tmp_path).items()} == {
        name: content for name, (content, _, _) in before.items()
    }
    assert str(refused.value).isprintable(), "one line that is safe on a terminal"


def test_a_name_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    make_legacy(db, ())
    connection = sqlite3.connect(db)
    connection.execute("INSERT INTO api_keys VALUES (CAST(x'61ff' AS TEXT), 'key', 1)")
    connection.commit()
    connection.close()

    with pytest.raises(Failure, match=r"'a\\udcff'.*UTF-8"):
        migrate(db, NOW)


# Runs a migration under a limit of the size of files, as a full disk would set one.
LIMITED = """
import resource, sys
from pathlib import Path
from telegrammer.errors import StorageUnavailable
from telegrammer.store.migration import migrate
size = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
try:
    migrate(Path(sys.argv[1]), 1790000000)
except StorageUnavailable as error:
    print(error.reason)
"""


@pytest.mark.parametrize("room", ["none for the backup", "none for the new tables"])
def test_a_disk_that_fails_in_the_middle_leaves_everything_as_it_was(
    tmp_path: Path, room: str
) -> None:
    db = tmp_path / "t.db"
    make_legacy(db, [(f"name {n}", f"k{n}", n) for n in range(3000)])
    before, size = dump(db), db.stat().st_size
    limit = size // 2 if room == "none for the backup" else size

    ran = subprocess.run(
        [sys.executable, "-c", LIMITED, str(db), str(limit)],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert ran.stderr == ""
    assert ran.stdout.strip() in ("disk_full", "io_error")
    assert dump(db) == before
    assert os.listdir(tmp_path) == ["t.db"]
    migrate(db, NOW)
    assert len(keys_of(db)) == 3000


# Stops in the middle of the transaction; so many rows that pages were written already.
KILLED = """
import sys
from pathlib import Path
from telegrammer.store import migration
def stop(value, name):
    if name == "name 29999":
        print("middle", flush=True)
        sys.stdin.read()
    return value
migration._unix_seconds = stop
migration.migrate(Path(sys.argv[1]), 1790000000)
"""


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_killed_in_the_middle_it_has_done_nothing(tmp_path: Path, mode: str) -> None:
    db = tmp_path / "t.db"
    make_legacy(db, [(f"name {n}", f"secret key {n}", n) for n in range(30_000)])
    connection = sqlite3.connect(db)
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.close()
    before = dump(db)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(db)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"middle\n"
        journal = db.with_name("t.db-journal" if mode == "DELETE" else "t.db-wal")
        written = journal.stat().st_size
        process.kill()

    assert written > 100_000, "the transaction had reached the disk"
    assert dump(db) == before
    assert dump(db.with_name(BACKUP)) == before
    db.with_name(BACKUP).unlink()
    migrate(db, NOW)
    assert len(keys_of(db)) == 30_000


def test_a_running_writer_is_waited_for_and_then_left_alone(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUSY_TIMEOUT", 0.2)
    before = dump(db)
    holder = sqlite3.connect(db, isolation_level=None)
    try:
        for lock in ("IMMEDIATE", "EXCLUSIVE"):
            holder.execute(f"BEGIN {lock}")
            with pytest.raises(StorageUnavailable) as refused:
                migrate(db, NOW)
            holder.execute("ROLLBACK")
            assert refused.value.reason == "locked"
            assert sorted(os.listdir(db.parent)) == ["t.db"]
    finally:
        holder.close()
    assert dump(db) == before


def test_of_two_migrations_at_once_one_does_it(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second sees, inside its own transaction, that there is nothing legacy left."""
    real = module.back_up

    def overtaken(source: Path, target: Path) -> None:
        real(source, target)
        monkeypatch.setattr(module, "back_up", real)
        migrate(db, NOW + 1)

    monkeypatch.setattr(module, "back_up", overtaken)

    with pytest.raises(Failure, match="another process"):
        migrate(db, NOW)
    assert [path.name for path in db.parent.glob("*backup*")] == ["t.db.backup-20260921T141321Z"]
    assert len(keys_of(db)) == 2


@pytest.mark.parametrize(
    ("version", "table"), [(0, "other (x)"), (2, "api_keys (name, key, created_at)")]
)
def test_other_layouts_are_refused_untouched(tmp_path: Path, version: int, table: str) -> None:
    db = tmp_path / "t.db"
    make_legacy(db, (), f"CREATE TABLE {table}") if version else None
    connection = sqlite3.connect(db)
    if not version:
        connection.execute(f"CREATE TABLE {table}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()
    before = snapshot(tmp_path)

    with pytest.raises(IncompatibleDatabase) as refused:
        migrate(db, NOW)
    assert refused.value.status == 78
    assert snapshot(tmp_path) == before


def test_nothing_to_migrate_is_told_and_nothing_made(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="no database"):
        migrate(tmp_path / "t.db", NOW)
    (tmp_path / "t.db").touch()
    with pytest.raises(IncompatibleDatabase, match="empty"):
        migrate(tmp_path / "t.db", NOW)
    assert (tmp_path / "t.db").stat().st_size == 0


def test_a_folder_or_a_dangling_link_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "nothing")
    for path in (tmp_path, link):
        with pytest.raises(UnsafeFile):
            migrate(path, NOW)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Path]:
    """A database of ours that a thread keeps writing to."""
    path = tmp_path / "live.db"
    ended = threading.Event()
    began = threading.Event()

    def write() -> None:
        with open_database(path) as database:
            number = 0
            while not ended.is_set():
                Keys(database).add(f"name {number}", NOW)
                number += 1
                began.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert began.wait(10)
    yield path
    ended.set()
    thread.join()


def test_a_live_database_is_copied_whole_while_others_write(live: Path, tmp_path: Path) -> None:
    copies = [tmp_path / f"copy {number}" for number in range(5)]
    for copy in copies:
        back_up(live, copy)

    for copy in copies:
        assert copy.stat().st_mode & 0o777 == 0o600
        with sqlite3.connect(copy) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
        assert len(keys_of(copy)) >= 1


def test_a_backup_never_replaces_anything(db: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("precious")
    link.symlink_to(tmp_path / "elsewhere")
    for path in (target, link, db, tmp_path):
        with pytest.raises(Failure, match="exists already"):
            back_up(db, path)

    assert target.read_text() == "precious"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", [":memory:", "file:copy?mode=memory"])
def test_a_backup_goes_into_a_file_whatever_its_name(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Some names mean something else to SQLite."""
    monkeypatch.chdir(tmp_path)
    back_up(db, Path(name))

    assert dump(tmp_path / name) == dump(db)


def test_a_table_without_row_ids_is_migrated_and_a_view_is_none(tmp_path: Path) -> None:
    table, view = tmp_path / "t.db", tmp_path / "v.db"
    make_legacy(
        table, KEYS, "CREATE TABLE api_keys (name PRIMARY KEY, key, created_at) WITHOUT ROWID"
    )
    with contextlib.closing(sqlite3.connect(view)) as connection:
        connection.execute("CREATE VIEW api_keys AS SELECT 1 AS name, 2 AS key, 3 AS created_at")

    migrate(table, NOW)
    with pytest.raises(IncompatibleDatabase, match="unknown layout"):
        migrate(view, NOW)

    assert len(keys_of(table)) == len(KEYS)


def test_a_backup_that_cannot_be_written_is_told(db: Path, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="No such file or directory"):
        back_up(db, tmp_path / "none" / "copy")


def test_what_is_no_database_is_not_backed_up(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("notes")
    with pytest.raises(IncompatibleDatabase):
        back_up(source, target)
    source.write_bytes(b"")
    with pytest.raises(Failure, match="empty"):
        back_up(source, target)
    assert not target.exists()
