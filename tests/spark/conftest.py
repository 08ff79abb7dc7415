"""Reconciles all scenes once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from mirrortest.config.threshold import thresholds
from mirrortest.reconcile.job import reconcile
from mirrortest.reconcile.plan import plan
from tests.spark import scenes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def together(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> scenes.Result:
    """The result of all scenes, reconciled in the time zone of St. John's."""
    logs = tmp_path_factory.mktemp("together")
    scenes.together().write(logs)
    (look_up,) = scenes.look_ups or (None,)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", "America/St_Johns")
        time.tzset()
        limits = thresholds(["lost<90%", "lost<0.1%"])
        summary = reconcile(spark, plan([str(logs)], None), limits, look_up=look_up)
    time.tzset()
    return scenes.Result(logs, summary)
