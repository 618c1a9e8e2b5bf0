"""Is this file ours? Made where there is none, and a foreign one not touched."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.cli import AS_NOBODY
from support.legacy import make_legacy, snapshot
from support.processes import Processes
from telegrammer import notification
from telegrammer.errors import IncompatibleDatabase, StorageUnavailable, UnsafeFile
from telegrammer.store import connection as connection_module
from telegrammer.store import layout as layout_module
from telegrammer.store.connection import Database
from telegrammer.store.keys import Keys
from telegrammer.store.layout import Layout, exists, inspect, open_database

SCHEMA = """
CREATE TABLE api_keys (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    key_digest TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
);
CREATE TABLE subscriptions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner_id INTEGER NOT NULL REFERENCES api_keys(id) ON DELETE CASCADE,
    chat_id INTEGER NOT NULL,
    callback_url TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE(owner_id, chat_id, callback_url)
);
CREATE TABLE poll_state (
    singleton INTEGER PRIMARY KEY CHECK(singleton = 1),
    bot_id INTEGER NOT NULL,
    next_offset INTEGER NOT NULL
);
CREATE TABLE usernames (
    username TEXT PRIMARY KEY,
    chat_id INTEGER NOT NULL UNIQUE,
    observed_at INTEGER NOT NULL
);
CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription_id INTEGER NOT NULL
        REFERENCES subscriptions(id) ON DELETE CASCADE,
    update_id INTEGER NOT NULL,
    payload TEXT NOT NULL,
    state TEXT NOT NULL CHECK(state IN ('PENDING','IN_FLIGHT','DEAD')),
    attempt_count INTEGER NOT NULL DEFAULT 0,
    next_attempt_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    last_error TEXT,
    UNIQUE(subscription_id, update_id)
);
CREATE INDEX deliveries_due ON deliveries(state, next_attempt_at, id);
"""


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "telegrammer.db"


BESIDE = ("telegrammer.db-wal", "telegrammer.db-shm")


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_files_are_0600_in_a_0700_folder_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    db = tmp_path / "a" / "b" / "t.db"
    before = os.umask(umask)
    try:
        with open_database(db) as database:
            Keys(database).add("name", 1)
            notification.touch(db)
            found = modes(db.parent)
    finally:
        os.umask(before)

    assert found == dict.fromkeys(("t.db", "t.db-wal", "t.db-shm", "t.db.notify"), 0o600)
    assert modes(tmp_path) == {"a": 0o700}
    assert modes(tmp_path / "a") == {"b": 0o700}


def test_a_file_that_was_open_to_others_is_closed_to_them(db: Path) -> None:
    """A backup copied back without its mode, say; SQLite's files beside it take the same."""
    db.parent.mkdir(mode=0o700)
    db.touch()
    db.chmod(0o666)
    with open_database(db) as database:
        Keys(database).add("name", 1)
        assert modes(db.parent) == dict.fromkeys(("telegrammer.db", *BESIDE), 0o600)


def test_a_new_database_has_layout_1_in_wal_mode_with_the_pragmas_on(db: Path) -> None:
    with open_database(db) as database, database.read() as tx:
        found = {
            name: tx.execute(f"PRAGMA {name}").fetchone()[0]
            for name in (
                "user_version",
                "journal_mode",
                "foreign_keys",
                "synchronous",
                "secure_delete",
                "busy_timeout",
            )
        }

    assert found == {
        "user_version": 1,
        "journal_mode": "wal",
        "foreign_keys": 1,
        "synchronous": 1,
        "secure_delete": 1,
        "busy_timeout": 5000,
    }


def test_tables_and_columns_are_those_that_others_rely_on(db: Path) -> None:
    """Operators and older versions read them: a change needs a new layout and a migration."""
    wanted = {" ".join(statement.split()) for statement in SCHEMA.split(";") if statement.strip()}
    with open_database(db) as database, database.read() as tx:
        rows = tx.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()

    assert wanted - {" ".join(sql.split()) for (sql,) in rows} == set()


def test_opening_again_keeps_what_is_there(db: Path) -> None:
    with open_database(db) as database:
        Keys(database).add("name", 1)
    with open_database(db) as database:
        assert [key.name for key in Keys(database).all()] == ["name"]


@pytest.mark.parametrize("make", [Path.touch, lambda path: sqlite3.connect(path).close()])
def test_an_empty_file_is_set_up(tmp_path: Path, make: Callable[[Path], None]) -> None:
    db = tmp_path / "t.db"
    make(db)
    assert inspect(db) is Layout.EMPTY if db.exists() else not exists(db)

    with open_database(db):
        assert inspect(db) is Layout.CURRENT


@pytest.mark.parametrize("name", ["a b?c#d%20.db", "ü.db", os.fsdecode(b"\xff.db"), "-x.db"])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    db = tmp_path / name
    with open_database(db):
        pass
    with open_database(db):
        pass

    assert os.listdir(tmp_path) == [name]


OPEN_EACH = """
import sys
from pathlib import Path
from telegrammer.store.layout import open_database
print("ready", flush=True)
for line in sys.stdin:
    with open_database(Path(line.strip())) as database, database.read() as tx:
        print(*tx.execute("SELECT jobs FROM queue_size").fetchone(), flush=True)
"""


def test_three_processes_make_the_same_database_at_once(tmp_path: Path) -> None:
    """Twenty times over: none fails, and there is one layout in the end."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN_EACH],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for _ in range(3)
    ]
    pipes = [(p.stdin, p.stdout) for p in processes if p.stdin and p.stdout]
    try:
        answers = [out.readline() for _, out in pipes]
        for number in range(20):
            for into, _ in pipes:
                into.write(f"{tmp_path}/{number}/t.db\n")
                into.flush()
            answers += [out.readline() for _, out in pipes]
    finally:
        for process in processes:
            process.communicate(timeout=10)

    assert answers == ["ready\n"] * 3 + ["0\n"] * 60
    assert [process.returncode for process in processes] == [0, 0, 0]


def foreign(path: Path, version: int, wal: bool) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {'WAL' if wal else 'DELETE'}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("CREATE TABLE notes (text)")
    connection.execute("INSERT INTO notes VALUES ('precious')")
    connection.commit()
    connection.close()


def changed(path: Path, statement: str) -> None:
    open_database(path).close()
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def killed_in_wal_mode(path: Path) -> None:
    """Leave -wal and -shm as a crash does."""
    live = path.with_name("live.db")
    connection = sqlite3.connect(live)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE notes (text)")
    connection.commit()
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(f"{live}{suffix}", f"{path}{suffix}")
    connection.close()
    live.unlink()


def damaged(path: Path) -> None:
    foreign(path, 0, wal=False)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3000)


FOREIGN: dict[str, Callable[[Path], object]] = {
    "another program's": lambda path: foreign(path, 0, wal=False),
    "another program's of version 1": lambda path: foreign(path, 1, wal=False),
    "another program's in WAL mode": lambda path: foreign(path, 0, wal=True),
    "another program's in WAL mode of version 1": lambda path: foreign(path, 1, wal=True),
    "another program's in WAL mode, crashed": killed_in_wal_mode,
    "a view alone": lambda path: sqlite3.connect(path).execute("CREATE VIEW v AS SELECT 1"),
    "newer": lambda path: changed(path, "PRAGMA user_version = 2"),
    "ours, a table less": lambda path: changed(path, "DROP TABLE skips"),
    "ours, a column more": lambda path: changed(path, "ALTER TABLE skips ADD COLUMN x"),
    "ours, version lost": lambda path: changed(path, "PRAGMA user_version = 0"),
    "a legacy table with a column more": lambda path: make_legacy(
        path, (), "CREATE TABLE api_keys (name, key, created_at, note)"
    ),
    "no database": lambda path: path.write_text("precious notes\n" * 100),
    "a word": lambda path: path.write_text("notes"),
    "a header and no more": lambda path: path.write_bytes(b"SQLite format 3\x00"),
    "damaged": damaged,
}


@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
@pytest.mark.parametrize("kind", list(FOREIGN))
def test_a_foreign_file_is_refused_untouched(tmp_path: Path, kind: str) -> None:
    db = tmp_path / "t.db"
    FOREIGN[kind](db)
    before = snapshot(tmp_path)

    with pytest.raises(IncompatibleDatabase, match="it was not touched") as refused:
        open_database(db)

    after = snapshot(tmp_path)
    before.pop("t.db-shm", None)  # locks and an index, rebuilt by every first reader
    after.pop("t.db-shm", None)
    assert after == before
    assert refused.value.status == 78
    assert str(db) in str(refused.value)


@pytest.mark.parametrize("wal", [False, True])
def test_the_legacy_layout_is_refused_untouched_and_names_the_way_out(
    tmp_path: Path, wal: bool
) -> None:
    db = tmp_path / "t.db"
    make_legacy(db)
    if wal:
        with sqlite3.connect(db) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.close()
    before = snapshot(tmp_path)

    with pytest.raises(IncompatibleDatabase, match=f"telegrammer migrate --db {db}"):
        open_database(db)
    assert snapshot(tmp_path) == before


def test_a_database_that_is_in_use_is_recognised(db: Path) -> None:
    """Everything may still stand in the WAL: the file alone is empty then."""
    with open_database(db) as database:
        Keys(database).add("name", 1)
        shutil.copytree(db.parent, db.parent.with_name("copy"))
    copy = db.parent.with_name("copy") / db.name

    assert copy.with_name(f"{copy.name}-wal").stat().st_size > 0
    with open_database(copy) as database:
        assert [key.name for key in Keys(database).all()] == ["name"]


OPEN_ONCE = """
import sys
from pathlib import Path
from telegrammer.store.layout import open_database
open_database(Path(sys.argv[1])).close()
"""


def test_looking_at_a_database_takes_no_lock_from_the_processs_own_connections(db: Path) -> None:
    """Were they lost, another process that closes would take the WAL away under them."""
    with open_database(db) as database:
        Keys(database).add("name", 1)
        assert inspect(db) is Layout.CURRENT
        subprocess.run([sys.executable, "-c", OPEN_ONCE, str(db)], check=True, timeout=30)
        assert db.with_name(f"{db.name}-wal").exists()


@pytest.fixture(params=["folder", "dangling link", "pipe", "device", "below a file"])
def unusable(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "t.db"
    if request.param == "folder":
        path.mkdir()
    elif request.param == "dangling link":
        path.symlink_to(tmp_path / "nothing" / "there")
    elif request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "device":
        path.symlink_to("/dev/null")
    else:
        path.touch()
        path = path / "t.db"
    return path


def test_what_is_no_file_is_refused_at_once(unusable: Path) -> None:
    with pytest.raises(UnsafeFile, match=r"t\.db") as refused:
        open_database(unusable)
    assert refused.value.status == 78


def test_a_link_to_a_database_is_followed(db: Path, tmp_path: Path) -> None:
    """An operator may keep the file on another disk."""
    open_database(db).close()
    link = tmp_path / "link.db"
    link.symlink_to(db)
    with open_database(link) as database:
        Keys(database).add("name", 1)
    with open_database(db) as database:
        assert len(Keys(database).all()) == 1


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user can pass through; pytest's own are closed."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
@pytest.mark.parametrize("closed", ["file", "folder", "unwritable", "parent"])
def test_a_service_user_without_the_right_is_told_in_one_line(
    closed: str, open_folder: Path, processes: Processes
) -> None:
    db = open_folder / "data" / "t.db"
    if closed != "parent":
        open_database(db).close()
        db.parent.chmod(0o700 if closed == "folder" else 0o755)
        db.chmod(0o644 if closed == "unwritable" else 0o600)
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", AS_NOBODY]

    process = processes.start("as nobody", [*command, "add-key", "x", "--db", str(db)], {})

    assert process.wait() == 78
    (line,) = process.stderr.splitlines()
    assert line.startswith("Error: ")
    assert str(db) in line


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (connection_module, layout_module):
        monkeypatch.setattr(module, "BUSY_TIMEOUT", 0.2)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("made", [True, False])
def test_a_lock_past_the_busy_timeout_is_told_as_such(db: Path, made: bool) -> None:
    if made:
        open_database(db).close()
    else:
        db.parent.mkdir()
        db.touch()
    holder = sqlite3.connect(db, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    try:
        with pytest.raises(StorageUnavailable) as refused, open_database(db) as database:
            Keys(database).add("name", 1)
    finally:
        holder.close()

    assert refused.value.reason == "locked"
    assert 0.2 <= time.monotonic() - began < 2
    with open_database(db) as database:
        assert Keys(database).add("name", 1)


@pytest.mark.usefixtures("_impatient")
def test_readers_do_not_wait_for_a_writer(db: Path) -> None:
    with open_database(db) as database, Database(db) as writer, writer.write():
        assert Keys(database).all() == []


DIE_BEFORE_COMMIT = """
import sys
from pathlib import Path
from telegrammer.store import layout
make = layout.create_tables
def create_tables(connection):
    make(connection)
    print("made", flush=True)
    sys.stdin.read()
layout.create_tables = create_tables
layout.open_database(Path(sys.argv[1]))
"""


def test_a_creator_that_is_killed_before_its_commit_leaves_something_usable(
    tmp_path: Path,
) -> None:
    db = tmp_path / "t.db"
    with subprocess.Popen(
        [sys.executable, "-c", DIE_BEFORE_COMMIT, str(db)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as creator:
        assert creator.stdout is not None
        assert creator.stdout.readline() == b"made\n"
        creator.kill()

    with open_database(db) as database:
        assert Keys(database).all() == []
