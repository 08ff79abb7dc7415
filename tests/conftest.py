"""What holds for every test."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# A noisy machine must fail nothing: no example has a time limit. Where the result gates a change,
# the examples are the same each time; a developer's own runs go on searching.
settings.register_profile(
    "mirrortest",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("mirrortest")

# As the command has it: before numpy comes, for this process and those it starts.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


LONGEST = (
    "prometheus/test_prometheus_run.py",
    "lab/test_calibrate.py",
    "lab/test_scenarios_mirror.py",
    "lab/test_faulty_mirror.py",
    "simulation/test_histories.py",
    "spark/",
    "lab/test_scenarios_attribution.py",
    "lab/test_false_alarms_topics.py",
    "lab/test_false_alarms_outages.py",
    "lab/test_false_alarms_rolling.py",
    "lab/test_false_alarms_ledger.py",
    "lab/test_scenarios_producer.py",
    "lab/test_scenarios_clean.py",
    "lab/test_spark_cluster.py",
    "lab/test_produce.py",
    "lab/test_lab_mirror.py",
    "lab/test_readme.py",
    "lab/test_scenarios_consumers.py",
    "lab/test_false_alarms_groups.py",
)
"""Files and folders in the order of their length, where that is more than half a minute."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first and the unit tests last, so that parallel workers end together."""
    tests = Path(__file__).parent
    gone = [file for file in LONGEST if not (tests / file).exists()]
    assert not gone, f"LONGEST names what is not there: {gone}"

    def place(item: pytest.Item) -> tuple[bool, int]:
        file = item.path.relative_to(tests).as_posix()
        known = [at for at, name in enumerate(LONGEST) if file.startswith(name)]
        return file.startswith("unit/"), known[0] if known else len(LONGEST)

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What was imported and collected is not searched for garbage again and again."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """By file; but all of tests/spark in one process: a session's first statements are the dear.

    Simulated histories have nothing in common: each part of them is taken by itself.
    """
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415  # a plugin

    class ByFile(LoadFileScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            if file.startswith("tests/simulation/"):
                return nodeid
            return "tests/spark" if file.startswith("tests/spark/") else file

    return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session on two threads for all tests of a process: its start is most of a test."""
    from mirrortest.reconcile.spark_session import spark_session  # noqa: PLC0415  # few tests need it

    with spark_session("local[2]", "2g") as session:
        yield session


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that runs inside a test sets up logging: onto a stream that ends with the test."""
    yield
    structlog.reset_defaults()
