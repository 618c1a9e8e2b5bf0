"""Everything that is printed: safe for a terminal, one look for every command."""

import contextlib
import datetime
import json
import os
from collections.abc import Sequence

import click

from telegrammer.logs import redacted

Cell = str | int | None


def say(text: str) -> None:
    """Print a line."""
    click.echo(printable(text))


def complain(text: str) -> None:
    """Print a line on standard error; where that cannot be, the exit status still tells.

    A token that was given where something else belongs, a file's name perhaps, is left out.
    """
    with contextlib.suppress(OSError):
        click.echo(printable(redacted(text)), err=True)


def print_json(value: object) -> None:
    """Print a value as JSON in ASCII, which any terminal and any locale can take."""
    click.echo(json.dumps(value, indent=2))


def print_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print rows in columns: numbers to the right, nothing as a dash.

    Texts of an operator's own belong into the last column, which has no width.
    """
    lines = [list(header), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    numeric = [any(isinstance(row[column], int) for row in rows) for column in range(len(header))]
    for line in lines:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def utc(seconds: int | None) -> str | None:
    """Return Unix seconds as ISO 8601 in UTC, to the second."""
    if seconds is None:
        return None
    try:
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (ValueError, OverflowError, OSError):  # not in the years 1 to 9999
        return str(seconds)
    return moment.isoformat().replace("+00:00", "Z")


def give_up_standard_output() -> None:
    """Keep the interpreter from trying to write once more what could not be written."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def printable(text: str) -> str:
    """Return the text with everything that could move a cursor or turn a line as an escape."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _text(cell: Cell) -> str:
    return "-" if cell is None else printable(str(cell))
