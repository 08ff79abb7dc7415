"""What holds for every test."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A noisy machine must fail nothing: no example has a time limit. Where the result gates a change,
# the examples are the same each time; a developer's own runs go on searching.
settings.register_profile(
    "mirrortest",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("mirrortest")
