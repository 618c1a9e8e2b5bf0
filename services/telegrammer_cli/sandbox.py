"""The stand-in Bot API, alone."""

import os
import sys

import click


@click.command(
    "sandbox",
    add_help_option=False,  # --help is the sandbox's own
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run a stand-in for Telegram on this machine, to try everything out.",
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def sandbox(options: tuple[str, ...]) -> None:
    # It becomes that program: services do not import each other. -P keeps the folder it is
    # started in from being searched for it.
    command = [sys.executable, "-P", "-m", "telegrammer_sandbox", *options]
    os.execv(sys.executable, command)  # noqa: S606
