"""What a check says: that all is well, or what to do."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """``ERROR``: the gateway cannot run, or must not run, like this."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. ``text`` says what to do unless the level is ``OK``."""

    check: str
    level: Level
    text: str


def ok(check: str, text: str) -> Finding:
    return Finding(check, Level.OK, text)


def warning(check: str, text: str) -> Finding:
    return Finding(check, Level.WARNING, text)


def error(check: str, text: str) -> Finding:
    return Finding(check, Level.ERROR, text)
