"""The archive of Kafka's classes: written once, and every broker starts with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrortest.lab import archive
from mirrortest.lab.cluster import Cluster
from mirrortest.lab.process.runtime import Jvm

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def test_a_broker_starts_with_what_java_kept(tmp_path: Path) -> None:
    """A running broker has mapped the archive, so Java accepted it; it is not written again."""
    made = archive.write_archive()
    before = made.stat().st_mtime_ns
    cluster = Cluster("R", Jvm.find(), tmp_path)
    (broker,) = cluster.brokers
    try:
        cluster.start()
        assert str(made) in Path(f"/proc/{broker.pid}/maps").read_text()
    finally:
        broker.kill()
    assert archive.write_archive() == made
    assert made.stat().st_mtime_ns == before
