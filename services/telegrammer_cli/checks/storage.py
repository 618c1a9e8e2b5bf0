"""The database itself: can it be used, and what does it say?"""

import os
from dataclasses import dataclass
from pathlib import Path

from telegrammer.errors import ExitError, StorageUnavailable
from telegrammer.store.components import Component, Components
from telegrammer.store.layout import is_missing, open_unchanged
from telegrammer.store.queue import Queue
from telegrammer_cli.checks.finding import Finding, error, ok, warning
from telegrammer_cli.checks.machine import nearest_folder


@dataclass(frozen=True, slots=True)
class Contents:
    """What other checks need to know of the database."""

    bot_id: int | None
    components: dict[str, Component]


def look(path: Path) -> tuple[Finding, Contents]:
    """Return the finding about the database and what is in it; nothing is made."""
    nothing = Contents(None, {})
    try:
        if is_missing(path):
            return _judge_absence(path), nothing
        with open_unchanged(path) as database:
            contents = Contents(Queue(database).bot_id(), Components(database).all())
    except ExitError as problem:
        return error("database", str(problem)), nothing
    except StorageUnavailable as problem:
        return error("database", f"{path} cannot be read now: {problem.reason}"), nothing
    return ok("database", f"{path} has this version's layout"), contents


def _judge_absence(path: Path) -> Finding:
    folder = nearest_folder(path)
    if not os.access(folder, os.W_OK | os.X_OK):
        return error("database", f"none at {path}, and this user cannot write to {folder}")
    return warning("database", f"none at {path} yet: the first start makes it")
