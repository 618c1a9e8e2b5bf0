"""Whatever stands in the environment: settings, or one line that names what is wrong."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fire.bytes_of import JUNK, mutated
from fire.effort import tries
from support.secrets import MARK
from telegrammer.errors import ConfigurationError
from telegrammer.settings import SETTINGS, Settings, load

_GOOD = (
    b"10", b"5m", b"24h", b"7d", b"0.5s", b"1", b"64", b"100000", b"127.0.0.1", b"::1",
    b"localhost",
    b"https://api.telegram.org", b"http://127.0.0.1:8081", b"socks5h://a:b@127.0.0.1:1080",
    b"/tmp/x.db", b"~/x", b"~nobody-of-that-name/x", b"json", b"debug",
    b"123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11",
)  # fmt: skip
_VALUES = mutated(_GOOD, most=3).map(lambda data: os.fsdecode(data.replace(b"\0", b"")))
_VARIABLES = [setting.variable for setting in SETTINGS if setting.name != "bot_token_file"]


@tries(500)
@given(environment=st.dictionaries(st.sampled_from(_VARIABLES), _VALUES, max_size=4))
def test_settings_are_loaded_or_refused_in_one_line(environment: dict[str, str]) -> None:
    found = outcome(environment)

    if isinstance(found, Settings):
        assert found.db.is_absolute()
    else:
        assert any(variable in found for variable in environment)
        assert "\n" not in found


@pytest.mark.parametrize("variable", ["TELEGRAMMER_BOT_TOKEN", "TELEGRAMMER_TELEGRAM_PROXY"])
@tries(150)
@given(junk=st.sampled_from(JUNK) | st.binary(max_size=6))
def test_a_refusal_never_quotes_what_may_be_secret(variable: str, junk: bytes) -> None:
    text = os.fsdecode(junk.replace(b"\0", b""))

    found = outcome({variable: f"http://{MARK}{text}\n:{MARK}@["})

    assert isinstance(found, str)
    assert MARK not in found


def outcome(environment: dict[str, str]) -> Settings | str:
    """Return the settings, or the line that refuses them."""
    try:
        return load(environment, {})
    except ConfigurationError as error:
        return str(error)
