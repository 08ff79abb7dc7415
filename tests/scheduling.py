"""Which process runs which tests, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

_TESTS = Path(__file__).parent
TOGETHER = {
    "tests/spark/": "a session",
    "tests/lab/test_object_store.py": "a session",
    "tests/docker/test_compose.py": "images",
    "tests/docker/test_images.py": "images",
}
"""File or folder -> what its tests share in one process, because it is costly to start or build."""
OWN_CLUSTERS = tuple(
    f"tests/lab/test_{name}.py"
    for name in (
        "calibrate",
        "false_alarms_rolling",
        "lab_archive",
        "preloaded",
        "run_scenario",
        "secured_clusters",
        "spark_cluster",
    )
)
"""Files of tests/lab that do not use the lab that all others share."""
LONGEST = (
    "docker/test_images.py",
    "docker/test_compose.py",
    "prometheus/test_prometheus_run.py",
    "lab/test_calibrate.py",
    "lab/test_scenarios_mirror.py",
    "lab/test_run_scenario.py",
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
    "lab/test_documented_on_clusters.py",
    "lab/test_scenarios_consumers.py",
    "lab/test_false_alarms_groups.py",
)
"""Files and folders that take more than half a minute, longest first."""


def needs_lab(scope: str) -> bool:
    """Whether the tests of this file or node id use the lab of their process."""
    return scope.startswith("tests/lab/") and not scope.startswith(OWN_CLUSTERS)


def put_in_order(items: list[pytest.Item]) -> None:
    """Put the longest files first and the unit tests last: parallel processes then end together.

    Tests that need the process's lab come before all others: the lab ends with the last of them.
    """
    named = [_TESTS / file for file in LONGEST]
    named += [_TESTS.parent / file for file in (*TOGETHER, *OWN_CLUSTERS)]
    missing = [str(file) for file in named if not file.exists()]
    assert not missing, f"named here, and not there: {missing}"

    def place(item: pytest.Item) -> tuple[bool, bool, int]:
        file = item.path.relative_to(_TESTS).as_posix()
        known = [at for at, name in enumerate(LONGEST) if file.startswith(name)]
        first = known[0] if known else len(LONGEST)
        return file.startswith("unit/"), not needs_lab(f"tests/{file}"), first

    items.sort(key=place)


def by_file(config: pytest.Config, log: Any) -> Any:
    """The scheduler: a process takes one file, or one group of `TOGETHER`.

    Simulated histories share nothing, so each of their tests is a unit. Only every second process
    takes tests with a lab first: a lab costs its start, and CPU as long as it runs.
    """
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415  # a plugin

    class ByFile(LoadFileScheduling):  # type: ignore[misc]  # it is untyped
        def _assign_work_unit(self, node: Any) -> None:
            on_lab = self.nodes.index(node) % 2 == 0
            wanted = (scope for scope in self.workqueue if needs_lab(scope) == on_lab)
            if (scope := next(wanted, None)) is not None:
                self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            if file.startswith("tests/simulation/"):
                return nodeid
            return next((what for name, what in TOGETHER.items() if file.startswith(name)), file)

    return ByFile(config, log)
