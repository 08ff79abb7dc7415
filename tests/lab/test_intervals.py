"""The interval records of both sides, compared with their logs on a real Kafka."""

from __future__ import annotations

import csv
import json
import signal
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

import pyarrow.compute as pc
import pytest

from mirrortest.lab.free_ports import free_ports
from mirrortest.seqlog.files import find_sessions
from mirrortest.seqlog.interval_log import read_intervals
from mirrortest.seqlog.options import Role
from tests.lab.harness import until
from tests.log_rows import read_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.seqlog.damage import Damage
    from mirrortest.seqlog.files import SessionFiles
    from tests.lab.harness import Scene

pytestmark = pytest.mark.lab

RECORDS, SIZE = 6_000, 300


def rows_of(found: SessionFiles) -> list[dict[str, Any]]:
    """A session's intervals; asserts that they are undamaged and leave no gap."""
    damage: list[Damage] = []
    rows: list[dict[str, Any]] = read_intervals(found, damage).to_pylist()
    assert damage == []
    assert [row["started_ns"] for row in rows[1:]] == [row["ended_ns"] for row in rows[:-1]]
    return rows


def total(rows: list[dict[str, Any]], name: str) -> int:
    return sum(row[name] for row in rows)


def measured(rows: list[dict[str, Any]]) -> int:
    """The number of latencies in the rows."""
    return sum(sum(row["latency_count"]) + row["negative"] for row in rows)


def test_the_sums_of_both_sides_are_their_logs(make_scene: Callable[..., Scene]) -> None:
    """Exactly: nothing is counted twice or left out, and the last partial interval is included."""
    scene = make_scene("orders.load")
    scene.create(2)
    copy = scene.folder / "load.csv"
    interval = ("--reporting-interval", "1s")
    judging = scene.consume("c1", *interval)
    producing = scene.produce(
        "p1", *interval, "--num-records", str(RECORDS), "--throughput", "1500",
        "--message-size", str(SIZE), "--csv", str(copy),
    )  # fmt: skip
    assert producing.answer()["whole"]["acked"] == RECORDS
    assert judging.answer()["messages_read"] == RECORDS
    sessions = {found.session.role: found for found in find_sessions(scene.logs)}

    sent = rows_of(sessions[Role.PRODUCER])
    assert len(sent) >= 4
    for name in ("asked", "sent", "acked", "batch_messages"):
        assert total(sent, name) == RECORDS
    assert total(sent, "failed") == total(sent, "unknown") == 0
    assert total(sent, "value_bytes") == RECORDS * SIZE
    assert measured(sent) == RECORDS
    assert 0 < total(sent, "batches") <= RECORDS
    log = read_all(sessions[Role.PRODUCER], [])
    logged = log.filter(pc.equal(log["kind"], "sent"))
    assert pc.sum(pc.subtract(logged["seq_hi"], logged["seq_lo"])).as_py() == RECORDS
    assert sent[-1]["in_flight"] == sent[-1]["debt_messages"] == 0

    arrived = rows_of(sessions[Role.CONSUMER])
    log = read_all(sessions[Role.CONSUMER], [])
    seen = log.filter(pc.equal(log["kind"], "seen"))
    assert total(arrived, "arrived") == RECORDS
    assert pc.sum(pc.subtract(seen["offset_hi"], seen["offset_lo"])).as_py() == RECORDS
    logged_latencies = sum(map(sum, filter(None, seen["latency_count"].to_pylist())))
    logged_latencies += pc.sum(seen["negative"]).as_py() or 0
    assert measured(arrived) == logged_latencies == RECORDS - total(arrived, "backlog")
    assert total(arrived, "value_bytes") == RECORDS * SIZE
    assert arrived[-1]["lag"] == 0

    lines = list(csv.DictReader(copy.read_text().splitlines()))
    assert [int(line["acked"]) for line in lines] == [row["acked"] for row in sent]


def test_the_csv_of_workers_has_the_rows_of_all(make_scene: Callable[..., Scene]) -> None:
    """One file, one header; each line names its worker, and none is torn or missing."""
    scene = make_scene("orders.together")
    scene.create(4)
    copy = scene.folder / "together.csv"
    sent = scene.produce(
        "p", "--workers", "2", "--reporting-interval", "500ms", "--csv", str(copy),
        "--num-records", str(RECORDS), "--throughput", "3000",
    ).answer()  # fmt: skip
    assert sent["whole"]["acked"] == RECORDS
    text = copy.read_text()
    lines = list(csv.DictReader(text.splitlines()))
    assert text.count("latency_avg_ms") == 1
    recorded = {
        found.session.name: [row["acked"] for row in rows_of(found)]
        for found in find_sessions(scene.logs)
    }
    assert set(recorded) == {"p.1", "p.2"}
    assert {
        name: [int(line["acked"]) for line in lines if line["name"] == name] for name in recorded
    } == recorded
    assert len(lines) == sum(map(len, recorded.values()))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_metrics_port_has_the_status(make_scene: Callable[..., Scene], workers: str) -> None:
    """/status has the fields of --status-file, from a metrics child process and two workers."""
    scene = make_scene("orders.status")
    (topic,) = scene.topics
    scene.lab.source.create_topic(topic, 4)
    (port,) = free_ports(1)
    file = scene.folder / "status.json"
    producing = scene.produce(
        "p", "--workers", workers, "--metrics-port", str(port), "--status-file", str(file),
        "--throughput", "1000",
    )  # fmt: skip

    def status() -> dict[str, Any]:
        try:
            with urlopen(f"http://127.0.0.1:{port}/status") as answer:
                found: dict[str, Any] = json.load(answer)
        except URLError:
            return {}
        return found

    until(lambda: status().get("acked", 0) > 2000, what="the status counts")
    served, written = status(), json.loads(file.read_text())
    assert set(served) == set(written)
    assert (served["kind"], served["name"]) == ("produce_status", "p")
    assert served["asked_per_second"] == written["asked_per_second"] == 1000
    producing.signal(signal.SIGTERM)
    assert producing.answer()["whole"]["failed"] == 0


def test_from_latest_leaves_out_what_was_there(make_scene: Callable[..., Scene]) -> None:
    """Earlier messages are neither read nor lost; all later ones are judged."""
    scene = make_scene("orders.latest")
    (topic,) = scene.topics
    scene.lab.source.create_topic(topic, 2)
    load = ("--num-records", "1000", "--throughput", "2000")
    scene.produce("early", *load).answer()
    observing = scene.observe("o", "--from-latest", "--until", "forever")
    until(observing.reads(2, 2), what="it reads both partitions")
    scene.produce("late", *load).answer()
    until(lambda: "read: 1,000 from 2 partitions" in observing.stderr, what="all of it was read")
    observing.signal(signal.SIGTERM)
    judged = observing.answer(code=None)
    assert judged["messages_read"] == 1000
    assert judged["counts"]["delivered"] == 1000
    assert judged["counts"]["lost"] == 0
    assert judged["verdict"] != "failed"


def test_after_kill_9_the_intervals_are_what_the_log_has(make_scene: Callable[..., Scene]) -> None:
    """Whole rows are left; up to each row's end they count just the messages that the log has."""
    scene = make_scene("orders.killed")
    scene.create(2)
    producing = scene.produce(
        "p1", "--reporting-interval", "500ms", "--throughput", "2000", "--log-detail", "messages"
    )

    def intervals() -> int:
        return sum(read_intervals(found, []).num_rows for found in find_sessions(scene.logs))

    until(lambda: intervals() >= 4, what="the producer records intervals")
    producing.process.kill()
    producing.process.wait()
    (found,) = find_sessions(scene.logs)
    assert found.session.ended_ns is None
    rows = rows_of(found)
    assert len(rows) >= 4
    log = read_all(found, [])
    acked = log.filter(pc.and_(pc.equal(log["kind"], "sent"), pc.equal(log["outcome"], 1)))
    so_far = 0
    for row in rows:
        so_far += row["acked"]
        assert pc.sum(pc.less_equal(acked["arrived_last"], row["ended_ns"])).as_py() == so_far
