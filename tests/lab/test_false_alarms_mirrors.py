"""What mirrors do by design, aborted transactions and a wrong alias cause no false loss."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer

from mirrortest.lab.mirrors import MirrorMaker1
from mirrortest.wire.lanes import partition_of
from tests.lab.harness import ids, judged_alike, read_topic, records, until, vouched, wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from mirrortest.lab import Lab
    from tests.lab.harness import Command, Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

LOAD = ("--throughput", "400", "--message-size", "200")


def test_a_mirror_that_re_hashes_by_design(
    lab: Lab, make_scene: Callable[..., Scene], tmp_path: Path
) -> None:
    """MirrorMaker 1 chooses partitions by key: right under `any` and `murmur2`.

    Under `source` each message in another partition is misrouted, and none is lost.
    """
    scene = make_scene("orders.eu")
    scene.alias = ""
    topic = scene.topics[0]
    lab.source.create_topic(topic, 3)
    lab.destination.create_topic(topic, 5)
    mirror = MirrorMaker1(
        tmp_path, source=lab.source, destination=lab.destination, include=topic.replace(".", "[.]")
    )
    mirror.start()
    try:
        direct = ("--ledger-bootstrap-server", lab.source.bootstrap_servers)
        consumers = {
            policy: scene.consume(
                policy,
                *("--expect-partition", policy, "--state-topic", f"{scene.state}.{policy}"),
                *("--log-dir", str(scene.folder / policy), *direct),
            )
            for policy in ("any", "murmur2", "source")
        }
        ann = scene.produce("ann", *LOAD, "--num-records", "1500")
        sent = vouched(ann.answer())
        answers = {
            policy: consumer.answer(code=99 if policy == "source" else 0)
            for policy, consumer in consumers.items()
        }
    finally:
        mirror.kill()
    copies = read_topic(lab.destination, topic)
    assert {copy.id for copy in copies} == sent
    for policy, answer in answers.items():
        assert answer["counts"]["delivered"] == len(sent)
        assert set(wrong(answer)) == ({"misrouted"} if policy == "source" else set())
    moved = {
        copy.id
        for copy in copies
        if copy.id and copy.partition != partition_of(b"%d" % copy.id[3], 3)
    }
    assert moved
    assert ids(answers["source"], "misrouted") == moved
    for policy, answer in answers.items():
        offline = scene.reconcile(str(scene.folder / policy), "--output", str(tmp_path / policy))
        judged_alike(offline.answer(code=99 if policy == "source" else 0), answer)


def _again(record: Any) -> dict[str, Any]:
    """The arguments that send a record again, into the same partition."""
    return {
        "value": record.value,
        "key": record.key,
        "partition": record.partition,
        "timestamp_ms": record.timestamp,
        "headers": record.headers,
    }


def _transactions(
    bootstrap: str, topic: str, each: Iterable[tuple[bool, list[dict[str, Any]]]]
) -> None:
    """Write transactions with aiokafka; each is whether to commit, and its records."""

    async def send() -> None:
        name = f"beside-{topic}"
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        async with producer:
            for commits, written in each:
                await producer.begin_transaction()
                for record in written:
                    await producer.send_and_wait(topic, **record)
                await (producer.commit_transaction() if commits else producer.abort_transaction())

    asyncio.run(send())


def test_transactions_leave_gaps_that_are_no_loss(
    lab: Lab, make_scene: Callable[..., Scene]
) -> None:
    """Transaction markers take offsets on both sides; read_committed skips aborted records.

    Copies of our own messages in aborted transactions are not duplicates there. Under
    read_uncommitted they can be read: exactly these are duplicates, and the run is inconclusive.
    """
    scene = make_scene("orders.eu")
    topic = scene.topics[0]
    copy = f"A.{topic}"
    scene.create(3)
    isolation = {
        level: scene.consume(
            level,
            *("--command-property", f"isolation.level={level}"),
            *("--state-topic", f"{scene.state}.{level}"),
            *("--log-dir", str(scene.folder / level), "--expect-producers", "ann,bob"),
        )
        for level in ("read_committed", "read_uncommitted")
    }
    ann = scene.produce("ann", *LOAD, "--num-records", "600")
    sent = vouched(ann.answer())
    until(lambda: scene.copied(topic) == len(sent), what="all is copied")
    stood = [_again(each) for each in records(lab.destination, copy) if not each.partition][:20]
    strange = [{"value": b"theirs", "partition": number} for number in range(3)]
    _transactions(
        lab.source.bootstrap_servers, topic, [(True, strange), (True, strange), (True, [])]
    )
    _transactions(
        lab.destination.bootstrap_servers,
        copy,
        [(True, strange), (False, strange), (False, stood)],
    )
    bob = scene.produce("bob", *LOAD, "--num-records", "600")
    sent |= vouched(bob.answer())
    codes = {"read_committed": 0, "read_uncommitted": 3}
    committed, uncommitted = (isolation[level].answer(code=codes[level]) for level in isolation)
    [doubt] = uncommitted["inconclusive"]
    assert doubt.startswith(f"{copy}: messages of this run were written in transactions")
    assert wrong(committed) == {"foreign": 9}
    assert committed["counts"]["delivered"] == len(sent)
    assert wrong(uncommitted) == {"foreign": 12, "duplicated": 20}
    assert uncommitted["counts"]["delivered"] == len(sent)
    assert sum(lab.destination.end_offsets(copy).values()) > len(sent) + 12 + 20  # the markers
    for level, answer in zip(isolation, (committed, uncommitted), strict=True):
        folder = scene.folder / level
        offline = scene.reconcile(str(folder), "--output", str(folder / "result"))
        judged_alike(offline.answer(code=codes[level]), answer)


def test_what_stands_only_in_an_aborted_transaction_was_not_delivered(
    lab: Lab, make_scene: Callable[..., Scene]
) -> None:
    """They are lost under --exactly-once; otherwise the run is inconclusive, never passed."""
    scene = make_scene("orders.eu")
    topic = scene.topics[0]
    scene.create(1)
    sent = vouched(scene.produce("ann", *LOAD, "--num-records", "300").answer())
    until(lambda: scene.copied(topic) == len(sent), what="all is copied")
    aborted = f"aborted.{topic}"
    lab.destination.create_topic(aborted, 1)
    stood = [_again(each) for each in records(lab.destination, scene.copy_of(topic))]
    _transactions(lab.destination.bootstrap_servers, aborted, [(False, stood)])

    def judged(name: str, *more: str) -> Command:
        return scene.consume(
            name,
            *("--topics", aborted, "--topic-map", f"{aborted}={topic}", "--deadline", "3s"),
            *("--expect-producers", "ann", "--state-topic", f"{scene.state}.{name}"),
            *("--log-dir", str(scene.folder / name)),
            *more,
            topics=False,
        )

    default, strict = judged("default"), judged("strict", "--exactly-once")
    both = judged(
        "both", "--exactly-once", "--command-property", "isolation.level=read_uncommitted"
    )
    assert both.wait() == 2
    answer = default.answer(code=3)
    assert answer["counts"]["lost"] == 0
    [doubt] = answer["inconclusive"]
    assert doubt.startswith(f"{aborted}: messages of this run were written in transactions")
    assert "--exactly-once" in doubt
    answer = strict.answer(code=99)
    assert answer["counts"]["lost"] == answer["counts"]["acked"] == len(sent)
    for name, code in (("default", 3), ("strict", 99)):
        folder = scene.folder / name
        offline = scene.reconcile(str(folder), "--output", str(folder / "result"))
        assert offline.answer(code=code)["online"]["disagreements"] == []


def test_the_mirrors_alias_is_found_and_a_wrong_name_is_told(
    lab: Lab, make_scene: Callable[..., Scene]
) -> None:
    """The likeliest first mistake, on real MirrorMaker 2: a faithful copy never fails by it.

    With `--source-alias ""` the messages prove the alias wrong, and the consumer ends with advice.
    Without the option it finds the alias, and continues with the same run and state.
    """
    scene = make_scene("orders.eu", "clicks.us")
    scene.create(3)
    ann = scene.produce("ann", "--throughput", "400", "--num-records", "600")
    sent = vouched(ann.answer())
    lab.mirror.wait_topic(scene.ledger)
    until(lambda: scene.copied(scene.topics[0]) > 0, what="messages come")
    pattern = f"A[.].*{scene.topics[0].rpartition('.')[2]}"
    expecting = ("--exactly-once", "--expect-producers", "ann")

    for name, wrongly in (("one", ()), ("two", ("--workers", "2"))):
        mistaken = scene.consume(name, "--source-alias", "", *wrongly, *expecting, aliased=False)
        assert mistaken.wait() == 2, mistaken.stderr
        [line] = [line for line in mistaken.stderr.splitlines() if "error:" in line]
        assert "were written to topic" in line
        assert "did you mean --source-alias A?" in mistaken.stderr.replace("\n", " ")

    consumers = (
        scene.consume("one", *expecting, aliased=False, label="corrected"),
        scene.consume(
            "three",
            *("--topic-pattern", pattern, "--state-topic", f"{scene.state}.pattern"),
            *expecting,
            topics=False,
            aliased=False,
        ),
    )
    for consumer in consumers:
        answer = consumer.answer()
        assert wrong(answer) == {}
        assert answer["counts"]["acked"] == answer["counts"]["delivered"] == len(sent)
        assert any(f"A.{scene.ledger} exists" in note for note in answer["notes"])
        assert "no --source-alias: topic" in consumer.stderr

    offline = scene.reconcile("--exactly-once").answer()
    assert offline["counts"]["corrupted"] == 0
    assert offline["counts"]["delivered"] == len(sent)
