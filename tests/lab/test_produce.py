"""`mirrortest produce` on a real Kafka: what it records is true, whatever happens to it."""

from __future__ import annotations

import itertools
import json
import signal
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.config.client_config import ClientConfig
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.fetched import OutOfRange
from mirrortest.kafka.reader import Reader
from mirrortest.model.findings import Outcome
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.seqlog.files import find_sessions
from mirrortest.verify.ledger import Ledger
from mirrortest.wire.batch_decoder import BatchDecoder
from mirrortest.wire.record_batch import decode_records
from mirrortest.wire.stream import StreamId
from tests.lab.harness import Command, until
from tests.lab.reading import entries
from tests.log_rows import read_all

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.lab

OUTCOMES = ("acked", "failed", "unknown")


@dataclass
class Stage:
    """One test's topic, run and folder, and the commands it started."""

    lab: Any
    folder: Path
    topic: str
    run: str = "r1"
    commands: list[Command] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def config(self) -> ClientConfig:
        return ClientConfig(bootstrap_servers=tuple(self.lab.source.bootstrap_servers.split(",")))

    @property
    def ledger_topic(self) -> str:
        return f"{self.topic}.ledger"

    def produce(self, *arguments: str, name: str = "p1", topics: str = "") -> Command:
        command = Command(
            [
                "produce",
                *("--bootstrap-server", self.lab.source.bootstrap_servers),
                *("--topics", topics or self.topic),
                *("--run", self.run, "--id", name),
                *("--ledger-topic", self.ledger_topic),
                *("--log-dir", str(self.folder / "logs")),
                "--json",
                *arguments,
            ],
            self.folder,
            f"produce-{next(self._numbers)}",
        )
        self.commands.append(command)
        return command

    def records(self) -> int:
        return sum(self.lab.source.end_offsets(self.topic).values())

    async def ledger(self) -> Ledger:
        ledger = Ledger()
        for _, key, value in await entries(self.config, self.ledger_topic):
            ledger.apply(key, value)
        return ledger

    async def written(self) -> dict[StreamId, dict[int, list[int]]]:
        """Stream -> seq -> its offsets in the source topic."""
        found: dict[StreamId, dict[int, list[int]]] = {}
        decoder = BatchDecoder(self.topic)
        ends = {
            TopicPartition(self.topic, partition): end
            for partition, end in self.lab.source.end_offsets(self.topic).items()
        }
        positions = dict.fromkeys(ends, 0)
        async with Reader(self.config) as reader:
            await reader.assign(list(ends))
            for at in ends:
                reader.seek(at, 0)
            while any(positions[at] < end for at, end in ends.items()):
                for item in await reader.next(1.0):
                    assert not isinstance(item, OutOfRange)
                    positions[TopicPartition(item.topic, item.partition)] = item.next_offset
                    if item.buffer is None:
                        continue
                    arrays = decoder.decode(decode_records(item.buffer))
                    assert not arrays.findings.any()
                    for index, lane, seq, offset in zip(
                        arrays.id_index.tolist(),
                        arrays.lane.tolist(),
                        arrays.seq.tolist(),
                        arrays.offset.tolist(),
                        strict=True,
                    ):
                        producer = arrays.ids[index]
                        stream = StreamId(
                            self.topic, producer.run, producer.name, producer.incarnation, lane
                        )
                        found.setdefault(stream, {}).setdefault(seq, []).append(offset)
        return found

    def logged(self) -> dict[StreamId, dict[str, IntervalSet]]:
        """Stream -> kind or outcome -> seqs, from all sequence logs of the run."""
        found: dict[StreamId, dict[str, IntervalSet]] = {}
        for session in find_sessions(self.folder / "logs", self.run):
            for row in read_all(session, []).to_pylist():
                stream = StreamId(
                    row["topic"], row["run"], row["producer"], row["incarnation"], row["lane"]
                )
                kind = row["kind"]
                if kind == "sent":
                    kind = Outcome(row["outcome"]).name.lower()
                sets = found.setdefault(
                    stream, {k: IntervalSet() for k in ("reserved", "end", *OUTCOMES)}
                )
                sets[kind].add(row["seq_lo"] or 0, row["seq_hi"])
        return found


@pytest.fixture
def stage(lab: Any, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(lab, tmp_path, f"produce.{uuid.uuid4().hex[:8]}")
    yield made
    for command in made.commands:
        command.__exit__()


def streams(answer: dict[str, Any]) -> dict[StreamId, dict[str, Any]]:
    return {
        StreamId(*(s[name] for name in StreamId._fields)): {
            **s,
            **{outcome: IntervalSet(map(tuple, s[outcome])) for outcome in OUTCOMES},
        }
        for s in answer["streams"]
    }


def progressing(command: Command, stage: Stage, records: int) -> None:
    """Wait until the topic has this many records; fails if the command ends first."""

    def enough() -> bool:
        assert command.process.poll() is None, command.stderr
        return stage.records() >= records

    until(enough, what=f"{records} records in {stage.topic}")


async def test_a_clean_run_is_complete_everywhere(stage: Stage) -> None:
    """Report, ledger, log and topics agree on a run without faults."""
    stage.lab.source.create_topic(stage.topic, 3)
    other = f"{stage.topic}.other"
    arguments = ("--throughput", "2000", "--num-records", "3001", "--warmup-records", "500")
    command = stage.produce(
        *arguments, "--create-topics", "--message-size", "300", topics=f"{stage.topic},{other}"
    )
    answer = command.answer(code=0)
    assert answer["verdict"] == "passed"
    assert (answer["whole"]["acked"], answer["steady_state"]["acked"]) == (6002, 5002)
    assert answer["whole"]["records_per_second"] < 4000
    assert stage.records() == 3001
    assert sum(stage.lab.source.end_offsets(other).values()) == 3001
    ends = stage.lab.source.end_offsets(stage.topic)
    logged, ledger = stage.logged(), await stage.ledger()
    assert ledger.complete("r1", ["p1"])
    for stream, reported in streams(answer).items():
        assert reported["acked"] == IntervalSet([(0, reported["end"])])
        assert logged[stream]["acked"] == logged[stream]["end"] == reported["acked"]
        assert ledger.lanes[stream].acked == reported["acked"]
        assert ledger.lanes[stream].end == reported["end"]
        if stream.topic == stage.topic:
            assert ends[reported["source_partition"]] == reported["end"]
    summary = json.loads((Path(answer["log"]) / "summary.json").read_text())
    assert summary == answer


async def test_after_kill_9_the_next_incarnation_closes_the_one_before(stage: Stage) -> None:
    """Reserved seqs without an outcome are unknown; no seq beyond the reservation was written."""
    stage.lab.source.create_topic(stage.topic, 2)
    first = stage.produce("--throughput", "3000", "--message-size", "200")
    progressing(first, stage, 3000)
    first.process.kill()
    first.process.wait()
    answer = stage.produce("--throughput", "1000", "--num-records", "500").answer(code=0)
    assert answer["incarnations"] == [2]
    ledger, logged, written = await stage.ledger(), stage.logged(), await stage.written()
    assert ledger.complete("r1", ["p1"])
    killed = [stream for stream in ledger.lanes if stream.incarnation == 1]
    assert len(killed) == 2
    for stream in killed:
        lane, log = ledger.lanes[stream], logged[stream]
        assert max(written[stream]) < lane.reserved
        assert lane.reserved <= log["reserved"].end  # it may have been killed between the two
        assert lane.acked | lane.failed | lane.unknown == IntervalSet([(0, lane.end or 0)])
        # The log is durable first: the ledger has no ack that the log lacks.
        assert not lane.acked - log["acked"]
        assert all(seq in written[stream] for lo, hi in log["acked"].intervals()
                   for seq in range(lo, hi))  # fmt: skip


async def test_a_broker_that_dies_and_returns_is_outlived(stage: Stage) -> None:
    """Every message has an outcome, and each acknowledged one is written exactly once."""
    stage.lab.source.create_topic(stage.topic, 3)
    command = stage.produce("--throughput", "2000")
    progressing(command, stage, 2000)
    broker = stage.lab.source.brokers[0]
    broker.kill()
    until(lambda: "is behind its schedule" in command.stderr, what="the producer is behind")
    broker.start()
    progressing(command, stage, stage.records() + 2000)
    command.signal(signal.SIGTERM)
    answer = command.answer(code=None)
    assert answer["exit_code"] in {0, 3}, command.stderr
    assert answer["whole"]["records"] == sum(
        reported["end"] for reported in streams(answer).values()
    )
    assert answer["topics"][stage.topic]["behind_seconds"] > 0
    written = await stage.written()
    for stream, reported in streams(answer).items():
        seqs = written[stream]
        assert reported["acked"] | reported["unknown"] == IntervalSet([(0, reported["end"])])
        assert all(len(seqs[seq]) == 1 for lo, hi in reported["acked"].intervals()
                   for seq in range(lo, hi))  # fmt: skip
        assert max(seqs) < reported["end"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_drains(stage: Stage, number: signal.Signals) -> None:
    """The first signal stops the schedule; all that was sent is acknowledged, and the lanes end."""
    stage.lab.source.create_topic(stage.topic, 2)
    command = stage.produce("--throughput", "2000")
    progressing(command, stage, 1000)
    command.signal(number)
    answer = command.answer(code=0)
    assert answer["whole"]["acked"] == answer["whole"]["records"] == stage.records()
    assert (await stage.ledger()).complete("r1", ["p1"])


async def test_a_second_signal_ends_at_once_and_nothing_untrue_is_told(stage: Stage) -> None:
    """A frozen broker blocks the drain; an abort leaves the lanes open, and their records true."""
    stage.lab.source.create_topic(stage.topic, 2)
    command = stage.produce("--throughput", "2000")
    progressing(command, stage, 1000)
    broker = stage.lab.source.brokers[0]
    broker.stop()
    try:
        # Now messages are in flight whose acknowledgements cannot arrive.
        until(lambda: "is behind its schedule" in command.stderr)
        command.signal(signal.SIGINT)
        until(lambda: "draining" in command.stderr)
        command.signal(signal.SIGINT)
        assert command.wait() == 128 + signal.SIGINT
    finally:
        broker.cont()
        broker.wait_ready()
    assert "second signal" in command.stderr
    assert "Traceback" not in command.stderr
    ledger, logged, written = await stage.ledger(), stage.logged(), await stage.written()
    assert not ledger.complete("r1", ["p1"])
    for stream, log in logged.items():
        assert not log["end"]
        assert ledger.lanes[stream].end is None
        assert max(written[stream]) < log["reserved"].end
        assert all(seq in written[stream] for lo, hi in log["acked"].intervals()
                   for seq in range(lo, hi))  # fmt: skip


async def test_the_drain_has_a_deadline(stage: Stage) -> None:
    """A broker that stays frozen at the end leaves messages unknown, and the run ends in time."""
    stage.lab.source.create_topic(stage.topic, 2)
    command = stage.produce("--throughput", "2000", "--drain-timeout", "2s")
    progressing(command, stage, 1000)
    broker = stage.lab.source.brokers[0]
    broker.stop()
    try:
        until(lambda: "is behind its schedule" in command.stderr)
        command.signal(signal.SIGTERM)
        answer = command.answer(code=1)
    finally:
        broker.cont()
        broker.wait_ready()
    assert "end marks" in answer["error"]
    assert answer["whole"]["unknown"] > 0
    logged, written = stage.logged(), await stage.written()
    for stream, reported in streams(answer).items():
        assert logged[stream]["unknown"] == reported["unknown"]
        assert all(seq in written[stream] for lo, hi in reported["acked"].intervals()
                   for seq in range(lo, hi))  # fmt: skip
        for lo, hi in reported["failed"].intervals():
            assert not written[stream].keys() & set(range(lo, hi))


async def test_messages_too_large_fail(stage: Stage) -> None:
    """Refused messages are failed, the error says why, and the run ends instead of continuing."""
    stage.lab.source.create_topic(stage.topic, 1, configs={"max.message.bytes": "2000"})
    command = stage.produce("--throughput", "100", "--message-size", "5000")
    answer = command.answer(code=1)
    assert answer["whole"]["failed"] == answer["whole"]["records"] > 0
    assert stage.records() == 0
    assert "restarted 3 times, each time with the same error" in answer["error"]
    assert "Traceback" not in command.stderr
    assert (await stage.ledger()).complete("r1", ["p1"])


async def test_a_topic_that_grows_keeps_its_lanes_and_is_told(stage: Stage) -> None:
    """Every lane stays on its partition, nothing is lost, and the report notes the growth."""
    stage.lab.source.create_topic(stage.topic, 2)
    command = stage.produce(
        *("--throughput", "500"),
        *("--command-property", "metadata.max.age.ms=1000"),
    )
    progressing(command, stage, 1)
    stage.lab.source.add_partitions(stage.topic, 3)
    grew = "grew from 2 to 3 partitions"
    until(lambda: grew in command.stderr, what="the growth is noticed")
    progressing(command, stage, stage.records() + 500)
    command.signal(signal.SIGTERM)
    answer = command.answer()
    assert answer["whole"]["acked"] == answer["whole"]["records"] == stage.records()
    assert grew in " ".join(answer["notes"])
    assert stage.lab.source.end_offsets(stage.topic)[2] == 0


async def test_batches_are_as_small_as_the_topic_wants(stage: Stage) -> None:
    """A topic that accepts less than the usual batch gets smaller ones, and every message."""
    stage.lab.source.create_topic(stage.topic, 1, configs={"max.message.bytes": "2000"})
    answer = stage.produce("--num-records", "5000", "--message-size", "300").answer()
    assert answer["whole"]["acked"] == 5000 == stage.records()
    assert answer["whole"]["failed"] == answer["whole"]["unknown"] == 0


async def test_topics_of_a_range_are_created_with_their_settings(stage: Stage) -> None:
    """Each topic gets the settings; one that the brokers do not support is named in the error."""
    topics = [f"{stage.topic}.{number}" for number in (1, 2, 3)]
    stage.produce(
        *("--num-records", "10", "--create-topics", "--partitions", "2"),
        *("--topic-config", "cleanup.policy=compact,delete", "--topic-config", "segment.ms=60000"),
        topics=f"{stage.topic}.[1-3]",
    ).answer(code=0)
    async with Admin(stage.config) as admin:
        assert await admin.partition_counts(topics) == dict.fromkeys(topics, 2)
        for topic in topics:
            found = await admin.topic_config(topic)
            assert (found["cleanup.policy"], found["segment.ms"]) == ("compact,delete", "60000")
    wrong = stage.produce(
        *("--num-records", "10", "--create-topics", "--topic-config", "no.such=1"),
        topics=f"{stage.topic}.4",
    )
    assert wrong.wait() == 1
    assert "no.such" in wrong.stderr.splitlines()[-1]


async def test_of_two_producers_with_one_name_the_later_takes_over(stage: Stage) -> None:
    """They never share an incarnation, and the one that was taken over ends with an error."""
    stage.lab.source.create_topic(stage.topic, 2)
    twins = [stage.produce("--throughput", "500") for _ in range(2)]
    until(lambda: any(twin.process.poll() is not None for twin in twins), what="one has ended")
    (running,) = (twin for twin in twins if twin.process.poll() is None)
    progressing(running, stage, stage.records() + 500)
    running.signal(signal.SIGTERM)
    answers = {twin.wait(): json.loads(twin.stdout) for twin in twins}
    assert sorted(answers) == [0, 1], [twin.stderr for twin in twins]
    assert sorted(a["incarnations"] for a in answers.values()) in ([[], [1]], [[1], [2]])
    assert "taken over" in answers[1]["error"]
    ledger, written = await stage.ledger(), await stage.written()
    assert ledger.complete("r1", ["p1"])
    for stream, seqs in written.items():
        lane = ledger.lanes[stream]
        assert max(seqs) < (lane.end or 0)
        assert all(len(offsets) == 1 for offsets in seqs.values())
    won = streams(answers[0])
    assert all(ledger.lanes[stream].acked == reported["acked"] for stream, reported in won.items())


def test_a_users_mistakes_are_one_line(stage: Stage) -> None:
    """A missing topic, wrong partition count or unreachable cluster gives an error with advice."""
    stage.lab.source.create_topic(stage.topic, 2)
    missing = stage.produce(topics=f"{stage.topic}.missing")
    wrong = stage.produce("--create-topics", "--partitions", "5")
    away = stage.produce("--bootstrap-server", "127.0.0.1:1")
    expected = ((missing, "--create-topics"), (wrong, "--partitions 2"), (away, "127.0.0.1:1"))
    for command, advice in expected:
        assert command.wait() == 1
        assert advice in command.stderr
        assert "Traceback" not in command.stderr
        assert command.stdout == ""
