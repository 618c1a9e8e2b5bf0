"""What must never be written anywhere, and everything that the tests saw written.

A test names its secrets here (a key, a message's text, a query string) before it uses
them; processes, HTTP answers and logs of the test's own process are handed in as they
come. ``check`` then looks for each secret in it: after every test in what that test
wrote, and once more at the end in all of it.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

import pytest

from telegrammer.logs import Fields, Log

# Stands in every text that ``Secrets.text`` makes, so that any of them is found anywhere.
MARK: Final = "unspeakable"


@dataclass(frozen=True, slots=True)
class Written:
    """Something that was written, and where; ``text`` grows as a process goes on."""

    where: str
    text: Callable[[], str]


class Secrets:
    """The secrets of the suite, and what was written while it ran."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {MARK: "a text or a query string"}
        self._written: list[Written] = []
        self._numbers = count(1)

    def text(self, kind: str = "payload") -> str:
        """Return a new text, good in a message, a URL or a name, that nobody may write."""
        return f"{MARK}-{kind}-{next(self._numbers)}"

    def token(self, token: str) -> str:
        """Keep a bot token secret: whole, and the part that is the secret alone."""
        self._kinds[token] = "a bot token"
        self._kinds[token.partition(":")[2]] = "a bot token's second part"
        return token

    def key(self, key: str) -> str:
        """Keep an API key and its digest secret."""
        self._kinds[key] = "an API key"
        self._kinds[hashlib.sha256(key.encode()).hexdigest()] = "a key's digest"
        return key

    def wrote(self, where: str, text: str | Callable[[], str]) -> None:
        """Note that ``text`` was written; a function is asked anew at every check."""
        self._written.append(Written(where, text if callable(text) else lambda: text))

    def mark(self) -> int:
        """Return where ``check`` begins to leave out what was written until now."""
        return len(self._written)

    def leaks(self, since: int = 0) -> list[str]:
        """Say which kinds of secrets stand where, without repeating one."""
        return [
            f"{kind} in {written.where}"
            for written in self._written[since:]
            for text in [written.text()]
            for secret, kind in self._kinds.items()
            if secret in text
        ]

    def check(self, since: int = 0) -> None:
        """Raise ``AssertionError`` when a secret was written, since that mark."""
        leaks = self.leaks(since)
        assert not leaks, "; ".join(leaks)


def listen_to_log(secrets: Secrets, patch: pytest.MonkeyPatch) -> None:
    """Hand in what the test's own process logs, as it is before it is redacted.

    Tracebacks are left out: they are redacted when they are written.
    """
    write = Log._write

    def listen(log: Log, level: int, event: str, fields: Fields) -> None:
        shown = {name: value for name, value in fields.items() if name != "traceback"}
        secrets.wrote("the log of the test's own process", f"{event} {shown}")
        write(log, level, event, fields)

    patch.setattr(Log, "_write", listen)
