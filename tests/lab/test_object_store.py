"""Logs and results on S3: a local store, read and written by pyarrow's own file system."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from mirrortest.config.threshold import thresholds
from mirrortest.reconcile.job import reconcile
from mirrortest.reconcile.plan import plan
from mirrortest.seqlog.location import Location
from tests.spark.spark_history import RUN, History, seen, stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.lab, pytest.mark.spark]

SECRET = "nobody-is-to-see-this"


@pytest.fixture
def bucket() -> Iterator[str]:
    """The URI of an empty bucket, with its keys."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        endpoint = "127.0.0.1:{1}".format(*server.get_host_and_port())
        store = fs.S3FileSystem(
            access_key="who", secret_key=SECRET, endpoint_override=endpoint, scheme="http",
            region="us-east-1", allow_bucket_creation=True,
        )  # fmt: skip
        store.create_dir("logs")
        yield f"s3://who:{SECRET}@logs/here?endpoint_override={quote(endpoint)}&scheme=http&region=us-east-1"
    finally:
        server.stop()


def test_logs_on_s3_are_judged_there(spark: SparkSession, tmp_path: Path, bucket: str) -> None:
    """Workers read the logs from the store, the result is written there, and no secret is shown.

    Hadoop's s3a: means the same as s3:.
    """
    history = History()
    history.sends(stream(), 100)
    history.consumers[0] += [seen(stream(), 0, 60, 0), seen(stream(), 61, 100, 60)]
    history.reads(99)
    history.write(tmp_path)
    place = Location.parse(bucket)
    fs.copy_files(str(tmp_path), place.path, destination_filesystem=place.filesystem)
    logs = plan([bucket.replace("s3://", "s3a://")], None)
    assert [each.session for each in plan([bucket], RUN).sessions] == [
        each.session for each in logs.sessions
    ]
    result = place.child("result")
    summary = reconcile(spark, logs, thresholds(()), result)
    assert (summary.verdict, summary.counts["lost"]) == ("failed", 1)
    assert SECRET not in summary.encode()
    found = pq.read_table(
        result.child("findings.parquet").path, filesystem=place.filesystem
    ).to_pylist()
    assert [(row["finding"], row["seq_lo"]) for row in found] == [("lost", 60)]
