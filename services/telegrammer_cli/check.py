"""Is everything as it should be before, or while, the gateway runs?"""

import os
import sys
import time
from collections.abc import Iterator

from telegrammer.settings import Settings, unknown_variables
from telegrammer_cli.checks import files, machine, storage, telegram
from telegrammer_cli.checks.finding import Finding, Level, ok, warning
from telegrammer_cli.commands import command, json_option
from telegrammer_cli.output import print_json, say


@command("check")
@json_option
def check(settings: Settings, as_json: bool) -> None:
    """Look for what would keep the gateway from running, and say what to do.

    Settings, database, file modes, disk, clock, port, the token, the bot that the database
    belongs to, and a standing webhook. Nothing is changed, no database is made. Exit
    status 1: there is an error; warnings alone are 0.

    \b
    JSON: {"ok": true, "findings": [{"check": "disk", "level": "ok", "text": "..."}]}
    level is "ok", "warning" or "error"; "ok" is false when there is an error.
    """
    found: list[Finding] = []
    for finding in _findings(settings):
        found.append(finding)
        if not as_json:
            say(f"{finding.level.value:8} {finding.check:9} {finding.text}")
    passed = all(finding.level is not Level.ERROR for finding in found)
    if as_json:
        print_json({"ok": passed, "findings": [_member(finding) for finding in found]})
    sys.exit(0 if passed else 1)


def _member(finding: Finding) -> dict[str, str]:
    return {"check": finding.check, "level": finding.level.value, "text": finding.text}


def _findings(settings: Settings) -> Iterator[Finding]:
    """Yield them one by one: the Bot API's answers may take a while."""
    now = time.time()
    yield from _look_at_settings()
    about_database, contents = storage.look(settings.db)
    yield about_database
    yield from files.examine(settings.db, settings.bot_token_file)
    yield machine.look_at_disk(settings.db)
    yield machine.look_at_clock(now, contents.components)
    yield machine.look_at_port(settings, contents.components.get("api"), now)
    yield from telegram.examine(settings, contents.bot_id)


def _look_at_settings() -> Iterator[Finding]:
    unknown = unknown_variables(os.environ)
    for variable in unknown:
        yield warning("settings", f"{variable} is no setting: is it misspelt?")
    if not unknown:
        yield ok("settings", "all of them can be used; `telegrammer config` shows them")
