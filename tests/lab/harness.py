"""Helpers of lab tests: real commands as a user types them, and their JSON answers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from unittest.mock import patch

import typer
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from typer.testing import CliRunner

from mirrortest.cli import reconcile as reconcile_verb
from mirrortest.cli import spark
from tests.lab.preloaded import VERBS, Preloaded
from tests.lifetime import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.lab.preloaded import Process

PROGRAM = (
    "-c",
    "from mirrortest.cli import live, start; live._QUIET_SECONDS = 0.5; start.run()",
)
"""The command as a user runs it, but its progress lines may follow each other in half a second."""
ENVIRONMENT = {
    "NO_COLOR": "1",
    "COLUMNS": "200",
    "MIRRORTEST_REPORTING_INTERVAL": "500ms",
}


def until(condition: Callable[..., Any], *, seconds: float = 120, what: str = "") -> Any:
    """Wait until a condition is true; its value. Fails with `what` at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)


GATHER_MS = "50"
"""The linger of producers with a slow load. With a request for each message, clients, mirror and
brokers would use three times the CPU, which parallel tests need. tests/lab/test_produce has the
default."""


@dataclass(eq=False)
class Command:
    """A running `mirrortest` command; its stdout and stderr go to files.

    `anew` starts a new Python for it; verbs that are not in `VERBS` and other programs always get
    one.
    """

    arguments: list[str]
    folder: Path
    name: str
    program: tuple[str, ...] = PROGRAM
    anew: bool = False
    process: Process = field(init=False)

    def __post_init__(self) -> None:
        self.errors = self.folder / f"{self.name}.stderr"
        self.answers = self.folder / f"{self.name}.stdout"
        environment = {**os.environ, **ENVIRONMENT}
        with self.errors.open("wb") as errors, self.answers.open("wb") as answers:
            if self.program == PROGRAM and self.arguments[0] in VERBS and not self.anew:
                streams = (self.answers, self.errors)
                self.process = Preloaded(
                    PROGRAM[1], self.arguments, self.folder, environment, streams
                )
                return
            self.process = subprocess.Popen(
                [sys.executable, *self.program, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=answers,
                stderr=errors,
                cwd=self.folder,
                env=environment,
                preexec_fn=end_with_parent,  # noqa: PLW1509  # one call of C, no lock in it
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, *, seconds: float = 240) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end:\n{self.stderr[-3000:]}") from None

    @property
    def stderr(self) -> str:
        return self.errors.read_text()

    @property
    def stdout(self) -> str:
        return self.answers.read_text()

    def reads(self, fewest: int, most: int) -> Callable[[], bool]:
        """A check whether it reports, from now on, that it reads `fewest` to `most` partitions."""
        known = len(self.stderr)

        def reads() -> bool:
            numbers = re.findall(r" from (\d+) partitions?", self.stderr[known:])
            return any(fewest <= int(number) <= most for number in numbers)

        return reads

    def answer(self, *, code: int | None = 0, seconds: float = 240) -> dict[str, Any]:
        """Wait for the end, check the exit code, and read the JSON answer."""
        return Ended(self.name, self.wait(seconds=seconds), self.stdout, self.stderr).answer(
            code=code
        )


@dataclass
class Ended:
    """A command that has ended."""

    name: str
    code: int
    stdout: str
    stderr: str

    def answer(self, *, code: int | None = 0) -> dict[str, Any]:
        """Check the exit code, and read the JSON answer."""
        assert code is None or self.code == code, (
            f"{self.name} exited {self.code}, not {code}:\n"
            f"{self.stderr[-3000:]}\n{self.stdout[-3000:]}"
        )
        answer: dict[str, Any] = json.loads(self.stdout)
        return answer


def run_here(verb: Callable[..., None], *arguments: str) -> Ended:
    """Run a verb of the command line in this process."""
    program = typer.Typer()
    program.command()(verb)
    ended = CliRunner().invoke(program, arguments, catch_exceptions=False)
    return Ended(verb.__name__, ended.exit_code, ended.stdout, ended.stderr)


@dataclass
class Scene:
    """One scenario's run: its id, its topics and its sequence logs."""

    lab: Any
    folder: Path
    run: str
    topics: tuple[str, ...]
    ledger: str
    state: str
    spark: Callable[[], Any]
    """Returns the Spark session that all tests share."""
    alias: str = "A"
    program: tuple[str, ...] = PROGRAM
    commands: list[Command] = field(default_factory=list)

    def close(self) -> None:
        for command in self.commands:
            command.__exit__()

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def create(self, partitions: int) -> None:
        """Create its topics in the source, and wait for all their copies together."""
        for topic in self.topics:
            self.lab.source.create_topic(topic, partitions)
        for topic in self.topics:
            self.lab.mirror.wait_topic(topic)

    def start(self, name: str, *arguments: str) -> Command:
        """Start a command, which ends with the scene at the latest."""
        command = Command(list(arguments), self.folder, name, self.program)
        self.commands.append(command)
        return command

    def produce(self, name: str, *arguments: str, label: str = "") -> Command:
        return self.start(
            label or f"produce-{name}",
            "produce",
            *("--bootstrap-server", self.lab.source.bootstrap_servers),
            *("--topics", ",".join(self.topics)),
            *("--run", self.run),
            *("--id", name),
            *("--ledger-topic", self.ledger),
            *("--log-dir", str(self.logs)),
            *("--linger-ms", GATHER_MS),
            "--json",
            *arguments,
        )

    def consume(
        self,
        name: str,
        *arguments: str,
        label: str = "",
        topics: bool = True,
        aliased: bool = True,
    ) -> Command:
        """A consumer of the copies.

        With `topics` False it has no option for topics, with `aliased` False none for the alias.
        """
        copies = ",".join(map(self.copy_of, self.topics))
        return self.start(
            label or f"consume-{name}",
            "consume",
            *("--bootstrap-server", self.lab.destination.bootstrap_servers),
            *(("--topics", copies) if topics else ()),
            *(("--source-alias", self.alias) if aliased else ()),
            *("--run", self.run),
            *("--id", name),
            *("--ledger-topic", self.ledger),
            *("--state-topic", self.state),
            *("--log-dir", str(self.logs)),
            *("--state-interval", "1s"),
            *("--settle-time", "2s"),
            "--json",
            *arguments,
        )

    def observe(self, name: str, *arguments: str, label: str = "") -> Command:
        """A source observer."""
        return self.start(
            label or f"observe-{name}",
            *("consume", "--role", "source"),
            *("--bootstrap-server", self.lab.source.bootstrap_servers),
            *("--topics", ",".join(self.topics)),
            *("--run", self.run),
            *("--id", name),
            *("--ledger-topic", self.ledger),
            *("--state-topic", self.state),
            *("--log-dir", str(self.logs)),
            *("--state-interval", "1s"),
            *("--settle-time", "2s"),
            "--json",
            *arguments,
        )

    def reconcile(self, *arguments: str) -> Ended:
        """Run the command in this process, on the shared Spark session."""
        return self.reconcile_as(self._about_logs(*arguments))

    def reconcile_as(self, arguments: list[str]) -> Ended:
        """The same, with only these arguments."""
        session = self.spark()
        with patch.object(spark, "spark_session", lambda *_, **__: nullcontext(session)):
            return run_here(reconcile_verb.reconcile, *arguments)

    def reconcile_alone(self, *arguments: str) -> Command:
        """Start the command as a user does, with its own Spark session."""
        return self.start(
            f"reconcile-{len(self.commands)}", "reconcile", *self._about_logs(*arguments)
        )

    def _about_logs(self, *arguments: str) -> list[str]:
        return [str(self.logs), "--run", self.run, "--json", *arguments]

    def copy_of(self, topic: str) -> str:
        """The mirror's name for a topic's copy."""
        return f"{self.alias}.{topic}" if self.alias else topic

    def copied(self, topic: str) -> int:
        """How many records a topic's copy has."""
        return sum(self.lab.destination.end_offsets(self.copy_of(topic)).values())

    def written(self, topic: str) -> int:
        """How many records were written to a topic of the source."""
        return sum(self.lab.source.end_offsets(topic).values())

    def senders(self) -> set[str]:
        """The producers whose messages have arrived in the destination."""
        return {copy.id[1] for copy in self.copies() if copy.id is not None}

    def copies(self) -> list[Copy]:
        """All the records of its topics in the destination."""
        return [
            copy
            for topic in self.topics
            for copy in read_topic(self.lab.destination, self.copy_of(topic), source=topic)
        ]


def ids(answer: dict[str, Any], finding: str) -> set[tuple[str, str, int, int, int]]:
    """The ids of a finding in an answer: (topic, producer, incarnation, lane, seq)."""
    return {
        (s["topic"], s["producer"], s["incarnation"], s["lane"], seq)
        for s in answer["streams"]
        for lo, hi in s.get(finding, ())
        for seq in range(lo, hi)
    }


def wrong(answer: dict[str, Any]) -> dict[str, int]:
    """The counts that a clean run does not have; failed sends are reported by the producer."""
    fine = {"acked", "delivered", "failed"}
    return {name: n for name, n in answer["counts"].items() if n and name not in fine}


def judged_alike(offline: dict[str, Any], online: dict[str, Any]) -> None:
    """Check that a reconciliation agrees with a consumer's answer, in counts and in ids."""
    counts = online["counts"]
    assert {name: offline["counts"].get(name, 0) for name in counts} == counts
    assert offline["online"]["partitions"] > 0
    assert offline["online"]["disagreements"] == []


class Copy(NamedTuple):
    """One record as any Kafka client sees it; `id` as in `ids`, None if it is not mirrortest's."""

    topic: str
    partition: int
    offset: int
    id: tuple[str, str, int, int, int] | None


def records(cluster: Any, topic: str) -> list[Any]:
    """Every record of a topic as aiokafka returns it, in the order of each partition."""
    places = [TopicPartition(topic, number) for number in range(cluster.partitions(topic))]
    bootstrap = cluster.bootstrap_servers

    async def read() -> list[Any]:
        found: list[Any] = []
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        await consumer.start()
        try:
            consumer.assign(places)
            ends = await consumer.end_offsets(places)
            begins = await consumer.beginning_offsets(places)
            for place in places:
                position = begins[place]
                consumer.seek(place, position)
                while position < ends[place]:
                    found += (await consumer.getmany(place, timeout_ms=1000)).get(place, [])
                    position = await consumer.position(place)
        finally:
            await consumer.stop()
        return found

    return asyncio.run(read())


def read_topic(cluster: Any, topic: str, *, source: str | None = None) -> list[Copy]:
    """Every record of a topic, in the order of each partition, parsed by hand.

    `source` is the topic's name in its ids.
    """
    return [_copy(record, source or topic) for record in records(cluster, topic)]


def _copy(record: Any, source: str) -> Copy:
    headers = dict(record.headers)
    producer, seq = headers.get("id"), headers.get("seq")
    if producer is None:
        producer, seq = (*(record.value or b"").split(b";", 2), b"", b"")[:2]
    try:
        name, rest = producer.decode().split("@")
        identity = (source, name, int(rest.split(".")[1]), int(record.key), int(seq or b""))
    except ValueError:
        identity = None
    return Copy(record.topic, record.partition, record.offset, identity)


class Counted(NamedTuple):
    """The result of a simple count over all copies: sets of ids, and how many copies are extra."""

    seen: set[tuple[str, str, int, int, int]]
    duplicated: set[tuple[str, str, int, int, int]]
    reordered: set[tuple[str, str, int, int, int]]
    copies: int


def count(copies: Iterable[Copy]) -> Counted:
    """Count duplicates and reorders one by one; `copies` are in the order of each partition."""
    counted = Counted(set(), set(), set(), 0)
    surplus = 0
    before: dict[tuple[Any, ...], tuple[set[int], int]] = {}
    for copy in copies:
        if copy.id is None:
            continue
        if copy.id in counted.seen:
            counted.duplicated.add(copy.id)
            surplus += 1
        counted.seen.add(copy.id)
        *stream, seq = copy.id
        here, last = before.setdefault((*stream, copy.partition), (set(), -1))
        if seq not in here and seq < last:
            counted.reordered.add(copy.id)
        here.add(seq)
        before[*stream, copy.partition] = here, max(last, seq)
    return counted._replace(copies=surplus)


def write(bootstrap: str, topic: str, records: Iterable[dict[str, Any]]) -> None:
    """Write records with an ordinary Kafka client; each is the arguments of a send."""

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for sent in [await producer.send(topic, **record) for record in records]:
                await sent

    asyncio.run(send())


def vouched(answer: dict[str, Any], outcome: str = "acked") -> set[tuple[str, str, int, int, int]]:
    """The ids to which a producer's answer gives an outcome."""
    return ids(answer, outcome)
