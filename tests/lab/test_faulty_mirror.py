"""The faulty mirror on the real lab: faithful without acts, exact in those it is given.

It runs next to the session's MirrorMaker 2, under its own alias.
"""

from __future__ import annotations

import asyncio
import copy
import signal
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from mirrortest.config.client_config import ClientConfig
from mirrortest.faults.ground_truth import read_summary, read_truth
from mirrortest.kafka.admin import Admin
from mirrortest.lab import FaultyMirror, FaultyMirrorSettings, Lab
from mirrortest.model.findings import Finding
from mirrortest.verify.anomaly import Anomaly, effect_of
from mirrortest.wire.form import Form
from tests.lab.harness import ids, records, until, vouched, write, wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.lab.harness import Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

RECORDS = 3000


class Copied(NamedTuple):
    """Everything of a record that a mirror has to keep."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int
    timestamp_type: int


def read(cluster: Any, topic: str) -> list[Copied]:
    """All records of a topic, partition by partition, by offset."""
    return [
        Copied(
            record.partition,
            record.key,
            record.value,
            tuple(record.headers),
            record.timestamp,
            record.timestamp_type,
        )
        for record in records(cluster, topic)
    ]


@pytest.fixture
def make_faulty_mirror(lab: Lab, tmp_path: Path) -> Iterator[Callable[..., FaultyMirror]]:
    """Starts a scene's faulty mirror: it copies the scene's topics and ledger to `ALIAS.`."""
    made: list[FaultyMirror] = []

    def make(scene: Scene, spec: str = "", *topics: str) -> FaultyMirror:
        source = copy.copy(lab.source)
        source.alias = scene.alias
        folder = tmp_path / uuid.uuid4().hex[:8]
        folder.mkdir()
        file = folder / "spec.toml"
        file.write_text(spec)
        names = [name.replace(".", "[.]") for name in (*scene.topics, *topics, scene.ledger)]
        faulty_mirror = FaultyMirror(
            folder,
            source=source,
            destination=lab.destination,
            settings=FaultyMirrorSettings(
                spec=file if spec else None, topics=",".join(names), ledger_topic=scene.ledger
            ),
        )
        made.append(faulty_mirror)
        faulty_mirror.start()
        faulty_mirror.wait_ready()
        return faulty_mirror

    yield make
    for faulty_mirror in made:
        faulty_mirror.kill()


def cleanup_policy(cluster: Any, topic: str) -> frozenset[str]:
    async def ask() -> frozenset[str]:
        servers = tuple(cluster.bootstrap_servers.split(","))
        async with Admin(ClientConfig(bootstrap_servers=servers)) as admin:
            return await admin.cleanup_policy(topic)

    return asyncio.run(ask())


def test_without_acts_it_is_a_faithful_mirror(
    lab: Lab,
    make_aliased_scene: Callable[..., Scene],
    make_faulty_mirror: Callable[..., FaultyMirror],
) -> None:
    """Copies equal their records, in growing topics and the ledger, too; it is judged clean."""
    scene = make_aliased_scene("orders.eu", "odd")
    orders, odd = scene.topics
    lab.source.create_topic(orders, 3)
    lab.source.create_topic(odd, 2)
    servers = lab.source.bootstrap_servers
    strange = [
        {"partition": 0, "value": b""},
        {"partition": 0, "key": b"", "timestamp_ms": int(time.time() * 1000) - 3_600_123},
        {"partition": 1, "value": b"\xff\x00" * 40, "headers": [("a", b"1"), ("a", b"2")]},
        {"partition": 1, "key": b"k", "headers": [("z", None), ("", b""), ("a", b"\xff")]},
        {"partition": 1, "key": b"big", "value": b"x" * 700_000},
    ]
    write(servers, odd, strange)
    faulty_mirror = make_faulty_mirror(scene)
    load = ("--num-records", str(RECORDS), "--throughput", "1500", "--message-size", "300")
    producers = [scene.produce("ann", *load), scene.produce("bob", *load, "--form", "headers")]
    judge = scene.consume("carl", "--expect-producers", "ann,bob", "--exactly-once")
    lab.source.add_partitions(odd, 4)
    write(servers, odd, [{"partition": 3, "value": b"later"}, *strange])
    for producer in producers:
        producer.answer()
    answer = judge.answer()
    assert answer["counts"]["delivered"] == 2 * 2 * RECORDS
    assert set(wrong(answer)) <= {"foreign"}
    topics = (*scene.topics, scene.ledger)
    for topic in topics:
        until(
            lambda topic=topic: scene.copied(topic) == scene.written(topic),
            what=f"the copy of {topic}",
        )
    faulty_mirror.terminate()
    for topic in topics:
        copied = read(lab.destination, f"S.{topic}")
        assert len(copied) == scene.written(topic)
        assert copied == read(lab.source, topic)
    assert lab.destination.partitions(f"S.{odd}") == 4
    assert cleanup_policy(lab.destination, f"S.{scene.ledger}") == {"compact"}
    summary = read_summary(faulty_mirror.truth)
    assert summary.clean
    assert read_truth(faulty_mirror.truth).num_rows == 0
    for topic in topics:
        count = sum(found.read for found in summary.read[topic].values())
        assert count == sum(summary.written[f"S.{topic}"].values()) == scene.written(topic)


KINDS = [kind for kind in Anomaly if kind not in {
    Anomaly.DROP_TAIL, Anomaly.DROP_PRODUCER, Anomaly.DROP_PARTITION, Anomaly.MERGE_PARTITIONS,
    Anomaly.MERGE_TOPICS, Anomaly.STRIP_HEADER, Anomaly.RENAME_HEADER,
}]  # fmt: skip


def expected(rows: list[dict[str, Any]]) -> dict[str, set[tuple[Any, ...]]]:
    """The ids of each finding that the ground truth predicts, by the table of anomalies."""
    effects: dict[tuple[Any, ...], Finding] = {}
    for row in rows:
        kind = Anomaly(row["kind"])
        effect = effect_of(kind, Form(row["form"]), row["part"] or "").message
        if kind in {Anomaly.SWAP, Anomaly.HOLD, Anomaly.DELAY}:
            effect = Finding.REORDERED if row["overtaken"] else Finding(0)
        message = tuple(row[name] for name in ("topic", "producer", "incarnation", "lane", "seq"))
        effects[message] = effects.get(message, Finding(0)) | effect
    return {
        finding.label: {
            message
            for message, found in effects.items()
            if (Finding.LOST if Finding.LOST & found else found) & finding
        }
        for finding in (
            *(Finding.LOST, Finding.DUPLICATED, Finding.REORDERED, Finding.MISROUTED),
            *(Finding.ALTERED_KEY, Finding.ALTERED_HEADERS, Finding.ALTERED_TIMESTAMP),
            Finding.CORRUPTED,
        )
    }


def test_acts_land_as_told(
    lab: Lab,
    make_aliased_scene: Callable[..., Scene],
    make_faulty_mirror: Callable[..., FaultyMirror],
) -> None:
    """With most kinds of acts, the consumer finds exactly the ids that the truth predicts.

    Acts change single messages, whole lanes, partitions and topics, in both forms. Header acts have
    a test of their own.
    """
    scene = make_aliased_scene("orders", "clicks", "gone", "merged", "other")
    orders, clicks, dropped, merged, other = scene.topics
    for topic in scene.topics:
        lab.source.create_topic(topic, 3)
    spec = f"seed = 21\nlane_messages = {RECORDS // 3}\n" + "".join(
        f'[[acts]]\nkind = "{kind}"\nrate = 0.004\ntopic = "{orders}|{clicks}"\n'
        + ("length = 7\n" if kind in {Anomaly.REPLAY, Anomaly.DROP_RUN} else "")
        + ("seconds = 2\n" if kind is Anomaly.DELAY else "")
        for kind in KINDS
    )
    spec += f"""
[[acts]]
kind = "drop-partition"
topic = "{dropped}"
partition = 1
[[acts]]
kind = "drop-tail"
topic = "{dropped}"
partition = 0
window = {{ share = [0.75] }}
[[acts]]
kind = "drop-producer"
topic = "{dropped}"
partition = 2
producer = "bob"
[[acts]]
kind = "merge-partitions"
topic = "{merged}"
partition = 2
to_partition = 0
[[acts]]
kind = "merge-topics"
topic = "{other}"
to_topic = "{merged}"
partition = 1
"""
    faulty_mirror = make_faulty_mirror(scene, spec)
    load = ("--num-records", str(RECORDS), "--throughput", "2000", "--message-size", "150")
    producers = [scene.produce("ann", *load), scene.produce("bob", *load, "--form", "headers")]
    judge = scene.consume("carl", "--deadline", "15s", "--expect-producers", "ann,bob")
    for producer in producers:
        producer.answer()
    answer = judge.answer(code=99)
    faulty_mirror.terminate()
    rows = read_truth(faulty_mirror.truth).to_pylist()
    assert {row["kind"] for row in rows} == set(Anomaly) - {"strip-header", "rename-header"}
    assert {row["form"] for row in rows} == set(Form)
    wanted = expected(rows)
    assert all(wanted.values())
    for label, messages in wanted.items():
        assert ids(answer, label) == messages, label
    done = Counter(row["kind"] for row in rows)
    assert answer["counts"]["other_run"] == done["other-run"]
    records = sum(
        bool(effect_of(Anomaly(row["kind"]), Form(row["form"]), row["part"] or "").record)
        for row in rows
    )
    assert answer["counts"]["corrupted"] + answer["counts"]["other_run"] == (
        len(wanted["corrupted"]) + records
    )
    ends = {topic: lab.destination.end_offsets(f"S.{topic}") for topic in scene.topics}
    for row in rows:
        if row["destination_offset"] is None:
            assert row["kind"].startswith("drop")
        else:
            place = ends[row["destination_topic"].removeprefix("S.")]
            assert 0 <= row["destination_offset"] < place[row["destination_partition"]]


def test_payloads_of_the_users_are_proven_by_their_digests(
    lab: Lab,
    make_aliased_scene: Callable[..., Scene],
    make_faulty_mirror: Callable[..., FaultyMirror],
) -> None:
    """A faithful mirror passes; of the faulty mirror exactly the altered payloads are corrupted."""
    scene = make_aliased_scene("orders")
    (topic,) = scene.topics
    lab.source.create_topic(topic, 3)
    payloads = [b'{"order": %d, "note": "%s"}' % (n, b"x" * (n * 7 % 900)) for n in range(200)]
    (scene.folder / "orders.jsonl").write_bytes(b"\n".join(payloads))
    spec = "seed = 3\n" + "".join(
        f'[[acts]]\nkind = "{kind}"\nrate = 0.02\ntopic = "{topic}"\n'
        for kind in ("change-payload", "truncate", "extend")
    )
    faulty_mirror = make_faulty_mirror(scene, spec)
    producer = scene.produce(
        "ann",
        *("--num-records", str(RECORDS), "--throughput", "2000", "--workers", "2"),
        *("--form", "headers", "--payload-file", "orders.jsonl", "--compression", "zstd"),
    )
    judges = [
        scene.consume("carl", "--deadline", "15s", "--expect-producers", "ann.1,ann.2"),
        scene.consume(
            "dora",
            *("--topics", f"A.{topic}", "--source-alias", "A", "--deadline", "60s"),
            *("--expect-producers", "ann.1,ann.2", "--exactly-once"),
            topics=False,
            aliased=False,
        ),
    ]
    sent = producer.answer()
    assert sent["whole"]["acked"] == RECORDS
    assert sent["settings"]["payload file"].endswith("orders.jsonl")
    assert "200 payloads of" in producer.stderr
    values = Counter(record.value for record in records(lab.source, topic))
    assert values.keys() == set(payloads)
    assert values.total() == RECORDS

    faulty = judges[0].answer(code=99)
    faulty_mirror.terminate()
    rows = read_truth(faulty_mirror.truth).to_pylist()
    wanted = expected(rows)
    assert len(wanted["corrupted"]) > RECORDS // 50
    assert ids(faulty, "corrupted") == wanted["corrupted"]
    assert wrong(faulty) == {"corrupted": len(wanted["corrupted"])}

    passed = judges[1].answer()
    assert wrong(passed) == {}
    assert passed["verdict"] == "passed"
    assert passed["counts"]["delivered"] == RECORDS


@pytest.mark.parametrize("form", Form)
def test_headers_are_stripped_and_renamed(
    lab: Lab,
    make_aliased_scene: Callable[..., Scene],
    make_faulty_mirror: Callable[..., FaultyMirror],
    form: Form,
) -> None:
    """In header form the message is foreign and lost; in body form the acts change nothing."""
    scene = make_aliased_scene("orders")
    lab.source.create_topic(scene.topics[0], 2)
    spec = "".join(
        f'[[acts]]\nkind = "{kind}"\nwindow = {{ seq = [{lo}, {lo + 5}] }}\n'
        for kind, lo in (("strip-header", 3), ("rename-header", 20))
    )
    faulty_mirror = make_faulty_mirror(scene, spec)
    scene.produce("ann", "--num-records", "200", "--form", form).answer()
    until(lambda: scene.copied(scene.topics[0]) == 200, what="all is copied")
    judge = scene.consume("carl", "--deadline", "5s")
    answer = judge.answer(code=99 if form is Form.HEADERS else 0)
    faulty_mirror.terminate()
    lost = expected(read_truth(faulty_mirror.truth).to_pylist())["lost"]
    assert len(lost) == (20 if form is Form.HEADERS else 0)
    assert ids(answer, "lost") == lost
    assert answer["counts"]["foreign"] == len(lost)


def test_neither_an_end_nor_a_kill_loses_or_doubles(
    lab: Lab,
    make_aliased_scene: Callable[..., Scene],
    make_faulty_mirror: Callable[..., FaultyMirror],
) -> None:
    """Terminated, killed or frozen, it copies each message as often as the truth says."""
    scene = make_aliased_scene("orders")
    (topic,) = scene.topics
    lab.source.create_topic(topic, 4)
    spec = "seed = 4\n" + "".join(
        f'[[acts]]\nkind = "{kind}"\nrate = 0.01\n'
        for kind in ("drop", "hold", "duplicate-later", "reroute", "replay", "change-payload")
    )
    faulty_mirror = make_faulty_mirror(scene, spec)
    producer = scene.produce("ann", "--throughput", "2000", "--message-size", "120")
    judge = scene.consume("carl", "--deadline", "20s")
    hurt = [
        faulty_mirror.kill,
        faulty_mirror.terminate,
        faulty_mirror.kill,
        faulty_mirror.stop,
        faulty_mirror.kill,
    ]
    for fault in hurt:
        stood = scene.copied(topic)
        until(lambda: scene.copied(topic) > stood + 2000, what="it copies")  # noqa: B023
        fault()
        if fault == faulty_mirror.stop:
            there = scene.written(topic)
            until(lambda: scene.written(topic) > there + 500, what="ann goes on")  # noqa: B023
            faulty_mirror.cont()
            continue
        faulty_mirror.start()
        faulty_mirror.wait_ready()
    producer.signal(signal.SIGTERM)
    sent = vouched(producer.answer())
    answer = judge.answer(code=99)
    faulty_mirror.terminate()
    rows = read_truth(faulty_mirror.truth).to_pylist()
    wanted = expected(rows)
    for label in ("lost", "duplicated", "reordered", "misrouted", "corrupted"):
        assert wanted[label]
        assert ids(answer, label) == wanted[label], label
    surplus = sum(row["kind"] in {"duplicate-later", "replay"} for row in rows)
    dropped = sum(row["kind"] == "drop" for row in rows)
    assert scene.copied(topic) == len(sent) + surplus - dropped
    places = [
        (row["act"], row["destination_partition"], row["destination_offset"])
        for row in rows
        if row["destination_offset"] is not None
    ]
    assert len(set(places)) == len(places)
