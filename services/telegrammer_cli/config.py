"""The effective settings, and where each comes from."""

import os
from collections.abc import Mapping
from pathlib import Path

import click

from telegrammer import settings
from telegrammer.options import setting_options
from telegrammer.settings import Secret, Setting, Settings
from telegrammer_cli.commands import given_options, json_option, load
from telegrammer_cli.output import print_json, print_table, say


@click.command("config")
@setting_options
@json_option
def config(as_json: bool, **values: str | None) -> None:
    """Print the effective settings and where each comes from; secrets are masked.

    An option beats the environment variable, which beats the default. Durations are given
    as 10, 10s, 5m, 24h or 7d. The bot's token is never an option: every listing of the
    machine's processes would show it.

    \b
    JSON: {"settings": {"port": {"value": 8080, "source": "TELEGRAMMER_PORT"}},
           "unknown_variables": ["TELEGRAMMER_PROT"]}
    durations are seconds; a secret is "********" or null; the source is the option,
    the variable, or "default".
    """
    options = given_options(values)
    effective = load(options)
    unknown = settings.unknown_variables(os.environ)
    if as_json:
        print_json({"settings": _members(effective, options), "unknown_variables": unknown})
        return
    rows = [_row(setting, effective, options) for setting in settings.SETTINGS]
    print_table(("SETTING", "SOURCE", "VALUE"), rows)
    for variable in unknown:
        say(f"{variable} is set, but there is no such setting: is it misspelt?")


def _members(
    effective: Settings, options: Mapping[str, str | None]
) -> dict[str, dict[str, object]]:
    members: dict[str, dict[str, object]] = {}
    for setting in settings.SETTINGS:
        value: object = getattr(effective, setting.name)
        shown = str(value) if isinstance(value, Secret | Path) else value
        members[setting.name] = {"value": shown, "source": _source(setting, effective, options)}
    return members


def _row(
    setting: Setting, effective: Settings, options: Mapping[str, str | None]
) -> tuple[str, str, str]:
    """Return a line of the table. The value is in the operator's own spelling."""
    value: object = getattr(effective, setting.name)
    text, _ = settings.find(setting, os.environ, options)
    shown = str(value) if isinstance(value, Secret | Path) else text
    return setting.name, _source(setting, effective, options), shown or "-"


def _source(setting: Setting, effective: Settings, options: Mapping[str, str | None]) -> str:
    if setting.name == "bot_token" and effective.bot_token_file:
        return "bot_token_file"
    return settings.find(setting, os.environ, options)[1]
