"""Several processes behind one command, on the real lab."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mirrortest.lab.free_ports import free_ports
from tests.lab.harness import read_topic, until, wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Lab
    from tests.lab.harness import Command, Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

RECORDS = 6000
LOAD = ("--num-records", str(RECORDS), "--throughput", "2000", "--message-size", "200")


def workers_of(command: Command) -> list[int]:
    """The pids of a command's workers."""
    return [int(pid) for pid in re.findall(r"worker started.* pid=(\d+)", command.stderr)]


def acked_of(stream: dict[str, Any]) -> tuple[Any, ...]:
    """A stream's id, and how many of its messages were acknowledged."""
    acked = stream["acked"]
    count = acked if isinstance(acked, int) else sum(hi - lo for lo, hi in acked)
    return tuple(stream[name] for name in ("producer", "incarnation", "lane")), count


def by_worker(port: int, metric: str) -> dict[str, float]:
    """Worker -> its value of a metric, from the command's endpoint; empty until it listens."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            page = answer.read().decode()
    except URLError:
        return {}
    return {
        sample.labels["worker"]: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == f"mirrortest_consumer_{metric}"
    }


def test_workers_judge_a_mirror_together(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """Two workers write, two judge; each command's one answer is complete, and the logs agree."""
    scene = make_scene("orders.shared")
    (topic,) = scene.topics
    lab.source.create_topic(topic, 4)
    consumer = scene.consume(
        "carl", "--workers", "2", "--expect-producers", "ann.1,ann.2", "--exactly-once"
    )
    sent = scene.produce("ann", "--workers", "2", *LOAD).answer()
    assert sent["whole"]["acked"] == RECORDS
    assert [worker["producer"] for worker in sent["workers"]] == ["ann.1", "ann.2"]
    assert [worker["records"] for worker in sent["workers"]] == [RECORDS / 2] * 2
    judged = consumer.answer()
    assert judged["counts"]["acked"] == judged["counts"]["delivered"] == RECORDS
    assert wrong(judged) == {}
    assert judged["messages_read"] == RECORDS
    copy = scene.copy_of(topic)
    assert [worker["partitions"] for worker in judged["workers"]] == [
        [f"{copy}-0", f"{copy}-2"],
        [f"{copy}-1", f"{copy}-3"],
    ]
    found = scene.reconcile().answer()
    assert found["counts"]["delivered"] == RECORDS


def test_members_of_a_group_that_are_told_to_end_know_all(
    lab: Lab, make_scene: Callable[..., Scene]
) -> None:
    """The first ends last: its verdict includes what the others read. One page shows both."""
    scene = make_scene("orders.group")
    lab.source.create_topic(scene.topics[0], 4)
    (port,) = free_ports(1)
    observer = scene.observe(
        "olga",
        *("--workers", "2", "--consumer-group", "pair", "--until", "forever"),
        *("--expect-producers", "ann", "--metrics-port", str(port)),
    )
    until(
        lambda: by_worker(port, "assigned_partitions") == {"1": 2, "2": 2},
        what="both hold their share",
    )
    scene.produce("ann", *LOAD).answer()
    until(
        lambda: sum(by_worker(port, "messages_total").values()) == RECORDS,
        what="all counted on the page",
    )
    read = by_worker(port, "messages_total")
    assert set(read) == {"1", "2"}
    assert all(read.values())
    until(
        lambda: f"{RECORDS:,} in the source of {RECORDS:,} ack" in observer.stderr,
        what="all seen",
    )
    observer.signal(signal.SIGTERM)
    answer = observer.answer()
    assert answer["counts"]["delivered"] == RECORDS
    assert answer["messages_read"] == RECORDS


def test_a_worker_that_is_killed_ends_the_command_and_is_made_good(
    lab: Lab, make_scene: Callable[..., Scene]
) -> None:
    """The error names it; the other worker drains; the same command again closes the open lanes."""
    scene = make_scene("orders.killed")
    (topic,) = scene.topics
    lab.source.create_topic(topic, 4)
    endless = ("--throughput", "2000", "--workers", "2")
    first = scene.produce("ann", *endless, label="first")
    until(
        lambda: {c.id[1] for c in read_topic(lab.source, topic) if c.id} == {"ann.1", "ann.2"},
        what="both send",
    )
    os.kill(workers_of(first)[0], signal.SIGKILL)
    failure = first.answer(code=1)
    assert failure["error"] == "worker 1 died: ended by SIGKILL"
    assert [worker["producer"] for worker in failure["workers"]] == ["ann.2"]
    again = scene.produce("ann", *LOAD, "--workers", "2", label="again").answer()
    observer = scene.observe("olga", "--workers", "2", "--expect-producers", "ann.1,ann.2")
    seen = observer.answer()
    assert seen["counts"]["lost"] == seen["counts"]["duplicated"] == 0
    found = {acked_of(stream) for stream in seen["streams"]}
    assert {
        acked_of(stream) for answer in (failure, again) for stream in answer["streams"]
    } <= found


def test_a_consumers_worker_that_is_killed_leaves_no_verdict(
    lab: Lab, make_scene: Callable[..., Scene]
) -> None:
    """Its share was not read: the command says so and exits with an error."""
    scene = make_scene("orders.dead")
    lab.source.create_topic(scene.topics[0], 4)
    observer = scene.observe("olga", "--workers", "2")
    until(lambda: " from 4 partitions" in observer.stderr, what="both read")
    os.kill(workers_of(observer)[1], signal.SIGKILL)
    assert observer.wait() == 1
    assert "worker 2 died: ended by SIGKILL" in observer.stderr
    assert observer.stdout == ""
