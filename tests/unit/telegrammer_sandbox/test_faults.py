"""Which call a fault falls on, and what it brings."""

import msgspec
import pytest

from telegrammer_sandbox.faults import Fault, Faults


def test_a_fault_falls_on_the_next_calls_of_its_method_and_is_gone() -> None:
    faults = Faults()
    fault = Fault(method="sendMessage", times=2, status=500)
    faults.waiting.append(fault)

    taken = [faults.take(m) for m in ("getMe", "sendmessage", "SENDMESSAGE", "sendMessage")]
    assert taken == [None, fault, fault, None]


def test_a_fault_for_all_calls_stays() -> None:
    faults = Faults()
    faults.waiting += [Fault(method="*", times=None, close=True), Fault(method="getMe")]

    assert all(faults.take("getMe") is faults.waiting[0] for _ in range(5))


@pytest.mark.parametrize(
    ("fault", "literal", "runs"),
    [
        (Fault(), False, True),
        (Fault(hold=True, cut=3), False, True),
        (Fault(status=500), True, False),
        (Fault(body=""), True, False),
        (Fault(status=500, run=True), True, True),
        (Fault(close=True, run=False), True, False),
    ],
)
def test_a_fault_with_its_own_answer_keeps_the_method_from_running(
    fault: Fault, literal: bool, runs: bool
) -> None:
    assert (fault.literal, fault.runs) == (literal, runs)


@pytest.mark.parametrize(
    "text",
    [
        b'{"times":0}',
        b'{"status":99}',
        b'{"delay":-1}',
        b'{"typo":1}',
        b'{"body":"a","body_base64":"YQ=="}',
        b'{"body_base64":"?"}',
        b'{"headers":{"X":"\xe2\x80\x8b"}}',
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Fault)
