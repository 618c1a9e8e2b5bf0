"""The chat page, and the headers that keep it to itself."""

import base64
import hashlib
import re
from importlib import resources
from typing import Final

HTML: Final = resources.files(__package__).joinpath("page.html").read_bytes()

HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def _hashes(element: bytes) -> str:
    """Return the policy's sources for every inline ``element`` of the page."""
    contents: list[bytes] = re.findall(b"<%b>(.*?)</%b>" % (element, element), HTML, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(content).digest()).decode() for content in contents]
    return " ".join(f"'sha256-{digest}'" for digest in digests)


HTML_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {_hashes(b'script')}; style-src {_hashes(b'style')};"
        " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    ),
}
