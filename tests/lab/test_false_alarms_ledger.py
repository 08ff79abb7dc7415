"""Verdicts while the ledger topic is deleted and while a producer is between two incarnations."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from mirrortest.verify.ledger import Ledger
from tests.lab.harness import records, until, vouched, wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirrortest.lab import Lab
    from tests.lab.harness import Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

LOAD = ("--throughput", "600", "--message-size", "200")


class Gate:
    """A proxy before a bootstrap server; while not `open`, it drops each new connection."""

    def __init__(self, target: str) -> None:
        host, port = target.split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.open = True
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self.open = False
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if not self.open:
                    near.close()
                    continue
                far = socket.create_connection(self._target)
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(1 << 16):
                target.sendall(data)


@pytest.fixture
def gate(lab: Lab) -> Iterator[Gate]:
    made = Gate(lab.source.bootstrap_servers)
    yield made
    made.close()


def alter(cluster: Any, topic: str, **configs: str) -> None:
    async def change() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        await admin.start()
        try:
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])
        finally:
            await admin.close()

    asyncio.run(change())


def ledger_of(cluster: Any, topic: str) -> Ledger:
    ledger = Ledger()
    for record in records(cluster, topic):
        ledger.apply(record.key, record.value)
    return ledger


def test_a_run_goes_on_between_two_incarnations(
    lab: Lab, make_scene: Callable[..., Scene], gate: Gate
) -> None:
    """A sender died, the next incarnation cannot start yet, and the mirror freezes meanwhile.

    The ledger that has reached the destination is incomplete, so a consumer ends inconclusive
    instead of passing without the later acknowledgements. Once the mirror continues, all
    acknowledged messages are delivered.
    """
    scene = make_scene("orders.eu")
    (topic,) = scene.topics
    scene.create(2)
    ann = scene.produce("ann", "--bootstrap-server", gate.address, *LOAD)
    carl = scene.consume("carl")
    until(lambda: scene.copied(topic) > 1000, what="records come")
    gate.open = False
    alter(lab.source, topic, **{"max.message.bytes": "100"})
    until(lambda: "does not answer, trying again" in ann.stderr, what="ann has no sender")

    def caught_up() -> bool:
        here = ledger_of(lab.source, scene.ledger).lanes
        there = ledger_of(lab.destination, scene.copy_of(scene.ledger))
        assert not there.complete(scene.run)
        return bool(here) and there.lanes == here

    until(caught_up, what="the ledger is copied")
    assert carl.process.poll() is None, carl.stderr
    lab.mirror.stop()
    alter(lab.source, topic, **{"max.message.bytes": "1048588"})
    before, gate.open = scene.written(topic), True
    until(lambda: scene.written(topic) > before + 1000, what="ann goes on")
    ann.signal(signal.SIGTERM)
    produced = ann.answer(code=None)
    assert produced["incarnations"] == [1, 2]
    carl.signal(signal.SIGTERM)
    answer = carl.answer(code=3)
    assert "not all producers have recorded their end" in answer["inconclusive"]

    lab.mirror.cont()
    answer = scene.consume("carl", label="carl-again").answer()
    assert answer["counts"]["delivered"] == len(vouched(produced)) > before + 1000
    assert set(wrong(answer)) <= {"unknown"}


@pytest.mark.parametrize("again", ["", "by another"])
def test_a_ledger_is_deleted_in_mid_run(
    lab: Lab, make_scene: Callable[..., Scene], again: str
) -> None:
    """The producer recreates the ledger, writes the run's records into it again, and ends.

    Also if another client recreates the topic first. The new ledger has the records of a producer
    that had already ended, too. Consumers pass, whether they followed the ledger before or start
    later.
    """
    scene = make_scene("orders.eu")
    scene.create(2)
    direct = ("--ledger-bootstrap-server", lab.source.bootstrap_servers)
    early = scene.consume("early", *direct, "--expect-producers", "ann,bob")
    scene.produce("bob", *LOAD, "--num-records", "300").answer()
    ann = scene.produce("ann", *LOAD, "--num-records", "9000")
    until(lambda: "ann" in scene.senders(), what="ann sends")
    probe = lab.source
    probe.delete_topic(scene.ledger)
    if again:
        probe.create_topic(scene.ledger, 1, configs={"cleanup.policy": "compact"})
    produced = ann.answer(code=0)
    ledger = ledger_of(lab.source, scene.ledger)
    assert ledger.complete(scene.run, ["ann", "bob"])
    acked = {lane.stream: lane.acked.count for lane in ledger.lanes.values()}
    assert sum(acked.values()) == len(vouched(produced)) + 300 == 9300
    answer = early.answer()
    assert (answer["counts"]["delivered"], wrong(answer)) == (9300, {})
    late = scene.consume(
        *("late", *direct, "--state-topic", f"{scene.state}.late"),
        *("--log-dir", str(scene.folder / "late")),
    )
    answer = late.answer()
    assert (answer["counts"]["delivered"], wrong(answer)) == (9300, {})
