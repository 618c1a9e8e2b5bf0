"""Is everything as it should be before, or while, the gateway runs?"""

import os
import sys
import time
from collections.abc import Iterable, Iterator

import click

from telegrammer.errors import ConfigurationError
from telegrammer.logs import redacted
from telegrammer.options import setting_options
from telegrammer.settings import Settings, unknown_variables
from telegrammer_cli.checks import files, machine, storage, telegram
from telegrammer_cli.checks.finding import Finding, Level, error, ok, warning
from telegrammer_cli.commands import given_options, hide_settings, json_option, load
from telegrammer_cli.output import print_json, say


@click.command("check")
@setting_options
@json_option
def check(as_json: bool, **values: str | None) -> None:
    """Look for what would keep the gateway from running, and say what to do.

    Settings, database, file modes, disk, clock, port, the token, the bot that the database
    belongs to, and a standing webhook. Nothing is changed, no database is made. Exit
    status 1: there is an error; warnings alone are 0. 78: a setting is wrong, so that
    nothing else was looked at.

    \b
    JSON: {"ok": true, "findings": [{"check": "disk", "level": "ok", "text": "..."}]}
    level is "ok", "warning" or "error"; "ok" is false when there is an error.
    """
    try:
        settings = load(given_options(values))
    except ConfigurationError as problem:
        # It quotes a file's name, in whose place a token may have been given.
        wrong = error("settings", redacted(str(problem)))
        _report([*_misspelt_variables(), wrong], as_json)
        sys.exit(problem.status)
    sys.exit(0 if _report(_findings(settings), as_json) else 1)


hide_settings(check)


def _report(findings: Iterable[Finding], as_json: bool) -> bool:
    """Print them, each as soon as it is there; tell whether none is an error."""
    found: list[Finding] = []
    for finding in findings:
        found.append(finding)
        if not as_json:
            say(f"{finding.level.value:8} {finding.check:9} {finding.text}")
    passed = all(finding.level is not Level.ERROR for finding in found)
    if as_json:
        print_json({"ok": passed, "findings": [_member(finding) for finding in found]})
    return passed


def _member(finding: Finding) -> dict[str, str]:
    return {"check": finding.check, "level": finding.level.value, "text": finding.text}


def _findings(settings: Settings) -> Iterator[Finding]:
    """Yield them one by one: the Bot API's answers may take a while."""
    now = time.time()
    yield from _misspelt_variables() or [
        ok("settings", "all of them can be used; `telegrammer config` shows them")
    ]
    about_database, contents = storage.look(settings.db)
    yield about_database
    yield from files.examine(settings.db, settings.bot_token_file)
    yield machine.look_at_disk(settings.db)
    yield machine.look_at_clock(now, contents.components)
    yield machine.look_at_port(settings, contents.components.get("api"), now)
    yield from telegram.examine(settings, contents.bot_id)


def _misspelt_variables() -> list[Finding]:
    return [
        warning("settings", f"{variable} is no setting: is it misspelt?")
        for variable in unknown_variables(os.environ)
    ]
