"""The settings as options, and how a daemon ends."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from support.log_lines import log_put_back
from telegrammer import settings
from telegrammer.errors import ConfigurationError, LockHeld
from telegrammer.options import run_daemon, setting_options
from telegrammer.settings import Settings

TOKEN = "123456789:AAH-thirty_five_characters_of_secret"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings of the machine's; its logging and its umask as they were."""
    for setting in settings.SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)
    umask = os.umask(0o022)
    with log_put_back():
        yield
    os.umask(umask)


@pytest.fixture
def end(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run a daemon's command to its end; return the exit status."""

    def run(main: Callable[[Settings], None], *arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["telegrammer-poller", *arguments])
        with pytest.raises(SystemExit) as ended:
            run_daemon("telegrammer-poller", "Poll.", main)
        return int(ended.value.code or 0)

    return run


def nothing(_: Settings) -> None:
    pass


def test_every_setting_but_the_token_is_an_option() -> None:
    """A token on a command line would show in every listing of processes."""

    @click.command()
    @setting_options
    def command(**_: str | None) -> None:
        pass

    names = [parameter.name for parameter in command.params]
    assert names == [s.name for s in settings.SETTINGS if s.name != "bot_token"]


def test_a_daemon_runs_with_the_effective_settings_and_ends_with_0(
    end: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TELEGRAMMER_PORT", "1000")
    monkeypatch.setenv("TELEGRAMMER_HOST", "127.0.0.2")
    seen: list[Settings] = []

    assert end(seen.append, "--port", "2000") == 0
    assert (seen[0].port, seen[0].host) == (2000, "127.0.0.2")


def test_what_a_daemon_makes_is_its_owners_alone(end: Callable[..., int], tmp_path: Path) -> None:
    file = tmp_path / "file"

    assert end(lambda _: file.touch()) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_wrong_setting_ends_with_78_and_a_line_that_names_it(
    end: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert end(nothing, "--port", "x") == 78
    (line,) = capsys.readouterr().err.splitlines()
    assert "--port: give a whole number" in line


@pytest.mark.parametrize(
    ("error", "status"), [(LockHeld("another one"), 75), (ConfigurationError("no token"), 78)]
)
def test_a_foreseen_end_has_its_status_and_one_line(
    error: Exception, status: int, end: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Settings) -> None:
        raise error

    assert end(fail) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert f'error="{error}"' in line
    assert "component=poller event=ended" in line


def test_an_unforeseen_end_has_its_traceback_without_the_token(
    end: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(effective: Settings) -> None:
        raise RuntimeError(f"odd {effective.require_token().reveal()}")

    monkeypatch.setenv("TELEGRAMMER_BOT_TOKEN", TOKEN)

    assert end(fail) == 1
    written = capsys.readouterr().err
    assert "RuntimeError: odd [redacted]" in written
    assert TOKEN not in written


def test_an_unknown_option_is_wrong_usage(end: Callable[..., int]) -> None:
    assert end(nothing, "--prot", "1") == 2
    assert end(nothing, "--bot-token", TOKEN) == 2
    assert end(nothing, "extra") == 2


def test_a_misspelt_variable_is_told(
    end: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TELEGRAMMER_PROT", "1")

    assert end(nothing) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "event=unknown_variable name=TELEGRAMMER_PROT" in line


def test_help_names_each_setting_with_its_variable_and_default(
    end: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert end(nothing, "--help") == 0
    words = " ".join(capsys.readouterr().out.split())
    for setting in settings.SETTINGS:
        if setting.name != "bot_token":
            assert f"{setting.option} VALUE" in words
            assert setting.variable in words
