"""The short round of `make test`; its plan is the same each time."""

import threading

import pytest

from fire.campaign import Campaign
from fire.plan import draw

SEED = 20


@pytest.mark.usefixtures("nothing_left")
def test_nothing_is_lost_whatever_goes_wrong() -> None:
    """Every acknowledged message is delivered in order, dead with a reason, or unwanted."""
    report = Campaign(SEED, seconds=12.0, density=1.5, rate=6.0, drain=40.0).run()

    assert not report.violations, str(report)
    assert report.result.deliveries > 50, str(report)
    assert report.result.sent > 5, str(report)
    assert threading.active_count() < 5


def test_a_seed_is_a_plan() -> None:
    texts = [[str(step) for step in draw(SEED, 60.0, 1.0, {"disk", "clock"})] for _ in range(2)]

    assert texts[0] == texts[1]
    assert len(texts[0]) > 20
