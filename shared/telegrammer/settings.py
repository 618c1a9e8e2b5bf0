"""Environment and options -> one frozen ``Settings``, checked once at start.

An option beats its environment variable; an empty one counts as not set. A wrong
value raises ``ConfigurationError`` with the name of the setting. No module reads the
environment later.
"""

import contextlib
import errno
import ipaddress
import os
import re
import select
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

from telegrammer.errors import ConfigurationError

PREFIX: Final = "TELEGRAMMER_"
DEFAULT: Final = "default"

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)", re.ASCII)
_TOKEN: Final = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,128}", re.ASCII)
_TOKEN_PATH: Final = re.compile(r"/bot[0-9]+:")
_HOST: Final = re.compile(r"[A-Za-z0-9._:%-]{1,253}", re.ASCII)
_TOKEN_FILE_LIMIT: Final = 4096
_PIPE_PATIENCE: Final = 10.0  # seconds
_NAME_LIMIT: Final = 200  # bytes; file systems take 255, and files beside it have longer names
_PROXY_LIMIT: Final = 255  # of a whole URL: SOCKS 5 has as much room for name and password each

# A request or a callback may run this long while its process stops, so that a stop
# ends within the 50 s that supervisord and systemd are told to wait.
_LONGEST_EXCHANGE: Final = 45.0
_DAY: Final = 86400.0

T = TypeVar("T")


class Secret:
    """A text that never shows itself: not in ``repr``, logs, tracebacks or listings."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, for the one place that must send it."""
        return self._text

    def __repr__(self) -> str:
        return "********"


def _text(value: str) -> str:
    return value


def _path(value: str) -> Path:
    """Return the absolute path; of a link to a file that file's, whose locks must count."""
    try:
        path = Path(os.path.abspath(Path(value).expanduser()))
    except RuntimeError:
        raise ValueError("no such home folder: give a path without ~") from None
    except OSError:
        raise ValueError("the current folder is gone: give a path that begins with /") from None
    # Path's own questions raise where a folder on the way is closed.
    is_link = os.path.islink(path) and os.path.exists(path)
    path = Path(os.path.realpath(path)) if is_link else path
    if not 1 <= len(os.fsencode(path.name)) <= _NAME_LIMIT:
        raise ValueError(f"give the path of a file, whose name has at most {_NAME_LIMIT} bytes")
    return path


def _host(value: str) -> str:
    if not _HOST.fullmatch(value):
        raise ValueError("give an address or a host name of this machine")
    return value


def _count(least: int, most: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", value, re.ASCII):
            raise ValueError(f"give a whole number from {least} to {most}")
        number = int(value)
        if not least <= number <= most:
            raise ValueError(f"give a whole number from {least} to {most}")
        return number

    return parse


def _duration(most: float) -> Callable[[str], float]:
    def parse(value: str) -> float:
        match = _DURATION.fullmatch(value)
        if match is None:
            raise ValueError("give a duration such as 10, 10s, 5m, 24h or 7d")
        seconds = float(match[1]) * _UNITS[match[2]]
        if not 0 < seconds <= most:
            raise ValueError(f"give a duration above 0 and up to {most:g} seconds")
        return seconds

    return parse


def _whole_seconds(most: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        seconds = _duration(most)(value)
        if seconds != int(seconds):
            raise ValueError("give whole seconds")
        return int(seconds)

    return parse


def _choice(*names: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in names:
            raise ValueError("give one of " + ", ".join(names))
        return value

    return parse


def _token(value: str) -> Secret | None:
    if not value:
        return None
    if not _TOKEN.fullmatch(value):
        raise ValueError("that is not a bot token, as BotFather gives it: 123456:ABC-DEF")
    return Secret(value)


def is_loopback(host: str) -> bool:
    """Tell whether ``host``, a name or an address literal, is this machine itself."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def plain_url(value: str, schemes: tuple[str, ...]) -> SplitResult:
    """Return the parts of an absolute URL; raise ``ValueError``, which never quotes it."""
    if not value.isascii() or any(c <= " " or c == "\x7f" for c in value):
        raise ValueError("give a URL in ASCII, without white space")
    parts = _split(value)
    if parts is None:  # raised here: urlsplit's own error, as a context, would hold the value
        raise ValueError("that is not a URL, or its port is not from 1 to 65535")
    if parts.scheme not in schemes or not parts.hostname:
        raise ValueError("give a URL that begins with " + " or ".join(s + "://" for s in schemes))
    return parts


def _split(value: str) -> SplitResult | None:
    with contextlib.suppress(ValueError):
        parts = urlsplit(value)
        if parts.port != 0:
            return parts
    return None


def _base_url(value: str, schemes: tuple[str, ...]) -> SplitResult:
    parts = plain_url(value, schemes)
    if parts.query or parts.fragment:
        raise ValueError("give a URL without a query and a fragment")
    return parts


def _bot_api_url(value: str) -> str:
    parts = _base_url(value, ("https", "http"))
    if "@" in parts.netloc:
        raise ValueError("give a URL without user information")
    if _TOKEN_PATH.search(value):
        raise ValueError("give the URL without /bot and the token, which has its own setting")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ValueError(
            "plain http is only for a loopback address: the token would cross the network in clear"
        )
    return value.rstrip("/")


def _proxy(value: str) -> Secret | None:
    if not value:
        return None
    parts = _base_url(value, ("http", "https", "socks5h"))
    if parts.path not in ("", "/") or len(value) > _PROXY_LIMIT:
        raise ValueError(f"give a proxy URL without a path, of at most {_PROXY_LIMIT} characters")
    return Secret(value)


def _default_db() -> str:
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = state if state.startswith("/") else "~/.local/state"
    return folder.rstrip("/") + "/telegrammer/telegrammer.db"


def _setting(default: str | Callable[[], str], parse: Callable[[str], T], meaning: str) -> T:
    metadata = {"default": default, "parse": parse, "meaning": meaning}
    return cast("T", field(metadata=metadata, repr=False))


@dataclass(frozen=True)
class Settings:
    """What an operator can set. Durations are in seconds."""

    db: Path = _setting(_default_db, _path, "database file")
    bot_token: Secret | None = _setting("", _token, "the bot's token")
    bot_token_file: str = _setting("", _text, "a file that holds the bot's token")
    bot_api_url: str = _setting(
        "https://api.telegram.org", _bot_api_url, "Bot API: https, or http on a loopback address"
    )
    telegram_proxy: Secret | None = _setting(
        "", _proxy, "http://, https:// or socks5h:// proxy for the Bot API alone"
    )
    host: str = _setting("127.0.0.1", _host, "API bind address")
    port: int = _setting("8080", _count(1, 65535), "API bind port")
    api_workers: int = _setting("2", _count(1, 64), "API processes")
    api_threads: int = _setting("4", _count(1, 64), "requests at once in each API process")
    api_queue: int = _setting("64", _count(1, 10000), "requests that may wait")
    request_timeout: float = _setting(
        "5s", _duration(60), "to read a request in full, and to write a response in full"
    )
    connect_timeout: float = _setting("5s", _duration(_LONGEST_EXCHANGE), "sendMessage: to connect")
    send_timeout: float = _setting("20s", _duration(_LONGEST_EXCHANGE), "sendMessage: in total")
    poll_timeout: int = _setting("30s", _whole_seconds(50), "getUpdates: how long Telegram waits")
    callback_workers: int = _setting("4", _count(1, 256), "callbacks at once")
    callback_connect_timeout: float = _setting(
        "3s", _duration(_LONGEST_EXCHANGE), "callback: to connect"
    )
    callback_timeout: float = _setting("10s", _duration(_LONGEST_EXCHANGE), "callback: in total")
    callback_attempts: int = _setting("8", _count(1, 1000), "attempts for each delivery")
    callback_lifetime: float = _setting(
        "24h", _duration(30 * _DAY), "how long a delivery is tried again"
    )
    max_jobs: int = _setting(
        "100000", _count(1, 1_000_000), "deliveries that may wait, run or be dead, together"
    )
    max_subscriptions_per_key: int = _setting(
        "100", _count(1, 100_000), "subscriptions for each key"
    )
    max_subscriptions: int = _setting("1000", _count(1, 100_000), "subscriptions in all")
    dead_retention: float = _setting(
        "7d", _duration(3650 * _DAY), "dead deliveries are purged after this"
    )
    log_format: str = _setting("text", _choice("text", "json"), "text (key=value) or json")
    log_level: str = _setting(
        "info", _choice("debug", "info", "warning", "error"), "debug, info, warning or error"
    )

    def require_token(self) -> Secret:
        """Return the bot's token; raise ``ConfigurationError`` when none is set."""
        if self.bot_token is None:
            raise ConfigurationError(
                "no bot token: set TELEGRAMMER_BOT_TOKEN or TELEGRAMMER_BOT_TOKEN_FILE"
            )
        return self.bot_token

    def secrets(self) -> list[str]:
        """Return the texts that must never be written anywhere."""
        held = (self.bot_token, self.telegram_proxy)
        return [secret.reveal() for secret in held if secret is not None]


@dataclass(frozen=True)
class Setting:
    """One setting as an operator knows it."""

    name: str
    default: str | Callable[[], str]
    parse: Callable[[str], object]
    meaning: str

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    def default_text(self) -> str:
        return self.default if isinstance(self.default, str) else self.default()


SETTINGS: Final = tuple(Setting(name=f.name, **f.metadata) for f in fields(Settings))


def load(environment: Mapping[str, str], options: Mapping[str, str | None]) -> Settings:
    """Return the checked settings; ``options`` maps names such as ``db`` to texts.

    Raises ``ConfigurationError`` at the first wrong value.
    """
    values: dict[str, Any] = {}  # what a parser returns is its field's type: ``_setting``
    for setting in SETTINGS:
        text, source = find(setting, environment, options)
        name = setting.variable if source == DEFAULT else source
        values[setting.name] = _parsed(setting, name, text)
    values["bot_token"] = _one_token(values["bot_token"], values["bot_token_file"])
    return Settings(**values)


def find(
    setting: Setting, environment: Mapping[str, str], options: Mapping[str, str | None]
) -> tuple[str, str]:
    """Return the setting's text and its source: an option, a variable or ``DEFAULT``."""
    if given := options.get(setting.name):
        return given, setting.option
    if given := environment.get(setting.variable):
        return given, setting.variable
    return setting.default_text(), DEFAULT


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return the variables with our prefix that name no setting: misspelt ones."""
    known = {setting.variable for setting in SETTINGS}
    return sorted(v for v in environment if v.startswith(PREFIX) and v not in known)


def _parsed(setting: Setting, name: str, text: str) -> object:
    try:
        return setting.parse(text)
    except ValueError as error:
        # A token or a proxy URL may hold a secret: the text itself is never shown.
        raise ConfigurationError(f"{name}: {error}") from None


def _read(file: str) -> bytes:
    """Return a file to its end; a pipe too, with patience.

    Raises ``OSError``, also when a pipe has no writer, or one that does not come to an end,
    and ``ValueError`` when there is more than any token.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as stream:
        ready = select.poll()
        ready.register(stream, select.POLLIN)
        found = b""
        while True:
            if not ready.poll(_PIPE_PATIENCE * 1000):
                raise OSError(errno.ETIMEDOUT, f"nothing more came for {_PIPE_PATIENCE:g} s")
            some = stream.read(_TOKEN_FILE_LIMIT)
            if not some:
                return found
            found += some
            if len(found) > _TOKEN_FILE_LIMIT:
                raise ValueError("too long")


def _one_token(token: Secret | None, file: str) -> Secret | None:
    if not file:
        return token
    if token is not None:
        raise ConfigurationError(
            "set TELEGRAMMER_BOT_TOKEN or TELEGRAMMER_BOT_TOKEN_FILE, not both"
        )
    try:
        found = _token(_read(file).decode("ascii").strip())
    except OSError as error:
        raise ConfigurationError(
            f"TELEGRAMMER_BOT_TOKEN_FILE: cannot read {file}: {error.strerror}"
        ) from None
    except ValueError:
        raise ConfigurationError(
            f"TELEGRAMMER_BOT_TOKEN_FILE: {file} does not hold a bot token"
        ) from None
    if found is None:
        raise ConfigurationError(f"TELEGRAMMER_BOT_TOKEN_FILE: {file} is empty")
    return found
