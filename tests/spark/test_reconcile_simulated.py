"""Histories of the real applications on simulated clusters, reconciled together in one job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulation.faults import KINDS
from tests.simulation.history import simulating
from tests.simulation.offline import offline_problems, play_together
from tests.simulation.play import tape_of
from tests.simulation.scenarios import SCENARIOS, play_scenario

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_HISTORIES = 60


@pytest.mark.timeout(600)
def test_nothing_false_is_found_in_the_logs_of_simulated_histories(
    spark: SparkSession, tmp_path: Path
) -> None:
    """All scripts, one of which shows its bug only offline, and random histories.

    With any faults there is no finding without a cause, and each true loss is claimed if no fault
    could hide it.
    """
    with simulating():
        scripts = [play_scenario(name)[0] for name in sorted(SCENARIOS)]
    tapes = {number: tape_of("spark", number) for number in range(_HISTORIES)}
    played = play_together(tapes, KINDS) | dict(enumerate(scripts, _HISTORIES))
    problems = offline_problems(spark, tmp_path, played)
    assert problems == {}
