"""Every error that Telegrammer raises on purpose.

::

    TelegrammerError
    ├── ExitError                   ends a process, with an exit status
    │   ├── ConfigurationError      78  a setting is wrong
    │   ├── IncompatibleDatabase    78  unknown, newer or legacy layout
    │   ├── WrongBot                78  the database belongs to another bot
    │   ├── UnsafeFile              78  a file that cannot be opened safely
    │   ├── LockHeld                75  another process has the role
    │   └── Failure                  1  anything else that an operator must see
    ├── StorageUnavailable          locked, full or read-only: try again
    ├── QueueFull                   the job limit: try again when there is room
    ├── SubscriptionLimit           the subscription limits: final
    ├── HttpError                   an exchange without a usable response
    │   ├── Unreachable             DNS, connection or TLS
    │   ├── TimedOut                the total time is over
    │   ├── BrokenResponse          cut short, too large, not HTTP
    │   └── Cut                     we ended the exchange ourselves
    └── TelegramError               the Bot API answered, and not with success
        ├── Rejected                400, 403: destination or content refused
        ├── RateLimited             429
        ├── PollingRefused          401, 404, 409: polling cannot go on by itself
        └── UpstreamFailed          any other answer
"""

from typing import ClassVar, Final

_STORAGE_ADVICE: Final = {
    "locked": "another process holds its lock; try again, or end what has it open",
    "disk_full": "make room on its disk and try again",
    "read_only": "its disk or file cannot be written",
    "io_error": "look at the health of its disk",
    "cannot_open": "look at the permissions of its folder",
    "corrupt": "it is damaged; restore a backup",
    "replaced": "its file was removed, moved or replaced; put it back",
}


class TelegrammerError(Exception):
    """The root of the tree."""


class ExitError(TelegrammerError):
    """Ends the process with ``status`` and one line: the error's text."""

    status: ClassVar[int] = 1


class ConfigurationError(ExitError):
    """A setting is missing or wrong; the text names it."""

    status = 78


class IncompatibleDatabase(ExitError):  # noqa: N818
    """The file is not a database that this version can use; it was not touched."""

    status = 78


class WrongBot(ExitError):  # noqa: N818
    """The database is bound to another bot than the token's."""

    status = 78


class UnsafeFile(ExitError):  # noqa: N818
    """A file or folder of ours is a link, belongs to others or cannot be opened."""

    status = 78


class LockHeld(ExitError):  # noqa: N818
    """Another process has the role on this database."""

    status = 75


class Failure(ExitError):  # noqa: N818
    """Anything else that an operator must see and can act on."""


class StorageUnavailable(TelegrammerError):  # noqa: N818
    """The database cannot carry out the operation now. ``reason`` is a code for logs.

    Its text says what to do as well.
    """

    def __init__(self, reason: str) -> None:
        advice = _STORAGE_ADVICE.get(reason, "see the logs of the processes")
        super().__init__(f"the database cannot carry out the operation: {reason} ({advice})")
        self.reason = reason


class QueueFull(TelegrammerError):  # noqa: N818
    """The batch's jobs would pass the job limit; nothing of it was kept."""


class SubscriptionLimit(TelegrammerError):  # noqa: N818
    """One more subscription would pass the limit of the key or of the gateway."""


class HttpError(TelegrammerError):
    """An exchange ended without a usable response.

    ``reason`` is a code such as ``timeout``; the text never holds a URL, since a Bot
    API URL holds the token.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Unreachable(HttpError):  # noqa: N818
    """DNS, connection or TLS failed."""


class TimedOut(HttpError):  # noqa: N818
    """The total time was over."""


class BrokenResponse(HttpError):  # noqa: N818
    """The response broke off, was too large or was not HTTP."""


class Cut(HttpError):  # noqa: N818
    """We ended the exchange ourselves, to stop."""


class TelegramError(TelegrammerError):
    """The Bot API answered, and not with success.

    ``code`` is the envelope's ``error_code`` or, without a readable envelope, the
    HTTP status. ``description`` is Telegram's own, or empty.
    """

    def __init__(self, code: int, description: str = "") -> None:
        super().__init__(f"the Bot API answered {code}")
        self.code = code
        self.description = description


class Rejected(TelegramError):  # noqa: N818
    """400 or 403 in a readable envelope: destination or content refused, finally."""

    def __init__(self, code: int, description: str, migrate_to_chat_id: int | None) -> None:
        super().__init__(code, description)
        self.migrate_to_chat_id = migrate_to_chat_id


class RateLimited(TelegramError):  # noqa: N818
    """429. ``retry_after`` is in whole seconds, positive, or None when none came."""

    def __init__(self, description: str, retry_after: int | None) -> None:
        super().__init__(429, description)
        self.retry_after = retry_after


class PollingRefused(TelegramError):  # noqa: N818
    """401, 404 or 409: only an operator can make polling go on."""


class UpstreamFailed(TelegramError):  # noqa: N818
    """Any other answer: 5xx, HTML, an envelope that cannot be used."""
