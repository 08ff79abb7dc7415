"""Losses in source, mirror and consumer: exactly the known ids are attributed to each."""

from __future__ import annotations

import signal
import struct
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from mirrortest.reconcile.attribution import Attribution
from tests import documented
from tests.lab.harness import ids, read_topic, until, vouched, wrong

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirrortest.lab import Lab
    from tests.lab.harness import Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

LOAD = ("--throughput", "800", "--message-size", "200")
Id = tuple[str, str, int, int, int]


def cut(segment: Path, offset: int) -> int:
    """Truncate a segment file before the batch with an offset; returns that batch's base offset."""
    content = segment.read_bytes()
    at = 0
    while at < len(content):
        base, length = struct.unpack_from(">qi", content, at)
        (last,) = struct.unpack_from(">i", content, at + 23)
        if base + last >= offset:
            with segment.open("r+b") as file:
                file.truncate(at)
            return int(base)
        at += 12 + length
    raise AssertionError(f"{segment} ends before offset {offset}")


def attributed(scene: Scene) -> dict[str, set[Id]]:
    """The ids by verdict and attribution, from the table of undelivered messages."""
    table = pq.read_table(scene.logs / f"run={scene.run}" / "result" / "undelivered.parquet")
    found: dict[str, set[Id]] = {}
    for row in table.to_pylist():
        stream = (row["topic"], row["producer"], row["incarnation"], row["lane"])
        found.setdefault(f"{row['verdict']}: {row['attribution']}", set()).update(
            (*stream, seq) for seq in range(row["seq_lo"], row["seq_hi"])
        )
    return found


def test_each_loss_is_laid_at_its_door(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """Acknowledged messages are lost in three ways, one a partition, and a consumer ends early.

    The source's broker loses one partition's tail. The head of another is deleted before anyone but
    the producer has seen it; that of the third is deleted before the mirror copies it, but after an
    observer of the source has seen it. The rest is mirrored after the consumer has claimed it lost
    and ended. The observer reports what the source itself lost; its verdict does not concern the
    mirror.
    """
    scene = make_scene("orders.eu")
    (topic,) = scene.topics
    scene.create(3)
    ann = scene.produce("ann", *LOAD, "--num-records", "600")
    acked = vouched(ann.answer())
    until(lambda: acked <= {copy.id for copy in scene.copies()}, what="all of ann's are copied")
    lab.mirror.kill()
    bob = scene.produce("bob", *LOAD, "--num-records", "900")
    lost = vouched(bob.answer())
    direct = ("--ledger-bootstrap-server", lab.source.bootstrap_servers, "--deadline", "4s")
    carl = scene.consume("carl", *direct).answer(code=99)
    assert ids(carl, "lost") == lost

    stood = {(copy.partition, copy.offset): copy.id for copy in read_topic(lab.source, topic)}
    assert set(stood.values()) == acked | lost
    ends = lab.source.end_offsets(topic)
    (broker,) = lab.source.brokers
    broker.kill()
    forgotten = cut(broker.data / f"{topic}-0" / f"{0:020}.log", ends[0] - 40)
    broker.start()
    until(lambda: lab.source.end_offsets(topic).get(0) == forgotten, what="the tail is forgotten")
    before = {1: ends[1] - 200, 2: ends[2] - 150}
    lab.source.delete_records(topic, {1: before[1]})
    eve = scene.observe("eve", "--deadline", "4s").answer(code=99)
    lab.source.delete_records(topic, {2: before[2]})
    lab.mirror.start()
    lab.mirror.wait_ready()

    def where(partition: int, lo: int, hi: int) -> set[Id]:
        return {each for offset in range(lo, hi) if (each := stood[partition, offset])} & lost

    never = where(0, forgotten, ends[0])
    unseen = where(1, 0, before[1])
    left_out = where(2, 0, before[2])
    later = lost - never - unseen - left_out
    assert len(never) >= 40
    assert min(map(len, (unseen, left_out, later))) > 50
    until(lambda: later <= {copy.id for copy in scene.copies()}, what="the rest is copied")

    assert (eve["role"], ids(eve, "lost")) == ("source", never)
    assert ids(eve, "inconclusive") == {stood[1, offset] for offset in range(before[1])}
    assert eve["counts"]["misrouted"] == 0
    expected = {
        f"lost: {Attribution.NEVER_IN_SOURCE}": never,
        f"lost: {Attribution.ACKNOWLEDGED}": unseen,
        f"lost: {Attribution.NOT_MIRRORED}": left_out,
        f"lost: {Attribution.NOT_CONSUMED}": later,
    }
    wrong_side = scene.reconcile_alone("--bootstrap-server", lab.source.bootstrap_servers)
    (shown,) = documented.commands("reconcile", only="--bootstrap-server")
    places = {"dc2:9092": lab.destination.bootstrap_servers, "n20261127": scene.run}
    places |= {"logs-dc1": str(scene.logs), "logs-dc2": str(scene.folder / "logs-dc2")}
    (scene.folder / "logs-dc2").mkdir()  # both sides wrote to logs-dc1
    ended = scene.reconcile_as([*documented.adapted(shown.words[1:], places), "--json"])
    answer = ended.answer(code=99)
    assert attributed(scene) == expected
    assert {
        f"{a['verdict']}: {a['attribution']}": a["messages"] for a in answer["attribution"]
    } == {label: len(found) for label, found in expected.items()}
    assert answer["counts"]["lost"] == sum(m["counts"]["lost"] for m in answer["minutes"]) == 900
    assert answer["online"]["disagreements"] == []
    assert wrong_side.wait() == 2
    assert "name the destination" in wrong_side.stderr


def test_an_observers_state_that_is_mirrored_is_not_the_consumers(
    lab: Lab, make_scene: Callable[..., Scene]
) -> None:
    """MirrorMaker 2 copies the observer's state topic into the consumer's own state topic.

    A killed consumer continues from its own state, and does not mistake the observer's, which is
    further on, for it. A pattern that matches all copies judges none of mirrortest's own topics.
    """
    scene = make_scene("orders.eu")
    (topic,) = scene.topics
    scene.create(3)
    copied_states = f"A.{scene.state}"
    eve = scene.observe("eve", "--expect-producers", "ann,bob")
    ann = scene.produce("ann", *LOAD, "--num-records", "900")
    until(lambda: scene.copied(scene.state) > 6, what="the observer's states are copied")
    unique = topic.rsplit(".", 1)[1]
    everything = (
        *("--topic-pattern", rf"A[.].*{unique}", "--state-topic", copied_states),
        *("--expect-producers", "ann,bob"),
    )
    carl = scene.consume("carl", *everything, topics=False)
    until(lambda: "900 delivered" in carl.stderr, what="carl has seen all of ann's")
    until(lambda: carl.stderr.count("900 delivered") > 4, what="carl has saved its state")
    carl.signal(signal.SIGKILL)
    carl.wait()
    bob = scene.produce("bob", *LOAD, "--num-records", "600")
    sent = vouched(ann.answer()) | vouched(bob.answer())
    observed = eve.answer()
    again = scene.consume("carl", *everything, topics=False, label="carl-again").answer()
    for answer in (observed, again):
        assert wrong(answer) == {}
        assert answer["counts"]["acked"] == answer["counts"]["delivered"] == len(sent) == 1500
    assert (observed["role"], again["role"]) == ("source", "consumer")
    assert observed["partitions"] == [f"{topic}-{number}" for number in range(3)]
    assert again["partitions"] == [f"A.{topic}-{number}" for number in range(3)]
    assert again["messages_read"] < 1500
    offline = scene.reconcile("--exactly-once").answer()
    assert offline["counts"]["delivered"] == 1500
    assert offline["online"]["disagreements"] == []
    latencies = offline["latency_seconds"].get(topic, {"count": 0})["count"]
    assert (offline["attribution"], latencies + offline["backlog"].get(topic, 0)) == ([], 1500)
