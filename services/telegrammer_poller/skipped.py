"""Where the bytes of a malformed update lie after an operator let the poller pass over it."""

import os
from pathlib import Path

from telegrammer.errors import StorageUnavailable


def keep(database: Path, update_id: int, text: str) -> Path:
    """Write the update's own text to ``<db>.skipped/ID.json``, 0600, before it is passed over.

    Raises ``StorageUnavailable`` when it cannot be kept: then it must not be skipped.
    """
    folder = database.with_name(database.name + ".skipped")
    target = folder / f"{update_id}.json"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # Written again with the next try if it fails halfway: nothing was skipped then.
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(target, flags, 0o600), "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageUnavailable("cannot_keep_skipped_update") from error
    return target
