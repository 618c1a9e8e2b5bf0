"""How commands end when something is in their way: a status and one line."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from support.builders import Gateway
from support.cli import Run, assert_refused
from support.legacy import make_legacy, snapshot
from support.processes import Processes
from telegrammer import __version__, settings
from telegrammer.store.layout import open_database

TOKEN = "123456789:AAH-a_token_that_stands_in_a_wrong_place_1"
READING = (
    ("list-keys",),
    ("list-keys", "--json"),
    ("list-failed-deliveries",),
    ("status",),
    ("status", "--json"),
    ("delete-key", "x"),
    ("retry-delivery", "1"),
    ("delete-delivery", "1"),
    ("skip-update", "1"),
    ("migrate",),
    ("backup", "copy"),
)
ALL = (("add-key", "x"), *READING)


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_only_add_key_makes_a_database(call: Run, db: Path, command: tuple[str, ...]) -> None:
    assert_refused(call(*command), 1, "no database", str(db))
    assert not db.parent.exists()


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_only_add_key_fills_an_empty_file(call: Run, db: Path, command: tuple[str, ...]) -> None:
    db.parent.mkdir()
    db.touch()

    assert call(*command).status in (1, 78)
    assert db.stat().st_size == 0


def test_a_terminal_that_does_not_know_a_letter_gets_an_escape(run: Run, gateway: Gateway) -> None:
    gateway.key("ci \N{GRINNING FACE}")

    ended = run("list-keys", PYTHONIOENCODING="latin-1")

    assert (ended.status, ended.err) == (0, "")
    assert ended.out.splitlines()[1].endswith("ci \\U0001f600")


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_a_foreign_database_is_refused_untouched(
    call: Run, db: Path, command: tuple[str, ...]
) -> None:
    db.parent.mkdir()
    connection = sqlite3.connect(db)
    connection.execute("CREATE TABLE notes (text)")
    connection.close()
    before = snapshot(db.parent)

    assert_refused(call(*command), 78, str(db), "unknown layout")
    assert snapshot(db.parent) == before


@pytest.mark.parametrize("command", [c for c in ALL if c[0] not in ("migrate", "backup")])
def test_the_legacy_layout_is_refused_with_the_way_out(
    call: Run, db: Path, command: tuple[str, ...]
) -> None:
    db.parent.mkdir()
    make_legacy(db)
    before = snapshot(db.parent)

    assert_refused(call(*command), 78, f"telegrammer migrate --db {db}")
    assert snapshot(db.parent) == before


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("--bot-token-file", TOKEN, "config"), 78),
        (("--bot-token-file", TOKEN, "check"), 78),
        (("--bot-token", TOKEN), 2),
        ((TOKEN,), 2),
        (("delete-key", TOKEN), 1),
    ],
)
def test_a_token_in_the_wrong_place_is_not_shown(
    call: Run, db: Path, arguments: tuple[str, ...], status: int
) -> None:
    open_database(db).close()

    ended = call(*arguments)

    assert ended.status == status
    assert TOKEN not in ended.out + ended.err


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_a_folder_in_the_databases_place_is_refused(
    call: Run, db: Path, command: tuple[str, ...]
) -> None:
    db.mkdir(parents=True)

    assert_refused(call(*command), 78, str(db))


def test_a_database_that_stays_locked_ends_with_1(run: Run, gateway: Gateway) -> None:
    """After the busy timeout of 5 s."""
    with gateway.database.write():
        assert_refused(run("add-key", "x"), 1, "locked", "try again")
        assert run("list-keys").status == 0, "reading waits for no writer"


@pytest.mark.parametrize("command", [("list-keys",), ("config",), ("--help",), ("check",)])
def test_a_full_output_ends_with_1_and_one_line(
    processes: Processes, gateway: Gateway, command: tuple[str, ...]
) -> None:
    script = 'db="$1"; shift; export TELEGRAMMER_DB="$db"; exec "$@" >/dev/full'
    python = [sys.executable, "-X", "dev", "-W", "error", "-m", "telegrammer_cli"]
    process = processes.start(
        "sh", ["sh", "-c", script, "sh", str(gateway.path), *python, *command], {}
    )

    assert process.wait() == 1
    (line,) = process.stderr.splitlines()
    assert "No space left on device" in line


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("list-keys",), 0),
        (("delete-key", "x"), 1),
        (("nonsense",), 2),
        (("--port", "x", "list-keys"), 78),
    ],
)
def test_a_full_standard_error_does_not_change_the_exit_status(
    processes: Processes, gateway: Gateway, command: tuple[str, ...], status: int
) -> None:
    script = 'db="$1"; shift; export TELEGRAMMER_DB="$db"; exec "$@" 2>/dev/full'
    python = [sys.executable, "-X", "dev", "-W", "error", "-m", "telegrammer_cli"]
    process = processes.start(
        "sh", ["sh", "-c", script, "sh", str(gateway.path), *python, *command], {}
    )

    assert process.wait() == status


def test_a_reader_that_has_seen_enough_is_no_error(gateway: Gateway) -> None:
    for number in range(3000):
        gateway.keys.add(f"{number:0100}", 1)
    python = [sys.executable, "-X", "dev", "-W", "error", "-m", "telegrammer_cli"]
    with subprocess.Popen(
        [*python, "--db", str(gateway.path), "list-keys"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"CREATED")
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_help_tells_commands_statuses_and_where_the_settings_are(call: Run) -> None:
    ended = call("--help")

    assert (ended.status, ended.err) == (0, "")
    for command in ALL:
        assert f"  {command[0]} " in ended.out
    for word in ("Examples:", "Exit statuses:", "78", "telegrammer config --help", "--add-key"):
        assert word in ended.out
    assert ended.out.index("add-key") < ended.out.index("status") < ended.out.index("migrate")


@pytest.mark.parametrize("command", [c[0] for c in ALL] + ["config", "check"])
def test_every_command_has_help(call: Run, command: str) -> None:
    ended = call(command, "--help")

    assert (ended.status, ended.err) == (0, "")
    assert "--db VALUE" in ended.out


def test_the_help_of_config_lists_every_setting(call: Run) -> None:
    words = " ".join(call("config", "--help").out.split())

    for setting in settings.SETTINGS:
        if setting.name != "bot_token":
            assert setting.variable in words
            assert f"{setting.option} VALUE" in words


def test_the_version_is_told(call: Run) -> None:
    assert call("--version").out == f"telegrammer, version {__version__}\n"
