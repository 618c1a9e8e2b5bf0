"""What the demo shows of whatever arrives at its port."""

import pytest

from telegrammer_demo.receiver import Arrival


@pytest.mark.parametrize(
    ("body", "writer", "text"),
    [
        (b'{"text": "Hi", "from": {"first_name": "Ann"}}', "Ann", "Hi"),
        (b'{"text": "\\u001b]0;x\\u0007", "from": {"first_name": "A\\nB"}}', "A B", " ]0;x "),
        (b"[]", "somebody", "(no text)"),
        (b'{"from": 1}', "somebody", "(no text)"),
        (b"not JSON", "somebody", "(no text)"),
    ],
)
def test_an_arrival_is_fit_for_a_terminal(body: bytes, writer: str, text: str) -> None:
    arrival = Arrival("1-2-3", body)

    assert (arrival.writer, arrival.text) == (writer, text)
