"""When each fault of a plan is done: random times, the same for the same seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from mirrortest.scenario.specification import Fault

if TYPE_CHECKING:
    from mirrortest.scenario.specification import Plan

_SPREAD = 0.5
"""A fault lasts from half as long to half as long again as its mean."""


def planned(plan: Plan) -> list[Fault]:
    """The plan's faults in the order of their times; two never overlap."""
    draw = random.Random(plan.seed)
    found: list[Fault] = []
    moment = plan.at + draw.expovariate(1 / plan.every)
    while moment < plan.until:
        lasts = plan.for_ * draw.uniform(1 - _SPREAD, 1 + _SPREAD)
        found.append(
            Fault.model_validate(
                {
                    "do": draw.choice(plan.do),
                    "part": draw.choice(plan.parts),
                    "at": f"{moment:.3f}s",
                    "for": f"{lasts:.3f}s",
                }
            )
        )
        moment += lasts + draw.expovariate(1 / plan.every)
    return found
