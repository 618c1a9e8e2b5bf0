"""How a command gets its settings, and how the commands are listed."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click

from telegrammer import logs, settings
from telegrammer.options import setting_options
from telegrammer.settings import Settings

# The proposal's spelling of these commands, which works too.
_FLAGS: Final = {
    "--add-key",
    "--list-keys",
    "--delete-key",
    "--list-failed-deliveries",
    "--retry-delivery",
    "--delete-delivery",
}
_SETTINGS: Final = {setting.name for setting in settings.SETTINGS}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")


def command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function that takes the effective ``Settings`` first.

    It has every setting as an option, before and after its name; its help lists ``--db``
    alone.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def run(**values: object) -> None:
            options = given_options(values)
            own = {name: value for name, value in values.items() if name not in _SETTINGS}
            function(load(options), **own)

        made = click.command(name)(setting_options(run))
        hide_settings(made)
        return made

    return decorate


def load(options: Mapping[str, str | None]) -> Settings:
    """Return the settings of options and environment; from here on the log knows the secrets.

    Raises ``ConfigurationError``.
    """
    effective = settings.load(os.environ, options)
    logs.set_up("cli", effective.log_format, effective.log_level, effective.secrets())
    return effective


def given_options(values: Mapping[str, object]) -> dict[str, str | None]:
    """Return the settings given as options; one behind the command beats one before it."""
    parent = click.get_current_context().parent
    before = parent.params if parent else {}
    given: dict[str, str | None] = {}
    for name in _SETTINGS:
        value = values.get(name) or before.get(name)
        given[name] = None if value is None else str(value)
    return given


def hide_settings(made: click.Command) -> None:
    """Leave the settings but ``--db`` out of a command's help."""
    for parameter in made.params:
        if isinstance(parameter, click.Option) and parameter.name in _SETTINGS - {"db"}:
            parameter.hidden = True


class Commands(click.Group):
    """A group whose help lists its commands in sections, in their order."""

    def __init__(
        self, sections: Mapping[str, Sequence[click.Command]], help_text: str, epilog: str
    ) -> None:
        super().__init__(
            "telegrammer",
            help=help_text,
            epilog=epilog,
            context_settings={"max_content_width": 100},
        )
        self._sections = sections
        for made in (made for section in sections.values() for made in section):
            self.add_command(made)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _as_command(args))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.commands)
        for title, section in self._sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (f"{made.name:{width}}", made.get_short_help_str(limit=200))
                        for made in section
                    ]
                )


def _as_command(args: list[str]) -> list[str]:
    """Return ``--db FILE --add-key NAME`` as ``add-key --db FILE NAME``, all else unchanged."""
    for position, argument in enumerate(args):
        if argument == "--":
            break
        flag, separator, value = argument.partition("=")
        if flag in _FLAGS:
            values = [value] if separator else []
            return [flag[2:], *args[:position], *values, *args[position + 1 :]]
    return args
