"""One event a line on standard error, and never a secret in it.

Every line has a time, a level, a component, an event name and fields. Whatever
reaches the line by accident, in a traceback for example, is searched for secrets
once more before it is written.
"""

import datetime
import json
import logging
import re
import sys
import traceback
from typing import Final

Field = str | int | float | bool | None

_REDACTED: Final = "[redacted]"
# A bot token, and a key or digest of ours (64 hexadecimal digits), wherever it stands:
# behind the "bot" of a URL and the "n" of an escaped line end too.
_SECRETS: Final = re.compile(
    r"(?<![0-9])[0-9]{5,20}:[A-Za-z0-9_-]{30,}|(?<![0-9a-fA-F])[0-9a-fA-F]{64}(?![0-9a-fA-F])"
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/@+-]+", re.ASCII)
_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class Log:
    """A component's events."""

    def __init__(self, component: str) -> None:
        self._logger = logging.getLogger(f"telegrammer.{component}")

    def debug(self, event: str, **fields: Field) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Field) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Field) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Field) -> None:
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Field) -> None:
        """Write the event with the traceback of the exception being handled."""
        trace = traceback.format_exc()
        self._write(logging.ERROR, event, {**fields, "traceback": trace})

    def _write(self, level: int, event: str, fields: dict[str, Field]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields})


def redacted(text: str) -> str:
    """Return the text without what looks like a bot token, a key of ours or its digest."""
    return _SECRETS.sub(_REDACTED, text)


def set_up(component: str, log_format: str, level: str, secrets: list[str]) -> None:
    """Send every logger's lines to standard error; may be called again.

    Foreign loggers are heard from ``warning`` on, under this component's name:
    below that they write URLs.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(component, log_format == "json", secrets))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("telegrammer").setLevel(_LEVELS[level])
    # A full disk or a closed pipe behind standard error must not end a process.
    logging.raiseExceptions = False


class _Formatter(logging.Formatter):
    def __init__(self, component: str, as_json: bool, secrets: list[str]) -> None:
        super().__init__()
        self._component = component
        self._as_json = as_json
        # As they are, and as they look inside a quoted value.
        forms = {form for secret in secrets for form in (secret, json.dumps(secret)[1:-1])}
        self._secrets = sorted(forms, key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        line = self._line(_members(record, self._component))
        for secret in self._secrets:
            line = line.replace(secret, _REDACTED)
        return redacted(line)

    def _line(self, members: dict[str, Field]) -> str:
        if self._as_json:
            return json.dumps(members, ensure_ascii=True, default=str)
        return " ".join(f"{name}={_value(value)}" for name, value in members.items())


def _members(record: logging.LogRecord, component: str) -> dict[str, Field]:
    when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    members: dict[str, Field] = {
        "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
    }
    fields: dict[str, Field] | None = getattr(record, "fields", None)
    if fields is None:  # a library's line
        text = record.getMessage()
        members |= {"component": component, "event": "library", "logger": record.name}
        members |= {"message": text}
        if record.exc_info and record.exc_info[0]:
            members["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return members
    members |= {"component": record.name.removeprefix("telegrammer."), "event": record.getMessage()}
    return members | fields


def _value(value: Field) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
