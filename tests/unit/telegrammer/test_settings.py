"""Environment and options -> checked settings."""

import os
import subprocess
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.setting_values import GOOD, WRONG
from telegrammer import settings as settings_module
from telegrammer.errors import ConfigurationError
from telegrammer.settings import (
    DEFAULT,
    SETTINGS,
    Secret,
    Setting,
    Settings,
    find,
    is_loopback,
    load,
    unknown_variables,
)

TOKEN = "123456:ABC-DEF"
BY_NAME = {setting.name: setting for setting in SETTINGS}
DURATIONS = [s for s in SETTINGS if isinstance(getattr(load({}, {}), s.name), float)]
COUNTS = [s for s in SETTINGS if isinstance(getattr(load({}, {}), s.name), int)]


def pairs(table: dict[str, tuple[str, ...]]) -> list[tuple[Setting, str]]:
    return [(BY_NAME[name], value) for name, values in table.items() for value in values]


def test_the_tables_of_values_know_every_setting() -> None:
    assert list(GOOD) == list(WRONG) == list(BY_NAME)


def test_the_defaults_are_those_of_the_manual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    found = load({}, {})

    assert found.db == Path.home() / ".local/state/telegrammer/telegrammer.db"
    assert found.bot_token is None
    assert found.bot_api_url == "https://api.telegram.org"
    assert found.telegram_proxy is None
    assert (found.host, found.port) == ("127.0.0.1", 8080)
    assert (found.api_workers, found.api_threads, found.api_queue) == (2, 4, 64)
    assert (found.request_timeout, found.connect_timeout, found.send_timeout) == (5, 5, 20)
    assert found.poll_timeout == 30
    assert found.callback_workers == 4
    assert (found.callback_connect_timeout, found.callback_timeout) == (3, 10)
    assert (found.callback_attempts, found.callback_lifetime) == (8, 86400)
    assert found.max_jobs == 100_000
    assert (found.max_subscriptions_per_key, found.max_subscriptions) == (100, 1000)
    assert found.dead_retention == 7 * 86400
    assert (found.log_format, found.log_level) == ("text", "info")


@pytest.mark.parametrize(("setting", "value"), pairs(GOOD))
def test_good_values_are_taken_from_options_and_variables(setting: Setting, value: str) -> None:
    by_variable = load({setting.variable: value}, {})
    by_option = load({}, {setting.name: value})

    shown = [repr(getattr(found, setting.name)) for found in (by_variable, by_option)]
    assert shown[0] == shown[1]
    assert shown[0] != repr(getattr(load({}, {}), setting.name)) or value == setting.default


@pytest.mark.parametrize(("setting", "value"), pairs(WRONG))
def test_wrong_values_are_refused_by_the_name_that_was_used(setting: Setting, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{setting.variable}: ") as refused:
        load({setting.variable: value}, {})

    assert refused.value.status == 78
    assert "\n" not in str(refused.value)
    if setting.name != "bot_token_file":
        with pytest.raises(ConfigurationError, match=f"^{setting.option}: "):
            load({}, {setting.name: value})


def test_an_option_beats_its_variable_and_an_empty_one_counts_as_not_set() -> None:
    environment = {"TELEGRAMMER_PORT": "1000", "TELEGRAMMER_HOST": ""}

    assert load(environment, {"port": "2000"}).port == 2000
    assert load(environment, {"port": ""}).port == 1000
    assert load(environment, {"port": None}).port == 1000
    assert load(environment, {}).host == "127.0.0.1"


def test_the_source_of_a_value_is_its_option_its_variable_or_the_default() -> None:
    port = BY_NAME["port"]
    environment = {"TELEGRAMMER_PORT": "1000"}

    assert find(port, environment, {"port": "2000"}) == ("2000", "--port")
    assert find(port, environment, {}) == ("1000", "TELEGRAMMER_PORT")
    assert find(port, {}, {}) == ("8080", DEFAULT)


UNITS = st.sampled_from([("", 1), ("s", 1), ("m", 60), ("h", 3600), ("d", 86400)])


@given(st.integers(min_value=1, max_value=3650), UNITS)
def test_a_duration_is_a_number_and_a_unit(number: int, unit: tuple[str, int]) -> None:
    letter, seconds = unit

    found = load({"TELEGRAMMER_DEAD_RETENTION": f"{number}{letter}"}, {})

    assert found.dead_retention == number * seconds


@given(st.integers(min_value=1, max_value=59_999))
def test_a_duration_may_have_milliseconds(milliseconds: int) -> None:
    text = f"{milliseconds // 1000}.{milliseconds % 1000:03}s"

    assert load({"TELEGRAMMER_REQUEST_TIMEOUT": text}, {}).request_timeout == pytest.approx(
        milliseconds / 1000
    )


TEXTS = st.one_of(
    st.text(max_size=20),
    st.text(alphabet="0123456789.smhd-+e _", max_size=12),
)


def load_one(setting: Setting, text: str) -> Settings | str:
    """Return the settings, or the text of the refusal."""
    try:
        return load({setting.variable: text}, {})
    except ConfigurationError as refused:
        return str(refused)


@given(st.sampled_from(DURATIONS), TEXTS)
def test_any_text_is_a_duration_above_zero_or_refused(setting: Setting, text: str) -> None:
    found = load_one(setting, text)

    if isinstance(found, str):
        assert found.startswith(setting.variable)
    else:
        assert 0 < getattr(found, setting.name) < float("inf")


@given(st.sampled_from(COUNTS), TEXTS)
def test_any_text_is_a_count_of_at_least_one_or_refused(setting: Setting, text: str) -> None:
    found = load_one(setting, text)

    if isinstance(found, str):
        assert found.startswith(setting.variable)
    else:
        assert getattr(found, setting.name) >= 1


# But the token's file: that is a path, and no secret.
MAY_BE_SECRET = [setting for setting in SETTINGS if setting.name != "bot_token_file"]


@given(st.sampled_from(MAY_BE_SECRET), st.text(alphabet="zq:/@[]%.", min_size=6, max_size=60))
def test_no_refusal_repeats_the_value(setting: Setting, text: str) -> None:
    """It may be a token in the wrong place, or a proxy's password."""
    found = load_one(setting, text)

    if isinstance(found, str):
        assert text not in found
        assert "zq" not in found


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        load({}, {}).port = 1  # type: ignore[misc]


def test_secrets_never_show_themselves() -> None:
    proxy = "http://user:hidden@proxy.example"
    found = load({"TELEGRAMMER_BOT_TOKEN": TOKEN, "TELEGRAMMER_TELEGRAM_PROXY": proxy}, {})

    shown = f"{found!r} {found} {found.bot_token!r} {found.bot_token} {found.telegram_proxy}"
    assert TOKEN not in shown
    assert "hidden" not in shown
    assert found.secrets() == [TOKEN, proxy]
    assert found.require_token().reveal() == TOKEN


def test_a_missing_token_is_named_when_it_is_needed() -> None:
    with pytest.raises(ConfigurationError, match="TELEGRAMMER_BOT_TOKEN_FILE"):
        load({}, {}).require_token()


@pytest.mark.parametrize("text", [TOKEN, f"{TOKEN}\n", f"  {TOKEN}\r\n\n"])
def test_the_token_may_lie_in_a_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)

    found = load({"TELEGRAMMER_BOT_TOKEN_FILE": str(file)}, {})

    assert found.require_token().reveal() == TOKEN


def test_a_file_too_long_for_a_token_is_not_called_empty(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(b" " * 4090 + TOKEN.encode())

    with pytest.raises(ConfigurationError, match="does not hold a bot token"):
        load({"TELEGRAMMER_BOT_TOKEN_FILE": str(file)}, {})


def test_the_token_may_come_through_a_pipe_in_pieces() -> None:
    """As ``<(command)`` of a shell gives it."""
    command = ["sh", "-c", f"printf {TOKEN[:9]}; sleep 0.2; printf {TOKEN[9:]}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        file = f"/dev/fd/{writer.stdout.fileno()}"
        found = load({"TELEGRAMMER_BOT_TOKEN_FILE": file}, {})

    assert found.require_token().reveal() == TOKEN


@pytest.mark.parametrize("said", [b"", TOKEN.encode()])
def test_a_pipe_that_comes_to_no_end_is_not_waited_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """Half a token must not be taken for one."""
    monkeypatch.setattr(settings_module, "_PIPE_PATIENCE", 0.05)
    pipe = tmp_path / "token"
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDWR), "wb", buffering=0) as writer:
        writer.write(said)
        with pytest.raises(ConfigurationError, match="nothing more came"):
            load({"TELEGRAMMER_BOT_TOKEN_FILE": str(pipe)}, {})


@pytest.mark.parametrize("path", ["/", "/tmp/" + "x" * 201])
def test_a_database_is_a_file_beside_which_others_can_be_named(path: str) -> None:
    with pytest.raises(ConfigurationError, match="TELEGRAMMER_DB: give the path of a file"):
        load({"TELEGRAMMER_DB": path}, {})


def test_a_relative_database_needs_a_folder_to_be_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    with pytest.raises(ConfigurationError, match="current folder is gone"):
        load({"TELEGRAMMER_DB": "t.db"}, {})


def test_the_token_is_set_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    both = {"TELEGRAMMER_BOT_TOKEN": "9:z", "TELEGRAMMER_BOT_TOKEN_FILE": str(file)}

    with pytest.raises(ConfigurationError, match="not both") as refused:
        load(both, {})
    assert "9:z" not in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"zq", b"\xff\xfe", b"1:a\n2:b", b"1" * 5000, b" " * 4090 + b"1:abcdefghij"],
)
def test_a_file_without_one_token_is_refused_without_its_content(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)

    with pytest.raises(ConfigurationError, match="TELEGRAMMER_BOT_TOKEN_FILE") as refused:
        load({"TELEGRAMMER_BOT_TOKEN_FILE": str(file)}, {})
    assert "zq" not in str(refused.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "0.0.0.0", "::", "localhost.example", "", "127.1"])
def test_anything_else_is_not(host: str) -> None:
    assert not is_loopback(host)


def test_a_base_url_has_no_slash_at_its_end() -> None:
    found = load({"TELEGRAMMER_BOT_API_URL": "https://api.example/base//"}, {})

    assert found.bot_api_url == "https://api.example/base"


def test_a_base_url_with_a_token_in_it_is_refused_without_it() -> None:
    with pytest.raises(ConfigurationError, match="without /bot") as refused:
        load({"TELEGRAMMER_BOT_API_URL": f"https://api.example/bot{TOKEN}"}, {})
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize(("state", "folder"), [("/var/state", "/var/state"), ("rel", "")])
def test_the_default_database_lies_in_an_absolute_state_folder(
    state: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", state)
    expected = Path(folder or Path.home() / ".local/state") / "telegrammer/telegrammer.db"

    assert load({}, {}).db == expected


def test_a_database_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert load({}, {"db": "x/../a.db"}).db == tmp_path / "a.db"


def test_unknown_variables_are_found_by_their_prefix() -> None:
    environment = {"TELEGRAMMER_PROT": "1", "TELEGRAMMER_PORT": "1", "OTHER": "1"}

    assert unknown_variables(environment) == ["TELEGRAMMER_PROT"]


def test_options_and_variables_are_spelled_after_the_setting() -> None:
    assert BY_NAME["api_workers"].option == "--api-workers"
    assert BY_NAME["api_workers"].variable == "TELEGRAMMER_API_WORKERS"


def test_a_secret_reveals_itself_only_when_asked() -> None:
    assert repr(Secret("x")) == str(Secret("x")) == "********"
