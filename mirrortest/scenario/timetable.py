"""When each fault of a plan is done: random times, the same for the same seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from mirrortest.scenario.fault import Fault, suits

if TYPE_CHECKING:
    from mirrortest.scenario.fault import Plan

_SPREAD = 0.5
"""A fault lasts from half as long to half as long again as its mean."""


def planned(plan: Plan) -> list[Fault]:
    """The plan's faults in the order of their times; two never overlap."""
    draw = random.Random(plan.seed)
    found: list[Fault] = []
    moment = plan.at + draw.expovariate(1 / plan.every)
    while moment < plan.until:
        lasts = plan.for_ * draw.uniform(1 - _SPREAD, 1 + _SPREAD)
        do = draw.choice(plan.do)
        part = draw.choice([each for each in plan.parts if suits(do, each)])
        times = {"at": round(moment, 3), "for_": round(lasts, 3)}
        values: dict[str, Any] = {"do": do, "part": part, **times, **plan.measures(do)}
        found.append(Fault.model_construct(**values))
        moment += lasts + draw.expovariate(1 / plan.every)
    return found
