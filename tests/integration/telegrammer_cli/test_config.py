"""config: effective settings, their sources, no secret; and what a wrong one does."""

import json
import os
from pathlib import Path

import pytest

from support.cli import Run, assert_refused
from support.processes import Processes
from support.setting_values import GOOD, WRONG
from telegrammer import settings

TOKEN = "123456:config-token-nobody-may-see"
PROXY = "http://user:config-proxy-password@proxy.example:3128"


def rows(out: str) -> dict[str, tuple[str, str]]:
    """Return (source, value) of each setting."""
    lines = [line.split(maxsplit=2) for line in out.splitlines()[1:]]
    return {line[0]: (line[1], line[2]) for line in lines if len(line) == 3}


def test_every_setting_is_shown_with_its_value_and_source(call: Run, db: Path) -> None:
    ended = call("--port", "9000", "config", "--host", "::1", TELEGRAMMER_API_THREADS="8")

    assert (ended.status, ended.err) == (0, "")
    found = rows(ended.out)
    assert list(found) == [setting.name for setting in settings.SETTINGS]
    assert found["db"] == ("TELEGRAMMER_DB", str(db))
    assert found["port"] == ("--port", "9000")
    assert found["host"] == ("--host", "::1")
    assert found["api_threads"] == ("TELEGRAMMER_API_THREADS", "8")
    assert found["callback_lifetime"] == ("default", "24h")
    assert found["bot_token"] == ("default", "-")


def test_json_has_values_as_the_programs_use_them(call: Run, db: Path) -> None:
    ended = call("config", "--json", "--callback-lifetime", "2h", TELEGRAMMER_PROT="1")

    found = json.loads(ended.out)
    assert list(found["settings"]) == [setting.name for setting in settings.SETTINGS]
    assert found["settings"]["db"] == {"value": str(db), "source": "TELEGRAMMER_DB"}
    assert found["settings"]["port"] == {"value": 8080, "source": "default"}
    assert found["settings"]["callback_lifetime"] == {
        "value": 7200,
        "source": "--callback-lifetime",
    }
    assert found["settings"]["bot_token"] == {"value": None, "source": "default"}
    assert found["unknown_variables"] == ["TELEGRAMMER_PROT"]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_secrets_are_masked(call: Run, form: tuple[str, ...]) -> None:
    ended = call("config", *form, TELEGRAMMER_BOT_TOKEN=TOKEN, TELEGRAMMER_TELEGRAM_PROXY=PROXY)

    assert ended.status == 0
    assert ended.out.count("********") == 2
    for secret in ("nobody-may-see", "config-proxy-password", "user"):
        assert secret not in ended.out + ended.err


def test_a_token_from_a_file_is_masked_and_its_source_is_the_file(
    call: Run, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")

    ended = call("config", TELEGRAMMER_BOT_TOKEN_FILE=str(file))
    assert rows(ended.out)["bot_token"] == ("bot_token_file", "********")
    assert rows(ended.out)["bot_token_file"] == ("TELEGRAMMER_BOT_TOKEN_FILE", str(file))
    assert TOKEN not in ended.out


def test_a_misspelt_variable_is_named(call: Run) -> None:
    assert "TELEGRAMMER_PROT is set" in call("config", TELEGRAMMER_PROT="1").out


def test_it_neither_needs_nor_makes_a_database(call: Run, db: Path) -> None:
    assert call("config").status == 0
    assert not db.parent.exists()


@pytest.mark.parametrize("name", [name for name, values in GOOD.items() if values])
def test_every_setting_can_be_set_by_its_variable(call: Run, name: str) -> None:
    (setting,) = [setting for setting in settings.SETTINGS if setting.name == name]

    ended = call("config", "--json", **{setting.variable: GOOD[name][-1]})

    assert ended.status == 0, ended.err
    assert json.loads(ended.out)["settings"][name]["source"] == setting.variable


@pytest.mark.parametrize("name", list(WRONG))
def test_a_wrong_value_ends_every_command_with_78_and_its_name(
    processes: Processes, name: str
) -> None:
    """As real processes, the operator's command and a daemon side by side."""
    (setting,) = [setting for setting in settings.SETTINGS if setting.name == name]
    env = {setting.variable: WRONG[name][0]}
    command = processes.spawn("telegrammer_cli", "config", env=env)
    daemon = processes.spawn("telegrammer_dispatcher", env=env)

    for process in (command, daemon):
        assert process.wait(30) == 78
        (line,) = process.output.splitlines()
        assert setting.variable in line


def test_a_wrong_option_is_named_as_one(call: Run) -> None:
    assert_refused(call("config", "--port", "x"), 78, "--port: ")
    assert_refused(call("--port", "x", "list-keys"), 78, "--port: ")


def test_the_token_set_twice_is_refused_without_either(call: Run, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("654321:the-other-one")

    ended = call("config", TELEGRAMMER_BOT_TOKEN=TOKEN, TELEGRAMMER_BOT_TOKEN_FILE=str(file))
    assert_refused(ended, 78, "not both")
    assert "the-other-one" not in ended.err
    assert "nobody-may-see" not in ended.err


def test_a_wrong_token_is_not_repeated(call: Run) -> None:
    ended = call("config", TELEGRAMMER_BOT_TOKEN="bot123456:half-a-token!")

    assert_refused(ended, 78, "TELEGRAMMER_BOT_TOKEN", "BotFather")
    assert "half-a-token" not in ended.err


def test_the_token_does_not_show_in_the_listing_of_processes(
    processes: Processes, tmp_path: Path
) -> None:
    """Anybody may read a process's title; its environment only its own user."""
    env = {"TELEGRAMMER_DB": str(tmp_path / "t.db"), "TELEGRAMMER_BOT_TOKEN": TOKEN}
    dispatcher = processes.spawn("telegrammer_dispatcher", env=env)
    dispatcher.wait_event("started")

    folder = Path("/proc") / str(dispatcher.pid)
    titles = [(folder / name).read_bytes() for name in ("cmdline", "comm")]
    assert not [title for title in titles if b"nobody-may-see" in title]
    assert (folder / "environ").stat().st_mode & 0o077 == 0


def test_a_home_that_does_not_exist_is_named(call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a service user without one."""
    monkeypatch.setenv("TELEGRAMMER_DB", "")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)

    assert_refused(call("config"), 78, "TELEGRAMMER_DB", "home")
