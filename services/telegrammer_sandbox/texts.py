"""What becomes of a message's text on its way through Telegram."""

import re
import unicodedata
from typing import Final

LONGEST_TEXT: Final = 4096
_LARGEST_TEXT: Final = 32768

_REMOVED: Final = re.compile("[\r\u2028-\u202e]")
_BLANKED: Final = re.compile("[\x00-\x09\x0b-\x1f]")
_COMMAND: Final = re.compile(r"/[A-Za-z0-9_]{1,64}(?:@[A-Za-z0-9_]{1,64})?(?![A-Za-z0-9_@])")


class BadText(ValueError):  # noqa: N818
    """The Bot API refuses the text; the text of the error is its description."""


def check_raw(text: str) -> None:
    """Raise ``BadText`` for what is refused before the chat is looked up."""
    if not text:
        raise BadText("message text is empty")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadText("strings must be encoded in UTF-8") from None
    if size > _LARGEST_TEXT:
        raise BadText("text is too long")


def cleaned(text: str) -> str:
    """Return the text as Telegram keeps it, or raise ``BadText``.

    Control characters become spaces, CR and U+2028 to U+202E vanish, the ends are
    trimmed; 4096 code points are the most.
    """
    kept = _BLANKED.sub(" ", _REMOVED.sub("", text)).strip()
    if all(unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Zs") for c in kept):
        raise BadText("text must be non-empty")
    if len(kept) > LONGEST_TEXT:
        raise BadText("message is too long")
    return kept


def command_length(text: str) -> int:
    """Return the length of the ``/command`` that the text begins with, or 0."""
    match = _COMMAND.match(text)
    return len(match[0]) if match else 0
