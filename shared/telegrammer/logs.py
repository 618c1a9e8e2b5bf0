"""One event a line on standard error, and never a secret in it.

Every line has a time, a level, a component, an event name and fields. Whatever
reaches the line by accident, in a traceback for example, is searched for secrets
once more before it is written.
"""

import json
import logging
import os
import re
import sys
import time
import traceback
from typing import Final, TextIO, cast

Field = str | int | float | bool | None

_REDACTED: Final = "[redacted]"
# A bot token, and a key or digest of ours (64 hexadecimal digits), wherever it stands:
# behind the "bot" of a URL and the "n" of an escaped line end too.
_SECRETS: Final = re.compile(
    r"(?<![0-9])[0-9]{5,20}:[A-Za-z0-9_-]{30,}|(?<![0-9a-fA-F])[0-9a-fA-F]{64}(?![0-9a-fA-F])"
)
_SHORTEST_SECRET: Final = 36
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
            # ``Logger.log`` would search the stack for the caller, which no line shows.
            name = self._logger.name
            extra = {"fields": fields}
            self._logger.handle(
                self._logger.makeRecord(name, level, "", 0, event, (), None, extra=extra)
            )


def redacted(text: str) -> str:
    """Return the text without what looks like a bot token, a key of ours or its digest."""
    return _SECRETS.sub(_REDACTED, text) if len(text) >= _SHORTEST_SECRET else text


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
    # No line shows them, and they are asked for at each.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def finish() -> None:
    """Let go of what standard error could not take, a full disk being behind it.

    The interpreter would try once more at its end, and end with 120 whatever the status.
    """
    stream = cast("TextIO | None", sys.stderr)  # started with it closed, Python has none
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class _Formatter(logging.Formatter):
    def __init__(self, component: str, as_json: bool, secrets: list[str]) -> None:
        super().__init__()
        self._component = component
        self._as_json = as_json
        self._secrets = sorted(secrets, key=len, reverse=True)
        self._second = -1
        self._time = ""

    def format(self, record: logging.LogRecord) -> str:
        members: dict[str, Field] = {
            "time": self._stamp(record.created),
            "level": record.levelname.lower(),
        }
        fields: dict[str, Field] | None = getattr(record, "fields", None)
        if fields is None:
            fields = self._of_library(record)
        else:
            members["component"] = record.name.removeprefix("telegrammer.")
            members["event"] = record.msg
        for name, value in fields.items():
            members[name] = self._redacted(value) if isinstance(value, str) else value
        if self._as_json:
            return json.dumps(members)
        return " ".join([f"{name}={_value(value)}" for name, value in members.items()])

    def _of_library(self, record: logging.LogRecord) -> dict[str, Field]:
        fields: dict[str, Field] = {
            "component": self._component,
            "event": "library",
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0]:
            fields["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return fields

    def _stamp(self, when: float) -> str:
        second = int(when)
        if second != self._second:
            self._second = second
            self._time = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._time}.{int((when - second) * 1000):03d}Z"

    def _redacted(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _REDACTED)
        return redacted(text)


def _value(value: Field) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value)
    return "true" if value is True else "false" if value is False else str(value)
