"""What will go wrong and when: drawn from a seed before anything begins."""

import random
from collections.abc import Collection
from dataclasses import dataclass

from fire import hazards
from fire.hazards import Hazard


@dataclass(frozen=True)
class Step:
    """A hazard from ``begins`` to ``ends``, in seconds since the traffic began."""

    begins: float
    ends: float
    hazard: Hazard

    def __str__(self) -> str:
        return f"{self.begins:6.1f} to {self.ends:6.1f} s  {self.hazard}"


def draw(seed: int, seconds: float, density: float, offered: Collection[str]) -> list[Step]:
    """Return the steps of a campaign, by their beginning.

    ``density`` is how many begin in a second, before those are dropped that would
    overlap with one that needs the same for itself; ``offered`` is what the machine has
    of what hazards need.
    """
    rng = random.Random(seed)
    kinds = [kind for kind in hazards.ALL if not kind.needs or kind.needs in offered]
    order: list[type[Hazard]] = []
    free_at: dict[str, float] = {}
    steps = []
    at = 0.5
    while at < seconds:
        if not order:  # every kind once before any comes again
            order = rng.sample(kinds, len(kinds))
        hazard = order.pop()(rng)
        ends = min(at + rng.uniform(*hazard.seconds), seconds)
        if all(free_at.get(resource, 0.0) <= at for resource in hazard.resources):
            free_at |= dict.fromkeys(hazard.resources, ends + 0.2)
            steps.append(Step(at, ends, hazard))
        at += rng.expovariate(density)
    return steps
