"""Who else can reach the database's files, and the token's?

The first hold messages, digests, and old backups keys.
"""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from telegrammer_cli.checks.finding import Finding, error, ok, warning

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE: Final = stat.S_IWGRP | stat.S_IWOTH


def examine(database: Path, token_file: str) -> Iterator[Finding]:
    """Yield what is wrong with the folder, the database and all that lies beside it.

    ``token_file`` is looked at too; "" when the token does not come from a file.
    """
    try:
        found = [*_folder(database.parent), *_files(database), *_token_file(token_file)]
    except OSError as problem:
        yield warning("files", f"cannot look at {database.parent}: {problem.strerror}")
        return
    yield from found or [ok("files", f"nobody else can reach {database} and the files beside it")]


def _folder(folder: Path) -> Iterator[Finding]:
    if not folder.exists():
        return
    mode = folder.stat().st_mode
    if mode & _WRITABLE and not mode & stat.S_ISVTX:
        yield error("files", f"others can replace files in {folder}: chmod 700 it")
    elif mode & _OTHERS:
        yield warning("files", f"others can look into {folder}: chmod 700 it")


def _files(database: Path) -> Iterator[Finding]:
    """The database, -wal, -shm, locks, notification file, skipped updates, backups."""
    if not database.parent.is_dir():
        return
    for path in sorted(database.parent.iterdir()):
        if path.name == database.name or path.name.startswith(
            (f"{database.name}-", f"{database.name}.")
        ):
            yield from _file(path, database)


def _file(path: Path, database: Path) -> Iterator[Finding]:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        if path != database:
            yield error("files", f"{path} is a link, which is not followed: remove it")
        return
    if status.st_mode & _OTHERS:
        right = "700" if stat.S_ISDIR(status.st_mode) else "600"
        yield error("files", f"others can reach {path}: chmod {right} it")
    if database.exists() and status.st_uid != database.stat().st_uid:
        yield warning("files", f"{path} belongs to another user than the database: chown it")


def _token_file(path: str) -> Iterator[Finding]:
    """A warning alone, and none about the group: secrets are mounted so in containers."""
    if path and Path(path).stat().st_mode & stat.S_IROTH:
        yield warning("files", f"everybody on this machine can read {path}: chmod 600 it")
