"""What a consumer is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrortest.check.routing import ExpectPartition
from mirrortest.errors import UsageError
from mirrortest.seqlog.batches import Detail

if TYPE_CHECKING:
    from mirrortest.config.client import ClientConfig
    from mirrortest.config.run import TopicMapping
    from mirrortest.config.threshold import Threshold


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
        if not 1 <= shard.index <= shard.of:
            raise UsageError(f"--shard {text!r}: the index runs from 1 to {max(shard.of, 1)}")
        return shard

    def __contains__(self, partition: int) -> bool:
        return partition % self.of == self.index - 1

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"


@dataclass(frozen=True, kw_only=True)
class ConsumeOptions:
    """A validated request.

    `topics` are names in the destination; `topic_pattern` is a regular expression over them.
    Times are seconds. `group` and `shard` exclude each other.

    Raises:
        UsageError: options contradict each other.
    """

    run: str
    name: str
    client: ClientConfig
    mapping: TopicMapping
    thresholds: tuple[Threshold, ...]
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
    log_dir: str = "mirrortest-logs"
    log_detail: Detail = Detail.INTERVALS
    metrics_port: int = 0
    metrics_address: str = "127.0.0.1"

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
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
    def reader_name(self) -> str:
        """Under what name states are kept: the group's, or that of all shards together."""
        return self.group or "shards"
