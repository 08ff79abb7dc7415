"""What the scenarios share: real commands as a user types them, and their JSON answers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


def until(condition: Callable[[], Any], *, seconds: float = 60, what: str = "") -> Any:
    """Wait for a condition to hold; what it returned. Fails with `what` at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)


@dataclass
class Command:
    """A running `mirrortest` command; its stderr goes to a file."""

    arguments: list[str]
    folder: Path
    name: str
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.errors = self.folder / f"{self.name}.stderr"
        self.answers = self.folder / f"{self.name}.stdout"
        with self.errors.open("wb") as errors, self.answers.open("wb") as answers:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mirrortest", *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=answers,
                stderr=errors,
                cwd=self.folder,
                env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"},
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

    def wait(self, *, seconds: float = 120) -> int:
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

    def holds(self, fewest: int, most: int) -> Callable[[], bool]:
        """Tells whether it has since said that it reads so many partitions."""
        known = len(self.stderr)

        def holds() -> bool:
            told = re.findall(r" of (\d+) partitions", self.stderr[known:])
            return any(fewest <= int(number) <= most for number in told)

        return holds

    def answer(self, *, code: int | None = 0, seconds: float = 120) -> dict[str, Any]:
        """Wait for the end, hold the exit code, and read the JSON answer."""
        got = self.wait(seconds=seconds)
        assert code is None or got == code, (
            f"{self.name} exited {got}, not {code}:\n{self.stderr[-3000:]}\n{self.stdout[-3000:]}"
        )
        answer: dict[str, Any] = json.loads(self.stdout)
        return answer


@dataclass
class Scene:
    """One scenario's run: its id, its topics and its sequence logs."""

    lab: Any
    folder: Path
    run: str
    topics: tuple[str, ...]
    ledger: str
    state: str
    alias: str = "A"
    commands: list[Command] = field(default_factory=list)

    def close(self) -> None:
        for command in self.commands:
            command.__exit__()

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def _start(self, name: str, *arguments: str) -> Command:
        command = Command(list(arguments), self.folder, name)
        self.commands.append(command)
        return command

    def produce(self, name: str, *arguments: str, label: str = "") -> Command:
        return self._start(
            label or f"produce-{name}",
            "produce",
            *("--bootstrap-server", self.lab.source.bootstrap_servers),
            *("--topics", ",".join(self.topics)),
            *("--run", self.run),
            *("--id", name),
            *("--ledger-topic", self.ledger),
            *("--log-dir", str(self.logs)),
            "--json",
            *arguments,
        )

    def consume(self, name: str, *arguments: str, label: str = "") -> Command:
        return self._start(
            label or f"consume-{name}",
            "consume",
            *("--bootstrap-server", self.lab.destination.bootstrap_servers),
            *("--topics", ",".join(f"{self.alias}.{topic}" for topic in self.topics)),
            *("--source-alias", self.alias),
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

    def reconcile(self, *arguments: str) -> Command:
        return self._start(
            f"reconcile-{len(self.commands)}",
            *("reconcile", str(self.logs), "--run", self.run, "--json"),
            *arguments,
        )

    def copied(self, topic: str) -> int:
        """How many records a topic's copy has."""
        return sum(self.lab.destination.end_offsets(f"{self.alias}.{topic}").values())

    def written(self, topic: str) -> int:
        """How many records a topic of the source was given."""
        return sum(self.lab.source.end_offsets(topic).values())

    def copies(self) -> list[Copy]:
        """All the records of its topics in the destination."""
        return [
            copy
            for topic in self.topics
            for copy in read_topic(self.lab.destination, f"{self.alias}.{topic}", source=topic)
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
    """The counts that a clean run does not have."""
    fine = {"acked", "delivered"}
    return {name: n for name, n in answer["counts"].items() if n and name not in fine}


class Copy(NamedTuple):
    """One record as any Kafka client sees it; `id` as `ids` tells it, None: none of ours."""

    topic: str
    partition: int
    offset: int
    id: tuple[str, str, int, int, int] | None


def read_topic(cluster: Any, topic: str, *, source: str | None = None) -> list[Copy]:
    """Every record of a topic, in the order of each partition, parsed by hand.

    `source` is the topic's name in its ids.
    """
    partitions = cluster.partitions(topic)
    bootstrap = cluster.bootstrap_servers

    async def read() -> list[Copy]:
        found = []
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        await consumer.start()
        try:
            at = [TopicPartition(topic, number) for number in range(partitions)]
            consumer.assign(at)
            ends = await consumer.end_offsets(at)
            begins = await consumer.beginning_offsets(at)
            for place in at:
                position = begins[place]
                consumer.seek(place, position)
                while position < ends[place]:
                    records = (await consumer.getmany(place, timeout_ms=1000)).get(place, [])
                    found += [_copy(record, source or topic) for record in records]
                    position = await consumer.position(place)
        finally:
            await consumer.stop()
        return found

    return asyncio.run(read())


def _copy(record: Any, source: str) -> Copy:
    headers = dict(record.headers)
    who, seq = headers.get("id"), headers.get("seq")
    if who is None:
        who, seq = (*(record.value or b"").split(b";", 2), b"", b"")[:2]
    try:
        name, rest = who.decode().split("@")
        identity = (source, name, int(rest.split(".")[1]), int(record.key), int(seq))
    except ValueError:
        identity = None
    return Copy(record.topic, record.partition, record.offset, identity)


class Counted(NamedTuple):
    """What a plain count over all copies says: sets of ids, and the copies beyond the first."""

    seen: set[tuple[str, str, int, int, int]]
    duplicated: set[tuple[str, str, int, int, int]]
    reordered: set[tuple[str, str, int, int, int]]
    copies: int


def count(copies: Iterable[Copy]) -> Counted:
    """Count duplicates and reorders message by message; copies in the order of each partition."""
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
    """Write records as a plain Kafka client; each is the arguments of a send."""

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for sent in [await producer.send(topic, **record) for record in records]:
                await sent

    asyncio.run(send())


def vouched(answer: dict[str, Any], outcome: str = "acked") -> set[tuple[str, str, int, int, int]]:
    """The ids that a producer's answer tells to have had an outcome."""
    return ids(answer, outcome)
