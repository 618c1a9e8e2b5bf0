"""What will go wrong and when: drawn from a seed before anything begins."""

import random
from dataclasses import dataclass
from typing import Final

from fire import hazards, upheavals
from fire.hazards import Hazard

KINDS: Final[tuple[type[Hazard], ...]] = (
    # The oftener a kind stands here, the oftener it comes.
    hazards.Kill,
    hazards.Kill,
    hazards.Kill,
    hazards.Restart,
    hazards.Pause,
    hazards.Pause,
    hazards.KillApiWorker,
    hazards.ApiWorkersChange,
    hazards.FullDisk,
    hazards.NoMoreWrites,
    hazards.ReadOnlyAtStart,
    hazards.Locked,
    hazards.LongReader,
    hazards.ClockJump,
    hazards.Polling,
    hazards.Polling,
    hazards.Replay,
    hazards.Poison,
    hazards.BadReceivers,
    hazards.BadReceivers,
    hazards.BadReceivers,
    hazards.NotificationGone,
    hazards.Backup,
    upheavals.GroupMoves,
    upheavals.SubscriptionsDeleted,
    upheavals.KeyDeleted,
    upheavals.DeadLettersRevived,
    upheavals.QuietWeek,
    upheavals.QuietWeek,
)


@dataclass(frozen=True)
class Step:
    """A hazard from ``begins`` to ``ends``, in seconds since the traffic began."""

    begins: float
    ends: float
    hazard: Hazard

    def __str__(self) -> str:
        return f"{self.begins:6.1f} to {self.ends:6.1f} s  {self.hazard}"


def draw(seed: int, seconds: float, density: float) -> list[Step]:
    """Return the steps of a campaign, by their beginning; the same on every machine.

    ``density`` is how many begin in a second, before those are dropped that would
    overlap with one that needs the same for itself.
    """
    rng = random.Random(seed)
    order: list[type[Hazard]] = []
    free_at: dict[str, float] = {}
    steps = []
    at = 0.5
    while at < seconds:
        if not order:  # every kind once before any comes again
            order = rng.sample(KINDS, len(KINDS))
        hazard = order.pop()(rng)
        ends = min(at + rng.uniform(*hazard.seconds), seconds)
        if all(free_at.get(resource, 0.0) <= at for resource in hazard.resources):
            free_at |= dict.fromkeys(hazard.resources, ends + 0.2)
            steps.append(Step(at, ends, hazard))
        at += rng.expovariate(density)
    return steps
