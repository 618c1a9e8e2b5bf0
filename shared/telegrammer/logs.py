"""One event a line on standard error, and never a secret in it.

Every line has a time, a level, a component, an event name and fields. Whatever
reaches the line by accident, in a traceback for example, is searched for secrets
once more before it is written.
"""

import contextlib
import json
import logging
import os
import re
import select
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Final, TextIO, cast

Field = str | int | float | bool | None
Fields = dict[str, Field]

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
_NAMES: Final = {level: name for name, level in _LEVELS.items()}


class Log:
    """A component's events."""

    def __init__(self, component: str) -> None:
        self._component = component

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

    @staticmethod
    @contextlib.contextmanager
    def together() -> Iterator[None]:
        """Write the block's lines at its end, many in a piece. For one thread at a time."""
        with _lines.held():
            yield

    def _write(self, level: int, event: str, fields: Fields) -> None:
        # Not through ``logging``: its records cost more than the line, and the dispatcher
        # writes one for each delivery.
        if level >= _lines.least_level:
            _lines.write(level, self._component, event, fields)


def redacted(text: str) -> str:
    """Return the text without what looks like a bot token, a key of ours or its digest."""
    return _SECRETS.sub(_REDACTED, text) if len(text) >= _SHORTEST_SECRET else text


def set_up(component: str, log_format: str, level: str, secrets: list[str]) -> None:
    """Choose how lines look and which are written; may be called again.

    Foreign loggers are heard from ``warning`` on, under this component's name:
    below that they write URLs.
    """
    global _lines  # noqa: PLW0603  (a process has one standard error)
    _lines = _Lines(log_format == "json", _LEVELS[level], secrets)
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(_OfLibraries(component))
    root.setLevel(logging.WARNING)


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


class _Lines:
    """Makes the lines and writes them to standard error."""

    def __init__(self, as_json: bool, least_level: int, secrets: list[str]) -> None:
        self.least_level = least_level
        self._as_json = as_json
        self._secrets = sorted(secrets, key=len, reverse=True)
        self._stamped = (-1, "")  # in one piece: threads read it
        self._held: list[str] | None = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        held = self._held = []
        try:
            yield
        finally:
            self._held = None
            piece = ""
            for line in held:
                # Longer pieces may be torn where other processes write into the same pipe.
                if len(piece) + len(line) > select.PIPE_BUF:
                    self._put(piece)
                    piece = ""
                piece += line
            self._put(piece)

    def write(self, level: int, component: str, event: str, fields: Fields) -> None:
        for name, value in fields.items():
            if isinstance(value, str):
                fields[name] = self._redacted(value)
        when = self._stamp(time.time())
        if self._as_json:
            head = {"time": when, "level": _NAMES[level], "component": component, "event": event}
            line = json.dumps(head | fields)
        else:
            head_text = f"time={when} level={_NAMES[level]} component={component} event={event}"
            line = " ".join([head_text, *[f"{n}={_value(v)}" for n, v in fields.items()]])
        if self._held is None:
            self._put(line + "\n")
        else:
            self._held.append(line + "\n")

    def _put(self, text: str) -> None:
        stream = cast("TextIO | None", sys.stderr)  # started with it closed, Python has none
        if stream is not None:
            # A full disk or a closed pipe behind standard error must not end a process.
            with contextlib.suppress(OSError, ValueError):
                stream.write(text)  # in one piece: threads write side by side

    def _stamp(self, when: float) -> str:
        second = int(when)
        stamped, text = self._stamped
        if second != stamped:
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._stamped = (second, text)
        return f"{text}.{int((when - second) * 1000):03d}Z"

    def _redacted(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _REDACTED)
        return redacted(text)


_lines = _Lines(as_json=False, least_level=logging.INFO, secrets=[])


class _OfLibraries(logging.Handler):
    """Turns what libraries log into events of ours."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def emit(self, record: logging.LogRecord) -> None:
        fields: Fields = {"logger": record.name}
        try:
            fields["message"] = record.getMessage()
            if record.exc_info and record.exc_info[0]:
                fields["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        except Exception:  # noqa: BLE001  (whatever does not fit: a log never fails who writes it)
            fields["message"] = "(cannot be shown)"
        level = max(least for least in _NAMES if least <= max(record.levelno, logging.DEBUG))
        _lines.write(level, self._component, "library", fields)


def _value(value: Field) -> str | int:
    if type(value) is int:
        return value
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value is None else str(value)
