"""Settings and fixtures of every test."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.scheduling import by_file, put_in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

# No example has a time limit: a busy machine must not fail a test. In CI, where the result gates a
# change, the examples are the same each time; a developer's runs go on searching.
settings.register_profile(
    "mirrortest",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("mirrortest")

# As the command sets it, before numpy is imported, for this process and its children.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """See `tests.scheduling`."""
    put_in_order(items)


def pytest_collection_finish() -> None:
    """Exclude what was imported and collected from all later garbage collections."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """See `tests.scheduling`."""
    return by_file(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session on two threads per process: its start takes most of a test's time."""
    from mirrortest.reconcile.spark_session import spark_session  # noqa: PLC0415  # few tests need it

    with spark_session("local[2]", "2g") as session:
        yield session


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Undo the logging of a command in a test: its stream ends with the test."""
    yield
    structlog.reset_defaults()
