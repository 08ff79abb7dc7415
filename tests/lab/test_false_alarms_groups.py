"""Events around a mirror that are not its fault: restarts, rebalances, other runs."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.lab.harness import count, judged_alike, until, vouched, wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Lab
    from tests.lab.harness import Command, Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

LOAD = ("--throughput", "300", "--message-size", "200")
ASSIGNORS = ("range", "roundrobin", "sticky")


def _group(assignor: str) -> tuple[str, ...]:
    return (
        *("--consumer-group", assignor),
        *("--command-property", f"partition.assignment.strategy={assignor}"),
        *("--command-property", "heartbeat.interval.ms=500"),
    )


def test_members_come_and_go_while_two_runs_share_a_topic(
    lab: Lab, make_scene: Callable[..., Scene]
) -> None:
    """Consumers restart and rebalance under each assignor, a producer restarts, two runs go on.

    No consumer, not even one that starts late, finds anything but the other run's messages. The
    restarted producer is a new incarnation.
    """
    scene = make_scene("orders.eu", "clicks.us")
    another = make_scene("beside", ledger=scene.ledger)
    another.topics = scene.topics
    scene.create(3)
    # Our run does not end before zoe ends, however long the others take.
    expected = ("--expect-producers", "ann,zoe")

    def start(assignor: str, name: str) -> Command:
        return scene.consume(
            f"{assignor}-{name}",
            *_group(assignor),
            *expected,
            label=f"{assignor}-{name}-{len(scene.commands)}",
        )

    first = {assignor: start(assignor, "one") for assignor in ASSIGNORS}
    other = another.produce("bob", *LOAD)
    ann = scene.produce("ann", *LOAD)
    for assignor in ASSIGNORS:
        until(first[assignor].reads(6, 6), what=f"{assignor}: one reads all")
    second = {assignor: start(assignor, "two") for assignor in ASSIGNORS}
    for assignor in ASSIGNORS:
        until(second[assignor].reads(1, 5), what=f"{assignor}: two has a share")
    until(lambda: scene.senders() == {"ann", "bob"}, what="both producers send")
    ann.signal(signal.SIGTERM)
    sent = vouched(ann.answer())
    for assignor in ASSIGNORS:
        first[assignor].signal(signal.SIGTERM)  # leaves the group, and hands over
    stopped = {assignor: first[assignor].answer(code=None) for assignor in ASSIGNORS}
    ann = scene.produce("ann", *LOAD, "--duration", "3s", label="ann-again")
    for assignor in ASSIGNORS:
        until(second[assignor].reads(6, 6), what=f"{assignor}: two reads all")
    restarted = start("range", "one")
    late = scene.consume("late", *expected, "--log-dir", str(scene.folder / "late"))
    elsewhere = another.consume("elsewhere")
    again = ann.answer()
    assert again["incarnations"] == [2]
    sent |= vouched(again)
    other.signal(signal.SIGTERM)
    theirs = vouched(other.answer())
    until(lambda: sent | theirs <= {copy.id for copy in scene.copies()}, what="all is copied")
    zoe = vouched(scene.produce("zoe", *LOAD, "--num-records", "10").answer())
    sent |= zoe

    for assignor in ASSIGNORS:
        assert stopped[assignor]["exit_code"] in {0, 3}
        assert set(wrong(stopped[assignor])) <= {"other_run", "in_flight"}
    for consumer in (*second.values(), restarted, late):
        answer = consumer.answer()
        assert wrong(answer) == {"other_run": len(theirs)}
        assert answer["counts"]["acked"] == answer["counts"]["delivered"] == len(sent)
    found = elsewhere.answer()
    assert wrong(found).keys() == {"other_run"}
    assert 0 <= len(sent) - wrong(found)["other_run"] <= len(zoe)  # it may end before zoe sends
    assert found["counts"]["delivered"] == len(theirs)
    recount = count(scene.copies())
    assert recount.seen == sent | theirs
    assert not recount.duplicated
    judged_alike(scene.reconcile("--exactly-once").answer(), answer)
    judged_alike(another.reconcile("--exactly-once").answer(), found)


def test_a_run_is_over_while_another_goes_on_in_its_topics(
    make_scene: Callable[..., Scene],
) -> None:
    """A group ends and passes, though another run goes on writing to its partitions."""
    scene = make_scene("orders.eu", "clicks.us")
    another = make_scene("beside", ledger=scene.ledger)
    another.topics = scene.topics
    scene.create(3)
    bob = another.produce("bob", "--throughput", "1000", "--linger-ms", "2")
    until(lambda: scene.copied(scene.topics[0]) > 1000, what="the other run is under way")
    group = ("--consumer-group", "judges", "--expect-producers", "ann")
    consumers = [scene.consume(name, *group) for name in ("carl", "dora")]
    sent = vouched(scene.produce("ann", *LOAD, "--num-records", "900").answer())
    answers = [consumer.answer() for consumer in consumers]
    assert bob.process.poll() is None
    bob.signal(signal.SIGTERM)
    bob.answer()
    for answer in answers:
        assert wrong(answer).keys() == {"other_run"}
        assert answer["counts"]["acked"] == answer["counts"]["delivered"] == len(sent) == 1800
    offline = scene.reconcile("--exactly-once").answer()
    assert offline["verdict"] == "passed"
    assert offline["counts"]["acked"] == offline["counts"]["delivered"] == len(sent)
    assert offline["online"]["disagreements"] == []


def test_fixed_shares_end_though_two_of_three_consumers_left_early(
    make_scene: Callable[..., Scene],
) -> None:
    """One gets SIGTERM, one is killed, and another run goes on writing to the topic.

    The third takes over their partitions, one after 10 s and one after a minute, reads them to the
    closing snapshot, and passes.
    """
    scene = make_scene("orders.eu")
    another = make_scene("beside", ledger=scene.ledger)
    another.topics = scene.topics
    scene.create(3)
    bob = another.produce("bob", "--throughput", "300")
    until(lambda: scene.copied(scene.topics[0]) > 300, what="the other run is under way")
    expecting = ("--expect-producers", "ann")
    carl, dora, erin = (
        scene.consume(name, "--shard", f"{index}/3", *expecting)
        for index, name in enumerate(("carl", "dora", "erin"), 1)
    )
    ann = scene.produce("ann", "--throughput", "100")
    for consumer in (carl, dora, erin):
        until(lambda each=consumer: " delivered of" in each.stderr, what="each reads its share")
    until(lambda: "ann" in scene.senders(), what="messages come")
    carl.signal(signal.SIGTERM)
    assert carl.wait() == 3
    dora.signal(signal.SIGKILL)
    dora.wait()
    reached = scene.copied(scene.topics[0])
    until(lambda: scene.copied(scene.topics[0]) > reached + 300, what="more comes, unread")
    ann.signal(signal.SIGTERM)
    sent = vouched(ann.answer())

    answer = erin.answer(seconds=180)
    assert bob.process.poll() is None
    bob.signal(signal.SIGTERM)
    bob.answer()
    assert wrong(answer).keys() == {"other_run"}
    assert answer["counts"]["acked"] == answer["counts"]["delivered"] == len(sent)
    copy = scene.copy_of(scene.topics[0])
    assert answer["partitions"] == [f"{copy}-{number}" for number in range(3)]
    assert erin.stderr.count("taken over") == 2

    offline = scene.reconcile("--exactly-once").answer()
    assert offline["verdict"] == "passed"
    assert offline["counts"]["acked"] == offline["counts"]["delivered"] == len(sent)
    assert offline["online"]["disagreements"] == []
