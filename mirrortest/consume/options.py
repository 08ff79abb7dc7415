"""The options of a consumer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mirrortest.config.client_config import ClientConfig
from mirrortest.config.option import POSITIVE_SECONDS, REQUIRED, SECONDS, Kind, choice, option
from mirrortest.config.run_naming import TopicMapping, checked_topic, checked_topics
from mirrortest.config.suggestion import closest, did_you_mean
from mirrortest.config.threshold import Threshold
from mirrortest.config.units import exact_seconds
from mirrortest.errors import UsageError
from mirrortest.metrics.options import MetricsOptions
from mirrortest.seqlog.options import LogOptions, Role
from mirrortest.verify.placement import ExpectPartition
from mirrortest.wire.stream import checked_name, checked_run

CONSUMER_DEFAULTS = {
    "client.id": "mirrortest-consume",
    "max.partition.fetch.bytes": str(4 << 20),
    "fetch.max.bytes": str(8 << 20),
}
"""All records that a response has of a partition are judged together: the more, the less CPU per
message. The size of a response bounds the memory; there are up to three. Twice these values cost
the same per message, and 15 MB more per process."""
READ_COMMITTED = {"isolation.level": "read_committed"}
"""For runs that expect exactly-once: a message of an aborted transaction was not delivered."""


@dataclass(frozen=True)
class Shard:
    """A fixed share of the partitions: those whose number is `index - 1` modulo `of`."""

    index: int
    of: int

    @classmethod
    def parse(cls, text: str, *, option: str = "--shard") -> Shard:
        """Parse ``2/5``, the second of five shares. Raises UsageError."""
        first, slash, second = text.partition("/")
        if not (slash and first.isdecimal() and second.isdecimal()):
            raise UsageError(f"{option} {text!r}: write it as INDEX/OF, for example 2/5")
        shard = cls(int(first), int(second))
        if shard.of < 1:
            raise UsageError(f"{option} {text!r}: OF must be at least 1, for example 1/1")
        if not 1 <= shard.index <= shard.of:
            runs = f"runs from 1 to {shard.of}" if shard.of > 1 else "of a single shard is 1"
            raise UsageError(f"{option} {text!r}: the index {runs}")
        return shard

    def __contains__(self, partition: int) -> bool:
        return partition % self.of == self.index - 1

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"


_STATES = "mirrortest.state"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{exact_seconds(seconds)} s"


_FLAGS = re.compile(r"\(\?([aimsux]+)\)")


def checked_pattern(text: str, *, option: str) -> str:
    """Check a regular expression, and return it so that it can be part of another one.

    Global flags like ``(?i)`` are allowed only where an expression begins: they become
    ``(?i:...)``. Raises UsageError.
    """
    try:
        re.compile(text)
        if flags := _FLAGS.match(text):
            text = f"(?{flags[1]}:{text[flags.end() :]})"
        re.compile(f"(?:{text})")
    except re.error as error:
        raise UsageError(f"{option} {text!r}: {error}") from error
    return text


def _parse_group(text: str, *, option: str) -> str:
    if not text.strip():
        raise UsageError(f"{option} is empty: name the group, or leave it out")
    return text


def _parse_producers(text: str, *, option: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError(f"{option} names no producer: use NAME[,NAME...], or leave it out")
    return tuple(checked_name(name, option=option) for name in names)


_ENDS = ("complete", "forever")


def _parse_until(text: str, *, option: str) -> bool:
    if text not in _ENDS:
        raise UsageError(f"{option} {text!r}: {did_you_mean(text, _ENDS)}")
    return text == "complete"


def _show_until(complete: bool) -> str:
    return "complete" if complete else "forever"


_UNTIL = Kind(
    _parse_until,
    show=_show_until,
    metavar="|".join(_ENDS),
    values=_ENDS,
)


@dataclass(frozen=True, kw_only=True)
class ConsumeOptions(LogOptions, MetricsOptions):
    """A validated request, and the options of `mirrortest consume` that give it.

    A `CONSUMER` judges the mirror's copy. A `SOURCE` observes the topics that the producers write:
    then everything said here about the destination is about the source.
    `topics` are names in the destination; `topic_pattern` is a regular expression that matches
    them. Times are in seconds. `group` and `shard` exclude each other.

    Raises:
        UsageError: options contradict each other.
    """

    run: str = option(
        REQUIRED,
        "The run to judge: the producers' --run.",
        kind=Kind(checked_run, metavar="RUN"),
        env=True,
    )
    name: str
    client: ClientConfig
    mapping: TopicMapping
    thresholds: tuple[Threshold, ...]
    role: Role = option(
        Role.CONSUMER,
        "Judge the mirror's copy, or observe the source. With an observer the "
        "reconciliation reports where a message was lost.",
        kind=choice(Role, Role.CONSUMER, Role.SOURCE),
        env=True,
    )
    topics: tuple[str, ...] = option(
        (),
        "Topics to read there, separated by commas.",
        kind=Kind(checked_topics, show=",".join, metavar="TOPIC[,...]"),
        aliases=("--topic",),
        env=True,
    )
    topic_pattern: str | None = option(
        None,
        "A regular expression over the topics there.",
        kind=Kind(checked_pattern, metavar="REGEX"),
    )
    group: str | None = option(
        None,
        "Share the partitions in a Kafka consumer group.",
        name="--consumer-group",
        kind=Kind(_parse_group, metavar="NAME"),
        aliases=("--group",),
    )
    shard: Shard | None = option(
        None, "Take a fixed part of the partitions.", kind=Kind(Shard.parse, metavar="INDEX/OF")
    )
    ledger_topic: str = option(
        "mirrortest.ledger",
        "Ledger topic (its name in the source cluster).",
        kind=Kind(checked_topic, metavar="TOPIC"),
        env=True,
    )
    ledger_client: ClientConfig | None = None
    state_topic: str = option(
        _STATES,
        "Topic for the consumers' saved states, in the cluster that is read.",
        kind=Kind(checked_topic, metavar="TOPIC"),
    )
    expect_producers: tuple[str, ...] = option(
        (),
        "Producers that must appear, separated by commas.",
        kind=Kind(_parse_producers, show=",".join, metavar="NAME[,...]"),
    )
    expect_partition: ExpectPartition = option(
        ExpectPartition.SOURCE, "Where a message belongs in the destination."
    )
    deadline: float = option(
        60.0, "After this long, an acknowledged message not seen is lost.", kind=SECONDS
    )
    until_complete: bool = option(
        True,
        "Exit once every acknowledged message has a verdict, or only on a signal.",
        name="--until",
        kind=_UNTIL,
    )
    num_records: int | None = option(
        None,
        "Exit once this many messages were read, of whatever run.",
        aliases=("--messages",),
        minimum=1,
    )
    from_latest: bool = option(
        False,
        "Read only what arrives from now on, unless a saved state has a position. Earlier records "
        "are not judged: missing messages may be among them, and are inconclusive.",
    )
    duration: float | None = option(None, "Exit after this long.", kind=POSITIVE_SECONDS)
    idle_timeout: float | None = option(
        None, "Exit after this long without a message.", kind=POSITIVE_SECONDS
    )
    settle_time: float = option(
        5.0, "Silence to wait for late copies once all is judged.", kind=SECONDS
    )
    state_interval: float = option(5.0, "Time between two saves of the state.", kind=SECONDS)
    include_backlog: bool = option(
        False,
        "Also measure latencies of messages that were in a partition before this consumer took "
        "it, or that may have arrived while it was stalled: their age when it read them.",
    )
    notes: tuple[str, ...] = ()
    """Decisions made for the user; the report shows them."""
    worker: str = ""
    """Which worker this is, for example ``2 of 4``; empty without --workers."""
    asked: ConsumeOptions | None = None
    """What the user asked of all workers together; None without --workers."""

    def __post_init__(self) -> None:
        """Refuse options that contradict each other."""
        if self.role is Role.SOURCE:
            self._refuse_mapping()
        if bool(self.topics) == bool(self.topic_pattern):
            raise UsageError("name the topics either by --topics or by --topic-pattern")
        self._refuse_unused_names()
        if self.group and self.shard:
            raise UsageError("--consumer-group and --shard exclude each other")
        for name, value in (
            ("--deadline", self.deadline),
            ("--settle-time", self.settle_time),
            ("--state-interval", self.state_interval),
        ):
            if value < 0:
                raise UsageError(f"{name} must not be negative")

    @property
    def settings(self) -> dict[str, str]:
        """The options that were set, as text for reports; contains no secrets."""
        asked = self.asked or self
        shown = {
            "bootstrap servers": ",".join(self.client.bootstrap_servers),
            "topics": self.topic_pattern or ",".join(self.topics),
            "topic names": "" if self.role is Role.SOURCE else self.mapping.options,
            "consumer group": self.group or "",
            "worker": self.worker,
            "shard": "" if self.shard is None else str(asked.shard or Shard(1, 1)),
            "ledger": self.ledger_topic
            if self.ledger_client is None
            else f"{self.ledger_topic} at {','.join(self.ledger_client.bootstrap_servers)}",
            "state topic": "" if self.state_topic == _STATES else self.state_topic,
            "expected producers": ",".join(self.expect_producers),
            "isolation level": self.client.isolation_level.value,
            "client library": "public API only" if self.client.portable else "",
            "latencies": "with the backlog" if self.include_backlog else "",
            "records": "" if asked.num_records is None else f"{asked.num_records:,}",
            "beginning": "from the partitions' ends on" if self.from_latest else "",
            "until": "" if asked.until_complete else "forever",
            "duration": _seconds(asked.duration),
            "idle timeout": _seconds(asked.idle_timeout),
        }
        return {name: value for name, value in shown.items() if value}

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

    def _refuse_unused_names(self) -> None:
        """Refuse a --topic-map of a topic that is not read: it is probably misspelt."""
        for topic, source in self.mapping.explicit.items():
            if source == self.ledger_topic:
                continue
            if self.topic_pattern is None:
                used = topic in self.topics
            else:
                used = re.fullmatch(self.topic_pattern, topic) is not None
            if not used:
                meant = closest(topic, self.topics)
                raise UsageError(
                    f"--topic-map {topic}={source}: {topic!r} is not read"
                    + (f"; did you mean {meant}={source}?" if meant else ": add it to --topics")
                )

    @property
    def reader_name(self) -> str:
        """The name under which states are saved: the group's, or one for all shards."""
        return self.group or "shards"
