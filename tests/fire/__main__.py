"""`make fire`: everything in this folder, for longer than `make test` has time for.

``FIRE_MINUTES`` (60) is how long the campaigns burn, one seed after the other from
``FIRE_SEED`` (random) on; ``FIRE_PARTS`` what is done: ``campaign``, ``tests`` (fuzz, slow
peers, races) and ``soak`` (``SOAK_MINUTES``, 30), by default ``campaign,tests``.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from fire.campaign import Campaign, Report, left_out
from fire.soak import soak

_SECONDS = 45.0  # of hazards in one round
_HURRIED = 1e-5  # seconds: the switch interval of every second round


def main() -> int:
    """Burn; return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and take everything down
    parts = os.environ.get("FIRE_PARTS", "campaign,tests").split(",")
    minutes = float(os.environ.get("FIRE_MINUTES", "60"))
    is_good = True
    if "campaign" in parts:
        seed = int(os.environ.get("FIRE_SEED") or random.SystemRandom().randrange(10**6))
        is_good &= campaigns(minutes, seed)
    if "tests" in parts:
        is_good &= tests()
    if "soak" in parts:
        is_good &= soak(float(os.environ.get("SOAK_MINUTES", "30")), say)
    return 0 if is_good else 1


def campaigns(minutes: float, seed: int) -> bool:
    """Run one round after the other; tell whether all were good."""
    end = time.monotonic() + minutes * 60
    for hazard, reason in left_out().items():
        say(f"left out of every round: {hazard}: {reason}")
    reports: list[Report] = []
    while not reports or time.monotonic() < end:
        interval = _HURRIED if seed % 2 else None
        report = Campaign(seed, _SECONDS, switch_interval=interval).run()
        reports.append(report)
        result = report.result
        say(
            f"seed {seed}: {result.messages} messages, {result.deliveries} deliveries,"
            f" {result.dead} dead, {result.losses} lost, {result.duplicates.total()} repeated,"
            f" {len(report.violations)} violations, {report.took:.0f} s"
        )
        for step in report.left_out:
            say(f"  left out: {step}")
        if report.violations:
            say(str(report))
        seed += 1
    _summary(reports)
    return not any(report.violations for report in reports)


def tests() -> bool:
    """Run this folder's tests, as long as ``fire.effort`` makes them."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "pytest", "-s"]
    environment = {"FIRE_MINUTES": "60", **os.environ}
    folder = Path(__file__).parent
    return subprocess.run([*command, str(folder)], env=environment, check=False).returncode == 0


def _summary(reports: list[Report]) -> None:
    figures: Counter[str] = Counter()
    for report in reports:
        result = report.result
        figures += Counter(
            {
                "messages": result.messages,
                "deliveries": result.deliveries,
                "dead": result.dead,
                "losses": result.losses,
                "sends": result.sends,
                "outcomes that a kill kept from the log": result.unlogged,
                "violations": len(report.violations),
                **{f"repeated: {cause}": n for cause, n in result.duplicates.items()},
                **{f"subscriptions that {what}": n for what, n in result.upheavals.items()},
                **report.counts,
            }
        )
    say(f"rounds {len(reports)}")
    for name in ("messages", "deliveries", "losses", "violations"):
        say(f"{name:60} {figures.pop(name, 0):8}")
    for name, number in sorted(figures.items()):
        say(f"{name:60} {number:8}")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
