"""The settings as options of every command, and an ending that names its reason."""

import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeVar

import click

from telegrammer import __version__, logs, settings
from telegrammer.errors import ExitError, TelegrammerError

# A token on a command line would show in every process listing.
_NOT_OPTIONS: Final = {"bot_token"}

F = TypeVar("F", bound=Callable[..., object])


def setting_options(command: F) -> F:
    """Give a click command one option for each setting, as text or None."""
    for setting in reversed(settings.SETTINGS):
        if setting.name not in _NOT_OPTIONS:
            option = click.option(
                setting.option,
                setting.name,
                metavar="VALUE",
                help=f"{setting.meaning}  [{setting.variable}; {_shown_default(setting)}]",
            )
            command = option(command)
    return command


def _shown_default(setting: settings.Setting) -> str:
    if setting.name == "db":
        return "~/.local/state/telegrammer/telegrammer.db"
    return setting.default_text() or "none"


def run_daemon(name: str, summary: str, main: Callable[[settings.Settings], None]) -> NoReturn:
    """Be the command of a daemon: parse, set up the logs, run ``main``, exit.

    Exit statuses: 0 stopped as asked, 1 failed, 2 wrong usage, and those of
    ``ExitError``.
    """

    @click.command(name, help=summary, context_settings={"max_content_width": 100})
    @setting_options
    @click.version_option(__version__, prog_name=name)
    def command(**values: str | None) -> None:
        sys.exit(_run(name.removeprefix("telegrammer-"), values, main))

    try:
        run_command(command, name)
    finally:
        logs.finish()


def run_command(command: click.Command, name: str) -> NoReturn:
    """Run it and exit; wrong usage ends with 2, even where nobody can read why."""
    try:
        sys.exit(command.main(prog_name=name, standalone_mode=False))
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        # It quotes what was typed: a token, perhaps, in the place of something else.
        shown = click.UsageError(logs.redacted(error.format_message()), context)
        with contextlib.suppress(OSError):
            shown.show()
        sys.exit(error.exit_code)
    except click.Abort:  # Ctrl-C
        sys.exit(1)


def _run(
    component: str,
    values: Mapping[str, str | None],
    main: Callable[[settings.Settings], None],
) -> int:
    os.umask(0o077)  # whatever is made beside the database is its owner's alone
    logs.set_up(component, "text", "info", [])
    log = logs.Log(component)
    try:
        effective = settings.load(os.environ, values)
        logs.set_up(component, effective.log_format, effective.log_level, effective.secrets())
        for variable in settings.unknown_variables(os.environ):
            log.warning(
                "unknown_variable", name=variable, advice="no such setting: is it misspelt?"
            )
        main(effective)
    except TelegrammerError as error:
        status = error.status if isinstance(error, ExitError) else 1
        log.error("ended", error=str(error), status=status)
        return status
    except Exception:
        log.exception("failed")
        return 1
    return 0
