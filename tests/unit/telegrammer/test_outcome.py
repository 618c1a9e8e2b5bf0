"""What a receiver's answer means."""

import email.utils
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegrammer.callbacks.outcome import Answer, Verdict, least_delay, verdict

NOW = 1_790_000_000.0


@pytest.mark.parametrize(
    ("answer", "expected", "reason"),
    [
        (Answer(200), Verdict.DELIVERED, "http_200"),
        (Answer(299), Verdict.DELIVERED, "http_299"),
        (Answer(301), Verdict.REFUSED, "http_301"),
        (Answer(304), Verdict.REFUSED, "http_304"),
        (Answer(400), Verdict.REFUSED, "http_400"),
        (Answer(410), Verdict.REFUSED, "http_410"),
        (Answer(408), Verdict.RETRY, "http_408"),
        (Answer(429), Verdict.RETRY, "http_429"),
        (Answer(500), Verdict.RETRY, "http_500"),
        (Answer(599), Verdict.RETRY, "http_599"),
        (Answer(200, error="too_large"), Verdict.RETRY, "too_large"),
        (Answer(404, error="timeout"), Verdict.RETRY, "timeout"),
        (Answer(error="connect_failed"), Verdict.RETRY, "connect_failed"),
    ],
)
def test_an_answer_is_judged(answer: Answer, expected: Verdict, reason: str) -> None:
    assert (verdict(answer), answer.reason) == (expected, reason)


def test_every_other_answer_below_500_is_final() -> None:
    final = {n for n in range(300, 500) if verdict(Answer(n)) is Verdict.REFUSED}

    assert set(range(300, 500)) - final == {408, 429}


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0),
        ("", 0),
        ("0", 0),
        ("120", 120),
        (" 7 ", 7),
        ("-5", 0),
        ("1.5", 0),
        ("٣", 0),
        ("soon", 0),
        ("9" * 40, 10**10),
        (email.utils.formatdate(NOW + 90, usegmt=True), 90),
        (email.utils.formatdate(NOW - 90, usegmt=True), 0),
        ("Wed, 99 Foo 2026 99:99:99 GMT", 0),
        ("1 Jan 99999999999999999999 00:00:00 GMT", 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: int) -> None:
    assert least_delay(value, NOW) == seconds


@pytest.mark.parametrize("zone", ["", " -0000", " GMT"])
@pytest.mark.parametrize("here", ["America/New_York", "Asia/Tokyo"])
def test_a_date_is_utc_wherever_the_gateway_runs(
    monkeypatch: pytest.MonkeyPatch, here: str, zone: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", here)
        time.tzset()
        delays = [
            least_delay(time.strftime(form, time.gmtime(NOW + 37)), NOW)
            for form in (f"%a, %d %b %Y %H:%M:%S{zone}", "%a %b %d %H:%M:%S %Y")
        ]
    time.tzset()

    assert delays == [37, 37]


@given(st.text(max_size=60))
def test_any_retry_after_gives_a_delay_that_is_not_negative(value: str) -> None:
    assert least_delay(value, NOW) >= 0
