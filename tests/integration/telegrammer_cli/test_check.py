"""check: what would keep the gateway from running, and what to do about it."""

import json
import os
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.builders import NOW
from support.cli import AS_NOBODY, Run
from support.legacy import make_legacy, snapshot
from support.processes import Processes
from support.sandbox import TOKEN, Sandbox
from telegrammer import notification
from telegrammer.model import State
from telegrammer.store.components import Component, Components
from telegrammer.store.inbox import Inbox
from telegrammer.store.layout import open_database
from telegrammer_cli.checks import telegram

BOT = int(TOKEN.partition(":")[0])

Findings = dict[str, list[tuple[str, str]]]
Check = Callable[..., tuple[int, Findings]]


@pytest.fixture
def port() -> int:
    """A port that is free."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def check(call: Run, sandbox: Sandbox, port: int) -> Check:
    """Check against the sandbox; return the exit status and (level, text) of each check."""

    def run(*arguments: object, **variables: str) -> tuple[int, Findings]:
        env = {
            "TELEGRAMMER_BOT_TOKEN": TOKEN,
            "TELEGRAMMER_BOT_API_URL": sandbox.url,
            "TELEGRAMMER_PORT": str(port),
        }
        ended = call("check", "--json", *arguments, **env | variables)
        assert ended.err == ""
        report = json.loads(ended.out)
        assert report["ok"] is (ended.status == 0)
        found: Findings = {}
        for finding in report["findings"]:
            found.setdefault(finding["check"], []).append((finding["level"], finding["text"]))
        return ended.status, found

    return run


def make(db: Path, bot: int = BOT) -> None:
    """Make a database that belongs to a bot."""
    with open_database(db) as database:
        Inbox(database).bind(bot)
    notification.touch(db)


def levels(found: Findings) -> dict[str, list[str]]:
    return {check: [level for level, _ in findings] for check, findings in found.items()}


def test_all_is_well(check: Check, db: Path) -> None:
    make(db)

    status, found = check()

    assert status == 0
    names = ("settings", "database", "files", "disk", "clock", "port", "token", "bot", "webhook")
    assert levels(found) == {name: ["ok"] for name in names}


def test_people_read_a_line_for_each(call: Run, sandbox: Sandbox, db: Path, port: int) -> None:
    make(db)

    ended = call(
        *("check", "--bot-api-url", sandbox.url, "--port", port), TELEGRAMMER_BOT_TOKEN=TOKEN
    )

    assert (ended.status, ended.err) == (0, "")
    assert [line.split()[:2] for line in ended.out.splitlines()] == [
        ["ok", name]
        for name in (
            *("settings", "database", "files", "disk", "clock", "port"),
            *("token", "bot", "webhook"),
        )
    ]


def test_before_the_first_start_there_is_only_a_warning(check: Check, db: Path) -> None:
    status, found = check()

    assert status == 0
    assert levels(found)["database"] == ["warning"]
    assert "bot" not in found
    assert not db.parent.exists(), "it makes nothing"


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_first_start_that_could_not_make_it_is_an_error(processes: Processes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        command = [sys.executable, "-X", "dev", "-W", "error", "-c", AS_NOBODY]
        process = processes.start(
            "as nobody", [*command, "check", "--db", f"{folder}/a/b/t.db"], {}
        )
        assert process.wait() == 1

    assert f"this user cannot write to {folder}\n" in process.stdout


def test_it_changes_nothing(check: Check, db: Path) -> None:
    make(db)
    before = snapshot(db.parent)
    check()

    assert snapshot(db.parent) == before


def test_a_misspelt_variable_is_a_warning(check: Check) -> None:
    status, found = check(TELEGRAMMER_PROT="1")

    assert status == 0
    assert found["settings"] == [("warning", "TELEGRAMMER_PROT is no setting: is it misspelt?")]


def test_a_wrong_setting_is_a_finding_that_ends_it_as_everywhere(check: Check) -> None:
    status, found = check("--port", "x", TELEGRAMMER_PROT="1")

    assert status == 78
    assert levels(found) == {"settings": ["warning", "error"]}
    assert found["settings"][1][1] == "--port: give a whole number from 1 to 65535"


def test_people_read_a_wrong_setting_in_the_same_place(call: Run) -> None:
    ended = call("check", TELEGRAMMER_PORT="0")

    assert (ended.status, ended.err) == (78, "")
    assert ended.out.startswith("error    settings  TELEGRAMMER_PORT: ")


# The token and its bot.


def test_no_token_is_an_error(check: Check) -> None:
    status, found = check(TELEGRAMMER_BOT_TOKEN="")

    assert status == 1
    assert levels(found)["token"] == ["error"]
    assert "TELEGRAMMER_BOT_TOKEN_FILE" in found["token"][0][1]


def test_a_refused_token_is_an_error(check: Check) -> None:
    status, found = check(TELEGRAMMER_BOT_TOKEN="123456:another-token-that-is-refused")

    assert status == 1
    assert levels(found)["token"] == ["error"]
    assert "BotFather" in found["token"][0][1]
    assert "webhook" not in found


def test_a_database_of_another_bot_is_an_error(check: Check, db: Path) -> None:
    make(db, bot=42)

    status, found = check()
    assert status == 1
    assert levels(found)["bot"] == ["error"]
    assert "bot 42" in found["bot"][0][1]


def test_a_bot_api_that_cannot_be_reached_is_an_error(check: Check, port: int) -> None:
    status, found = check(TELEGRAMMER_BOT_API_URL=f"http://127.0.0.1:{port}")

    assert status == 1
    assert levels(found)["token"] == ["error"]
    assert "no answer" in found["token"][0][1]


def test_a_bot_api_in_trouble_is_an_error_to_try_again(check: Check, sandbox: Sandbox) -> None:
    sandbox.fault_sample("getMe", "e40_504_html.json", times=None)

    status, found = check()
    assert status == 1
    assert "504" in found["token"][0][1]
    assert "try again" in found["token"][0][1]


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield int(listener.getsockname()[1])


def test_a_bot_api_that_never_answers_is_not_waited_for_without_end(
    check: Check, silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telegram, "_WAIT", 0.5)
    began = time.monotonic()
    status, found = check(TELEGRAMMER_BOT_API_URL=f"http://127.0.0.1:{silent}")

    assert status == 1
    assert "timeout" in found["token"][0][1]
    assert 0.5 <= time.monotonic() - began < 5


def test_a_standing_webhook_is_an_error_and_left_alone(check: Check, sandbox: Sandbox) -> None:
    url = "https://hooks.example/secret-path-of-a-webhook"
    sandbox.call("setWebhook", url=url)

    status, found = check()

    assert status == 1
    ((level, text),) = found["webhook"]
    assert level == "error"
    assert "hooks.example" in text
    assert "deleteWebhook" in text
    assert "secret-path" not in text
    assert not sandbox.calls("deleteWebhook")
    assert sandbox.call("getWebhookInfo")[1]["result"]["url"] == url


# The database and its files.


def foreign(db: Path) -> None:
    connection = sqlite3.connect(db)
    connection.execute("CREATE TABLE notes (text)")
    connection.close()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (make_legacy, "telegrammer migrate"),
        (foreign, "unknown layout"),
        (lambda db: db.write_text("notes"), "not a SQLite database"),
        (lambda db: db.mkdir(), "not a file"),
        (lambda db: db.symlink_to("nowhere"), "not a file"),
    ],
)
def test_a_database_that_cannot_be_used_is_an_error(
    check: Check, db: Path, spoil: Callable[[Path], object], words: str
) -> None:
    db.parent.mkdir()
    spoil(db)

    status, found = check()
    assert status == 1
    ((level, text),) = found["database"]
    assert level == "error"
    assert words in text


@pytest.mark.parametrize(
    "suffix", ["", "-wal", "-shm", ".poller.lock", ".dispatcher.lock", ".notify", ".backup-1"]
)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_can_reach_is_an_error(
    check: Check, db: Path, suffix: str, mode: int
) -> None:
    make(db)
    path = db.with_name(db.name + suffix)
    with open_database(db) as database:  # as long as it is open the WAL is kept
        Inbox(database).request_skip(1, NOW)
        path.touch(mode=0o600)
        path.chmod(mode)
        status, found = check()

    assert status == 1
    assert ("error", f"others can reach {path}: chmod 600 it") in found["files"]


def test_kept_updates_that_others_can_reach_are_an_error(check: Check, db: Path) -> None:
    make(db)
    folder = db.with_name(f"{db.name}.skipped")
    folder.mkdir()
    folder.chmod(0o755)

    status, found = check()
    assert status == 1
    assert found["files"] == [("error", f"others can reach {folder}: chmod 700 it")]


@pytest.mark.parametrize(
    ("mode", "level", "exit_status"), [(0o770, "error", 1), (0o755, "warning", 0)]
)
def test_an_open_folder_is_told(
    check: Check, db: Path, mode: int, level: str, exit_status: int
) -> None:
    make(db)
    db.parent.chmod(mode)

    status, found = check()
    assert status == exit_status
    assert [finding[0] for finding in found["files"]] == [level]
    assert "chmod 700" in found["files"][0][1]


@pytest.mark.parametrize(("mode", "level"), [(0o604, "warning"), (0o640, "ok"), (0o600, "ok")])
def test_a_token_file_that_everybody_can_read_is_a_warning(
    check: Check, db: Path, tmp_path: Path, mode: int, level: str
) -> None:
    make(db)
    file = tmp_path / "bot-token"
    file.write_text(TOKEN)
    file.chmod(mode)

    status, found = check(TELEGRAMMER_BOT_TOKEN="", TELEGRAMMER_BOT_TOKEN_FILE=str(file))
    assert status == 0
    assert levels(found)["files"] == [level]
    assert level == "ok" or f"{file}: chmod 600" in found["files"][0][1]


def test_a_link_in_a_lock_files_place_is_an_error(check: Check, db: Path) -> None:
    make(db)
    db.with_name(f"{db.name}.poller.lock").symlink_to("elsewhere")

    status, found = check()
    assert status == 1
    assert "is a link" in found["files"][0][1]


def test_a_neighbours_files_are_none_of_ours(check: Check, db: Path) -> None:
    make(db)
    (db.parent / "other.db").touch(mode=0o644)
    (db.parent / f"{db.name}2").touch(mode=0o644)

    status, found = check()
    assert status == 0
    assert levels(found)["files"] == ["ok"]


# The port.


@pytest.fixture
def taken(port: int) -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen(1)
        yield port


def say_api_runs(db: Path, heartbeat: int) -> None:
    with open_database(db) as database:
        row = Component("api", 42, State.RUNNING, None, NOW, heartbeat)
        Components(database).write(row)


def test_a_port_held_by_another_program_is_an_error(check: Check, db: Path, taken: int) -> None:
    make(db)

    status, found = check()
    assert status == 1
    ((level, text),) = found["port"]
    assert level == "error"
    assert f"127.0.0.1 port {taken}" in text
    assert "--port" in text


def test_a_port_held_by_our_own_running_api_is_none(check: Check, db: Path, taken: int) -> None:
    make(db)
    say_api_runs(db, int(time.time()))

    status, found = check()
    assert status == 0
    assert levels(found)["port"] == ["ok"]
    assert "our own" in found["port"][0][1]


def test_an_api_that_was_killed_holds_no_port(check: Check, db: Path, taken: int) -> None:
    make(db)
    say_api_runs(db, int(time.time()) - 100)

    assert check()[0] == 1


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_an_error(check: Check, host: str) -> None:
    status, found = check(TELEGRAMMER_HOST=host)

    assert status == 1
    assert levels(found)["port"] == ["error"]
    assert "--host" in found["port"][0][1]


def test_a_clock_that_was_set_back_is_a_warning(check: Check, db: Path) -> None:
    make(db)
    say_api_runs(db, int(time.time()) + 3600)

    status, found = check()
    assert status == 0
    assert levels(found)["clock"] == ["warning"]
