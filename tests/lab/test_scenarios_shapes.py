"""A varying load through a mirror: it is sent as its shape says, and judged like any other."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from mirrortest.config.shape import RATE_FORMS, Steps, Uniform, parse_shape
from mirrortest.produce.message_sizes import MessageSizes
from mirrortest.produce.options import Share
from mirrortest.seqlog.files import find_sessions
from mirrortest.seqlog.options import Role
from mirrortest.timing.shaped_rate import ShapedRate
from mirrortest.wire.lanes import lane_numbers
from tests.lab.harness import Command, records, wrong
from tests.log_rows import read_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Lab
    from tests.lab.harness import Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SIZES = "uniform(200, 800)"
SHAPE = "steps(200 for 2s, 0 for 2s, 1000 for 2s)"
RECORDS = 2400
SECOND = 1_000_000_000


class Shaped(NamedTuple):
    """A run of two workers that start at a given time: their answer, and the consumer."""

    scene: Scene
    start: np.datetime64
    consumer: Command
    sent: dict[str, Any]


def run_shaped(make_scene: Callable[..., Scene], seconds: int) -> Shaped:
    """A run whose load starts in this many seconds, once the producer has ended."""
    scene = make_scene("orders.shaped")
    scene.create(3)
    start = np.datetime64(time.time_ns() + seconds * SECOND, "ns").astype("datetime64[us]")
    consumer = scene.consume("carl", "--expect-producers", "ann.1,ann.2", "--exactly-once")
    producer = scene.produce(
        "ann",
        *("--workers", "2", "--throughput", SHAPE, "--batch-messages", "gaussian(8, 2)"),
        *("--seed", "7", "--start-at", f"{start}Z", "--log-detail", "messages"),
        *("--warmup-records", "401", "--message-size", SIZES),
    )
    return Shaped(scene, start, consumer, producer.answer())


def test_two_workers_send_one_shape(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """Logged times and sizes follow the shape, message by message, and the mirror passes."""
    shaped = run_shaped(make_scene, 10)
    if any(" after --start-at" in note for note in shaped.sent["notes"]):
        # The machine is busy, and the workers were not ready in time. Give them longer.
        shaped.scene.close()
        shaped = run_shaped(make_scene, 90)
    scene, start, consumer, sent = shaped
    assert sent["whole"]["acked"] == RECORDS
    assert sent["steady_state"]["acked"] == RECORDS - 401
    assert [worker["records"] for worker in sent["workers"]] == [RECORDS / 2] * 2
    assert sent["notes"] == []

    shape = parse_shape(SHAPE, RATE_FORMS, option="--throughput")
    assert isinstance(shape, Steps)
    schedule = ShapedRate(shape, seed=7, topic=scene.topics[0]).times(0, RECORDS, 1)
    times = []
    for session in find_sessions(scene.logs, scene.run):
        if session.session.role is Role.PRODUCER:
            assert session.session.settings["throughput"] == SHAPE
            assert session.session.settings["seed"] == "7"
            rows = read_all(session, []).to_pylist()
            times += [row["intended_first"] for row in rows if row["kind"] == "sent"]
    logged = np.sort(np.array(times, np.int64)) - start.astype(np.int64) * 1000
    # Each of the two processes measured the wall clock's offset from the monotonic one itself.
    assert np.abs(logged - schedule).max() < SECOND // 100

    sizes = MessageSizes(Uniform(200, 800, 1), seed=7, topic=scene.topics[0])
    expected = sizes.of(np.arange(RECORDS, dtype=np.int64))
    sent_mib = sent["whole"]["mib_per_second"] * sent["whole"]["seconds"]
    assert sent_mib == pytest.approx(expected.sum() / 2**20, rel=1e-4)
    written = {}
    for record in records(lab.source, scene.topics[0]):
        worker = int(record.value.split(b"@")[0].removeprefix(b"ann.")) - 1
        lane = lane_numbers(3).index(int(record.key))
        index, lanes = Share(worker, 2).lane(lane, 3)
        written[index + lanes * int(record.value.split(b";")[1])] = len(record.value)
    assert [written[index] for index in range(RECORDS)] == expected.tolist()

    judged = consumer.answer()
    assert judged["counts"]["acked"] == judged["counts"]["delivered"] == RECORDS
    assert wrong(judged) == {}
    assert judged["verdict"] == "passed"
    assert scene.reconcile().answer()["counts"]["delivered"] == RECORDS


def test_a_run_on_one_partition_is_repeated_from_its_summary(
    lab: Lab, make_scene: Callable[..., Scene]
) -> None:
    """A summary's workload gives the same load again, and only the chosen partition is written."""
    scene = make_scene("orders.repeated")
    scene.create(3)
    consumer = scene.consume("carl", "--expect-producers", "ann,bob", "--exactly-once")
    first = scene.produce(
        "ann",
        *("--num-records", "300", "--throughput", "gaussian(200, 20)", "--seed", "7"),
        *("--message-size", SIZES, "--only-partition", "2", "--acks", "1"),
        *("--command-property", "batch.size=2000"),
    ).answer()
    file = scene.folder / "workload.json"
    file.write_text(json.dumps(first["workload"]))
    second = scene.produce("bob", "--workload", str(file)).answer()
    assert second["workload"] == first["workload"]
    assert second["settings"] == first["settings"]
    assert second["whole"]["acked"] == first["whole"]["acked"] == 300

    sizes: dict[bytes, list[int]] = {}
    for record in records(lab.source, scene.topics[0]):
        sizes.setdefault(record.value[:3], []).append(len(record.value))
    assert sizes[b"ann"] == sizes[b"bob"]
    judged = consumer.answer()
    assert judged["counts"]["delivered"] == 600
    assert {copy.partition for copy in scene.copies()} == {2}
    assert wrong(judged) == {}
    assert judged["verdict"] == "passed"
    assert scene.reconcile().answer()["counts"]["delivered"] == 600


def test_a_specification_of_trogdor_is_imported_and_run(
    lab: Lab, make_scene: Callable[..., Scene]
) -> None:
    """A round trip: its topics are created, its messages sent, and judged after the mirror."""
    scene = make_scene("round.trip0", "round.trip1")
    spec, file = scene.folder / "spec.json", scene.folder / "workload.toml"
    spec.write_text(
        json.dumps(
            {
                "class": "org.apache.kafka.trogdor.workload.RoundTripWorkloadSpec",
                "durationMs": 60_000,
                "bootstrapServers": lab.source.bootstrap_servers,
                "targetMessagesPerSec": 200,
                "maxMessages": 600,
                "activeTopics": {
                    topic: {"numPartitions": 2, "replicationFactor": 1} for topic in scene.topics
                },
            }
        )
    )
    with Command(
        ["import", "trogdor", str(spec), "--output", str(file)], scene.folder, "import"
    ) as imported:
        assert imported.wait() == 0
    assert "the messages are read and judged by mirrortest consume" in imported.stderr
    with Command(
        [
            *("produce", "--bootstrap-server", lab.source.bootstrap_servers, "--json"),
            *("--workload", str(file), "--run", scene.run, "--id", "ann"),
            *("--ledger-topic", scene.ledger, "--log-dir", str(scene.logs)),
        ],
        scene.folder,
        "produce-ann",
    ) as produced:
        sent = produced.answer()
    assert {topic: found["whole"]["acked"] for topic, found in sent["topics"].items()} == (
        dict.fromkeys(scene.topics, 300)
    )
    assert sent["workload"]["throughput"] == 100
    for topic in scene.topics:
        assert lab.source.partitions(topic) == 2
        lab.mirror.wait_topic(topic)
    judged = scene.consume("carl", "--expect-producers", "ann", "--exactly-once").answer()
    assert judged["counts"]["delivered"] == 600
    assert wrong(judged) == {}
    assert judged["verdict"] == "passed"
