"""Many random histories in one reconciliation, compared with two references.

One is the brute-force judge, message by message; the other a plain full outer join of messages.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from mirrortest.reconcile import missing, source
from mirrortest.seqlog.options import Detail
from mirrortest.verify.placement import ExpectPartition
from tests.oracle.offline import Job, differences
from tests.oracle.tape import LENGTH

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def job(count: int, policy: ExpectPartition, detail: Detail) -> Job:
    """`count` random histories with this policy and log detail."""
    seeds = (f"spark/{policy.value}/{number}" for number in range(count))
    return Job([random.Random(seed).randbytes(LENGTH) for seed in seeds], policy, detail)


@pytest.mark.timeout(1500)
def test_random_histories_are_judged_as_by_their_definitions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two thousand: online and offline match the reference by stream, finding and id.

    The disagreements between the two are exactly those that the reference expects. As with larger
    runs, executors write the tables, and lanes are judged in several parts.
    """
    monkeypatch.setattr(missing, "MOST_ROWS", 0)
    monkeypatch.setattr(source, "_SMALL", 0)
    different = differences(spark, tmp_path, [job(2000, ExpectPartition.SOURCE, Detail.INTERVALS)])
    assert not different, f"{len(different)} differ\n{next(iter(different.values()))}"
    parts = list(tmp_path.rglob("findings.parquet/part-*.parquet"))
    assert len(parts) > 1
    assert sum(pq.read_metadata(part).num_rows for part in parts) > 0


def test_what_is_little_is_judged_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Forty histories in one part, with a row for each message and policy `any`."""
    different = differences(spark, tmp_path, [job(40, ExpectPartition.ANY, Detail.MESSAGES)])
    assert not different, f"{len(different)} differ\n{next(iter(different.values()))}"
