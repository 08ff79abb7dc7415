"""What a consumer is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrortest.errors import UsageError
from mirrortest.seqlog.batches import Detail
from mirrortest.seqlog.schema import Role
from mirrortest.verify.routing import ExpectPartition

if TYPE_CHECKING:
    from mirrortest.config.client import ClientConfig
    from mirrortest.config.run import TopicMapping
    from mirrortest.config.threshold import Threshold


CONSUMER_DEFAULTS = {
    "client.id": "mirrortest-consume",
    "max.partition.fetch.bytes": str(4 << 20),
    "fetch.max.bytes": str(8 << 20),
}
"""What a response brings of a partition is judged at once: the more, the less each message costs;
a whole response bounds the memory, of which there are up to three. With twice as much a message
costs the same, and a process takes 15 MB more."""
READ_COMMITTED = {"isolation.level": "read_committed"}
"""Where exactly-once is expected: a message of an aborted transaction was not delivered."""


@dataclass(frozen=True)
class Shard:
    """A fixed part of the partitions: those whose number is `index - 1` modulo `of`."""

    index: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``2/5``, the second of five; raise UsageError where it is no such part."""
        first, slash, second = text.partition("/")
        if not (slash and first.isdecimal() and second.isdecimal()):
            raise UsageError(f"--shard {text!r}: write it as INDEX/OF, for example 2/5")
        shard = cls(int(first), int(second))
        if shard.of < 1:
            raise UsageError(f"--shard {text!r}: there is at least one shard: INDEX/OF, as 1/1")
        if not 1 <= shard.index <= shard.of:
            runs = f"runs from 1 to {shard.of}" if shard.of > 1 else "of a single shard is 1"
            raise UsageError(f"--shard {text!r}: the index {runs}")
        return shard

    def __contains__(self, partition: int) -> bool:
        return partition % self.of == self.index - 1

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"


@dataclass(frozen=True, kw_only=True)
class ConsumeOptions:
    """A validated request.

    `role` is `CONSUMER`, who judges the mirror's copy, or `SOURCE`, who observes the topics that
    the producers write: then everything said here of a destination is said of the source.
    `topics` are names in the destination; `topic_pattern` is a regular expression over them.
    Times are seconds. `group` and `shard` exclude each other. `log_spool` is a local folder for
    what is not finished while `log_dir` is no local one. `include_backlog`: latencies are measured
    of what was in a partition before it was taken, too.

    Raises:
        UsageError: options contradict each other.
    """

    run: str
    name: str
    client: ClientConfig
    mapping: TopicMapping
    thresholds: tuple[Threshold, ...]
    role: Role = Role.CONSUMER
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    group: str | None = None
    shard: Shard | None = None
    ledger_topic: str = "mirrortest.ledger"
    ledger_client: ClientConfig | None = None
    state_topic: str = "mirrortest.state"
    expect_producers: tuple[str, ...] = ()
    expect_partition: ExpectPartition = ExpectPartition.SOURCE
    deadline: float = 60.0
    duration: float | None = None
    idle_timeout: float | None = None
    settle_time: float = 5.0
    until_complete: bool = True
    state_interval: float = 5.0
    include_backlog: bool = False
    log_dir: str = "mirrortest-logs"
    log_spool: str = "mirrortest-spool"
    log_detail: Detail = Detail.INTERVALS
    metrics_port: int = 0
    metrics_address: str = "127.0.0.1"
    notes: tuple[str, ...] = ()
    """What was decided for the user, for the report."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.role is Role.SOURCE:
            self._refuse_mapping()
        if bool(self.topics) == bool(self.topic_pattern):
            raise UsageError("name the topics either by --topics or by --topic-pattern")
        if self.group and self.shard:
            raise UsageError("--consumer-group and --shard exclude each other")
        for option, value in (
            ("--deadline", self.deadline),
            ("--settle-time", self.settle_time),
            ("--state-interval", self.state_interval),
        ):
            if value < 0:
                raise UsageError(f"{option} must not be negative")

    @property
    def settings(self) -> dict[str, str]:
        """What was asked for, for people to read in reports; nothing of it is secret."""
        asked = {
            "bootstrap servers": ",".join(self.client.bootstrap_servers),
            "topics": self.topic_pattern or ",".join(self.topics),
            "consumer group": self.group or "",
            "shard": str(self.shard or ""),
            "ledger": self.ledger_topic
            if self.ledger_client is None
            else f"{self.ledger_topic} at {','.join(self.ledger_client.bootstrap_servers)}",
            "expected producers": ",".join(self.expect_producers),
            "isolation level": self.client.isolation_level.value,
            "client library": "public calls alone" if self.client.portable else "",
            "latencies": "with the backlog" if self.include_backlog else "",
            "duration": "" if self.duration is None else f"{self.duration:g} s",
            "idle timeout": "" if self.idle_timeout is None else f"{self.idle_timeout:g} s",
        }
        return {name: value for name, value in asked.items() if value}

    def _refuse_mapping(self) -> None:
        if self.mapping.prefix or self.mapping.explicit:
            raise UsageError(
                "--role source reads the topics that the producers write: leave out --source-alias "
                "and --topic-map"
            )
        if self.expect_partition is not ExpectPartition.SOURCE:
            raise UsageError(
                "--role source: a message belongs where its producer put it: leave out "
                "--expect-partition"
            )

    @property
    def reader_name(self) -> str:
        """Under what name states are kept: the group's, or that of all shards together."""
        return self.group or "shards"
