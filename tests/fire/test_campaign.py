"""The short round of `make test`; its plan is the same each time."""

import os
import threading

import pytest

from fire.campaign import Campaign, left_out
from fire.hazards import Hazard
from fire.plan import KINDS, draw
from fire.upheavals import (
    DeadLettersRevived,
    GroupMoves,
    KeyDeleted,
    QuietWeek,
    SubscriptionsDeleted,
)

SEED = 1720  # all upheavals are in it, and kills of the poller and the dispatcher
SECONDS = 12.0
DENSITY = 1.5


@pytest.mark.usefixtures("nothing_left")
def test_nothing_is_lost_whatever_goes_wrong() -> None:
    """Every acknowledged message is delivered in order, dead with a reason, or unwanted."""
    report = Campaign(SEED, SECONDS, DENSITY, rate=6.0, drain=40.0).run()

    assert not report.violations, str(report)
    assert report.result.deliveries > 50, str(report)
    assert report.result.sent > 5, str(report)
    for upheaval in (
        "keys deleted",
        "groups that became supergroups",
        "new sequences of update ids",
        "dead letters that were revived",
    ):
        assert upheaval in report.counts, str(report)
    assert threading.active_count() < 5


def test_the_short_round_has_the_upheavals() -> None:
    kinds = {type(step.hazard) for step in draw(SEED, SECONDS, DENSITY)}

    upheavals = {GroupMoves, SubscriptionsDeleted, KeyDeleted, DeadLettersRevived, QuietWeek}
    assert kinds >= upheavals


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.needs])
def test_the_machine_has_what_a_hazard_needs(kind: type[Hazard]) -> None:
    """A hazard that no round can have is said to be left out."""
    reason = left_out().get(kind.__name__)

    if reason is not None:
        # .ci/run installs libfaketime; the right to mount it cannot give.
        assert "CI" not in os.environ or kind.needs != "clock", reason
        pytest.skip(f"{kind.__name__} is left out: {reason}")


def test_a_seed_is_a_plan() -> None:
    texts = [[str(step) for step in draw(SEED, 60.0, 1.0)] for _ in range(2)]

    assert texts[0] == texts[1]
    assert len(texts[0]) > 20
