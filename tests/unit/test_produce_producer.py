"""A producer's incarnations, one after the other, and what a consumer reads in the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import ClusterError, FencedError, UnreachableError
from mirrortest.model.findings import Outcome
from mirrortest.produce import producer
from mirrortest.produce.ledger_view import CompactedLog, LedgerView
from mirrortest.produce.options import ProduceOptions
from mirrortest.produce.producer import Producer
from mirrortest.produce.registration import register
from mirrortest.produce.topic_plan import TopicPlan
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import SESSION_FILE, Session
from mirrortest.verify.ledger import Ledger
from mirrortest.verify.ledger_record import Registration, registration_key, registration_value
from tests.unit.producing import MemoryLog, MemorySender, MemoryTopic, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mirrortest.seqlog.writer import SequenceLog
    from mirrortest.wire.batch import EncodedBatch


class Cluster:
    """Creates the senders; while it is `away`, none of them can start.

    The senders die after as many batches as `deadly` lists; later ones never do.
    """

    def __init__(self, *deadly: int) -> None:
        self.deadly = list(deadly)
        self.away = False
        self.refused = 0
        self.senders: list[MemorySender] = []

    def sender(self, _: ClientConfig) -> MemorySender:
        cluster, batches = self, self.deadly[0] if self.deadly else None

        class Made(MemorySender):
            async def start(self) -> None:
                if cluster.away:
                    cluster.refused += 1
                    raise UnreachableError("away")
                cluster.senders.append(self)
                if cluster.deadly:
                    del cluster.deadly[0]

            def send(
                self, topic: str, partition: int, encoded: EncodedBatch
            ) -> asyncio.Future[Any]:
                if len(self.sent) == batches:
                    self.dead = "it died"
                    cluster.away = True
                return super().send(topic, partition, encoded)

        return Made()


class Refusing(Cluster):
    """Refuses all batches of one topic for good; that ends the sender. It acks other topics."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._topic = topic

    def sender(self, _: ClientConfig) -> MemorySender:
        cluster, refused = self, self._topic

        class Made(MemorySender):
            async def start(self) -> None:
                cluster.senders.append(self)

            def send(
                self, topic: str, partition: int, encoded: EncodedBatch
            ) -> asyncio.Future[Any]:
                self.outcome = Outcome.FAILED if topic == refused else Outcome.ACKED
                answer = super().send(topic, partition, encoded)
                if topic == refused:
                    self.dead = f"{topic}-{partition}: refused"
                return answer

        return Made()


class Consumer:
    """Reads the ledger as it is written; `over` has the acked counts at which it was complete."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.over: set[int] = set()

    @property
    def acked(self) -> int:
        return sum(record.acked.count for record in self.ledger.lanes.values())

    def apply(self, key: bytes, value: bytes | None) -> None:
        self.ledger.apply(key, value)
        if self.ledger.complete("r"):
            self.over.add(self.acked)


class Stage:
    def __init__(
        self,
        cluster: Cluster,
        log_dir: Path,
        topics: tuple[str, ...] = ("t",),
        **client: int,
    ) -> None:
        self.cluster = cluster
        self.topic = MemoryTopic()
        self.consumer = Consumer()
        self.topic.wrote = self.consumer.apply
        self.log = MemoryLog()
        self.stop = asyncio.Event()
        self.view = LedgerView(cast("CompactedLog", self.topic), "r", "p")
        options = ProduceOptions(
            run="r",
            name="p",
            client=ClientConfig(bootstrap_servers=("b:1",), linger_ms=0, **client),  # type: ignore[arg-type]
            topics=topics,
            num_records=1000,
            drain_timeout=5,
            log_dir=str(log_dir),
        )
        self.producer = Producer(options, lambda _: None)
        self.producer._plans = [TopicPlan(topic, 2, 2) for topic in topics]
        self.producer._prepare()

    async def live(self) -> None:
        async with asyncio.timeout(60):
            await self.producer._run_incarnations(
                self.stop, cast("SequenceLog", self.log), self.view, "session"
            )

    async def without_sender(self) -> asyncio.Task[None]:
        """Run until the sender has died and the next one is refused."""
        living = asyncio.create_task(self.live())
        await until(lambda: self.cluster.refused or living.done())
        return living

    @property
    def outcomes(self) -> dict[Outcome, int]:
        return self.producer._context.numbers["t"].outcomes


@contextlib.asynccontextmanager
async def stage_of(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    log_dir: Path = Path("nowhere"),
    topics: tuple[str, ...] = ("t",),
    **client: int,
) -> AsyncIterator[Stage]:
    monkeypatch.setattr(producer, "Sender", cluster.sender)
    monkeypatch.setattr(producer, "_RETRY_SECONDS", 0)
    stage = Stage(cluster, log_dir, topics, **client)
    following = asyncio.create_task(stage.view.follow())
    try:
        yield stage
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_the_run_is_not_over_while_a_successor_is_to_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sender has died, and the next one cannot start yet: more messages will come.

    After no record may a consumer find the ledger complete and miss later acknowledgements.
    """
    cluster = Cluster(3, 2)
    async with stage_of(cluster, monkeypatch) as stage:
        living = asyncio.create_task(stage.live())
        for _ in range(2):
            await until(lambda: cluster.refused or living.done())
            assert not stage.consumer.over
            cluster.away, cluster.refused = False, 0
        await living
    assert len(cluster.senders) == 3
    consumer, acked = stage.consumer, stage.outcomes[Outcome.ACKED]
    assert consumer.over == {acked}
    assert consumer.ledger.complete("r", ["p"])
    # Each incarnation's end is exact: nothing is unknown that was never sent.
    unknown = sum(record.unknown.count for record in consumer.ledger.lanes.values())
    assert unknown == stage.outcomes[Outcome.UNKNOWN] == 1000 - acked


async def test_a_run_that_is_stopped_between_two_incarnations_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No successor will come, so consumers need not wait forever."""
    cluster = Cluster(3)
    async with stage_of(cluster, monkeypatch) as stage:
        living = await stage.without_sender()
        assert not stage.consumer.over
        stage.stop.set()
        await living
    assert stage.consumer.over == {stage.outcomes[Outcome.ACKED]}


async def test_a_producer_whose_sender_died_leaves_the_name_to_who_has_taken_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It registers no incarnation above its successor's, and sends nothing more."""
    cluster = Cluster(3)
    async with stage_of(cluster, monkeypatch) as stage:
        living = await stage.without_sender()
        other = Registration("r", "p", 2, "other", {"t": (1,)})
        await stage.topic.write(registration_key(other), registration_value(other))
        cluster.away = False
        with pytest.raises(FencedError, match="taken over"):
            await living
    assert stage.consumer.ledger.latest("r", "p") == other
    assert not cluster.senders[1].sent


async def test_of_a_dead_sender_and_another_process_the_first_to_register_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one's registration comes first when this one's is read back."""
    cluster = Cluster(3)
    async with stage_of(cluster, monkeypatch) as stage:
        living = await stage.without_sender()
        other = Registration("r", "p", 2, "other", {"t": (1,)})
        write = stage.topic.write

        async def racing(key: bytes, value: bytes | None) -> int:
            if b'"claim"' in key and value is not None:
                monkeypatch.setattr(stage.topic, "write", write)
                await write(registration_key(other), registration_value(other))
            return await write(key, value)

        monkeypatch.setattr(stage.topic, "write", racing)
        cluster.away = False
        with pytest.raises(FencedError, match="taken over"):
            await living
    assert stage.consumer.ledger.registrations("r") == [
        stage.consumer.ledger.winner("r", "p", 1),
        other,
    ]


async def test_a_run_that_is_killed_between_two_incarnations_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restarted producer would continue; without one, a consumer ends inconclusive."""
    cluster = Cluster(3)
    async with stage_of(cluster, monkeypatch) as stage:
        living = await stage.without_sender()
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
    assert not stage.consumer.ledger.complete("r")


async def test_a_producer_that_gives_up_ends_consumers_and_lets_none_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages are missing, so consumers end, inconclusive; all registrations are closed.

    A new start of the producer reverts that.
    """
    cluster = Cluster(0, 0, 0, 0)
    async with stage_of(cluster, monkeypatch) as stage:
        living = asyncio.create_task(stage.live())
        while not living.done():
            cluster.away = False
            await asyncio.sleep(0)
        with pytest.raises(ClusterError, match="restarted 3 times"):
            await living
        ledger = stage.consumer.ledger
        assert ledger.complete("r", ["p"])
        assert ledger.failed("r") == ["p"]
        await register(stage.view, run="r", producer="p", session="again", lanes={"t": (1,)})
        assert not ledger.complete("r")
        assert not ledger.failed("r")


async def test_a_topic_that_is_refused_for_good_ends_a_producer_though_another_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once it registered again without end, several times a second, and reported no error."""
    cluster, waits = Refusing("b"), []

    async def set_within(_: asyncio.Event, seconds: float) -> bool:
        waits.append(seconds)
        return False

    async with stage_of(cluster, monkeypatch, topics=("t", "b")) as stage:
        monkeypatch.setattr(producer, "set_within", set_within)
        with pytest.raises(ClusterError, match="b-0: refused; restarted 3 times"):
            await stage.live()
        assert stage.consumer.ledger.failed("r") == ["p"]
    assert (len(cluster.senders), len(waits)) == (3, 2)
    assert stage.outcomes[Outcome.ACKED] > 0


async def test_a_producer_goes_on_after_incarnations_that_a_timeout_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a short `delivery.timeout.ms`, an outage ends several incarnations."""
    cluster = Cluster(0, 0, 0, 0)
    async with stage_of(cluster, monkeypatch, delivery_timeout_ms=0) as stage:
        living = asyncio.create_task(stage.live())
        while not living.done():
            cluster.away = False
            await asyncio.sleep(0)
        await living
    assert len(cluster.senders) == 5


async def test_what_an_ended_incarnation_needed_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its report stays. Once, each incarnation kept its lanes, its writer and its dead sender."""
    cluster = Cluster(3, 2)
    async with stage_of(cluster, monkeypatch) as stage:
        living = asyncio.create_task(stage.live())
        while not living.done():
            cluster.away = False
            await asyncio.sleep(0)
        await living
        gc.collect()
        senders = [weakref.ref(sender) for sender in cluster.senders]
        cluster.senders.clear()
        gc.collect()
        assert [ref() is None for ref in senders[:2]] == [True, True]
        report = stage.producer._all_lanes()
        assert [record.stream.incarnation for record, _ in report] == [1, 1, 2, 2, 3, 3]
        counted = sum(record.acked.count for record, _ in report)
        assert counted == stage.consumer.acked == stage.outcomes[Outcome.ACKED]


async def test_a_topic_that_becomes_compacted_at_the_end_stays_stamped_at_its_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once, its log lost `stamped_at_source`, and `altered_timestamp` failed a correct mirror."""

    async def compacted(_: object, topics: list[str]) -> list[str]:
        return topics

    async with stage_of(Cluster(), monkeypatch) as stage:
        await stage.live()
        sessions = [stage.producer._session("cluster")]

        async def revise(change: Callable[[Session], Session]) -> None:
            sessions.append(change(sessions[-1]))

        monkeypatch.setattr(stage.log, "revise", revise)
        monkeypatch.setattr(producer, "find_compacted", compacted)
        stage.producer._lanes[0].stamped = True
        await stage.producer._note_stamped(cast("SequenceLog", stage.log))
        await stage.producer._ask_policies(cast("SequenceLog", stage.log))
        topic = sessions[-1].topics["t"]
        assert (topic.compacted, topic.stamped_at_source) == (True, True)


async def test_an_incarnation_is_above_those_that_the_logs_tell_though_the_ledger_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the ledger was deleted in between, a reused number would hide the loss of its messages.

    Logs that are unreadable, or of other producers or runs, do not count.
    """
    logged = [("r", "p", 6, "a"), ("r", "p", 2, "b"), ("r", "p", None, "c"), ("r", "q", 9, "d")]
    for run, name, incarnation, number in [*logged, ("r", "p-q", 9, "e"), ("other", "p", 9, "f")]:
        session = Session(
            run=run,
            role=Role.PRODUCER,
            name=name,
            session=number,
            incarnation=incarnation,
            started_ns=1,
        )
        directory = tmp_path.joinpath(*session.folders)
        directory.mkdir(parents=True)
        directory.joinpath(SESSION_FILE).write_bytes(session.encode())
    torn = tmp_path / "run=r" / "role=producer" / "p-torn"
    torn.mkdir()
    (torn / SESSION_FILE).write_bytes(b"{")
    (torn.parent / "p-nothing").mkdir()
    (torn.parent / "p-file").touch()
    async with stage_of(Cluster(), monkeypatch, tmp_path) as stage:
        await stage.live()
        (claim,) = stage.consumer.ledger.registrations("r")
        assert claim.incarnation == 7
        assert stage.consumer.ledger.complete("r")
        assert stage.consumer.acked == 1000
