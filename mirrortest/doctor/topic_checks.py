"""Topics of one cluster as its brokers describe them, and the checks of each for a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mirrortest.config.units import number, span
from mirrortest.doctor.check import Check, Level
from mirrortest.errors import ClusterError
from mirrortest.kafka.admin import DEFAULT_MAX_MESSAGE_BYTES, stamps_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.kafka.admin import Admin
    from mirrortest.kafka.ports import Operation

_SHORT_RETENTION_MS = 3_600_000
_SMALL_RETENTION_BYTES = 1 << 30
"""An hour of 300 kB/s in one partition."""
_OLDEST = ("message.timestamp.before.max.ms", "message.timestamp.difference.max.ms")
"""Limits of a record's age, ms; the second is the first's older name."""
_UNBOUNDED_MS = (1 << 63) - 1


class Topic(NamedTuple):
    """A topic that exists.

    Attributes:
        records: how many offsets its partitions span; a compacted topic has fewer records.
        config: its configuration; None if our principal cannot read it.
        operations: what our principal is allowed to do; None if the cluster does not report it.
    """

    name: str
    partitions: int
    records: int
    config: dict[str, str] | None
    operations: frozenset[Operation] | None

    @property
    def compacted(self) -> bool:
        """Whether its cleanup policy compacts it; False if that is unknown."""
        return "compact" in (self.config or {}).get("cleanup.policy", "")

    @property
    def most_bytes(self) -> int | None:
        """Its `max.message.bytes`; None if that is unknown."""
        if self.config is None:
            return None
        return int(self.config.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES))

    @property
    def retention_ms(self) -> int:
        """Its `retention.ms`; -1 if that is unknown, or it deletes nothing by age."""
        return int((self.config or {}).get("retention.ms", -1))

    @property
    def retention_bytes(self) -> int:
        """Its `retention.bytes`; -1 if that is unknown, or it deletes nothing by size."""
        return int((self.config or {}).get("retention.bytes", -1))

    @property
    def kept(self) -> str:
        """How long, and up to which size, it keeps records; empty if without a limit."""
        limits = []
        if self.retention_ms >= 0:
            limits.append(f"for {span(self.retention_ms * 1_000_000)}")
        if self.retention_bytes >= 0:
            limits.append(f"up to {self.retention_bytes:,} bytes a partition")
        return ", ".join(limits)


async def described(admin: Admin, names: Iterable[str]) -> dict[str, Topic]:
    """Describe those of these topics that exist.

    Raises:
        ClusterError: the cluster does not answer, or refuses.
    """
    counts = await admin.partition_counts(names)
    operations = await admin.permitted_operations(counts)
    partitions = [(name, number) for name, count in counts.items() for number in range(count)]
    begins, ends = await admin.beginning_offsets(partitions), await admin.end_offsets(partitions)
    records = dict.fromkeys(counts, 0)
    for at, end in ends.items():
        records[at.topic] += end - begins[at]
    return {
        name: Topic(name, count, records[name], await _config(admin, name), operations.get(name))
        for name, count in counts.items()
    }


async def _config(admin: Admin, name: str) -> dict[str, str] | None:
    try:
        return await admin.topic_config(name)
    except ClusterError:
        return None  # describing configurations is a permission of its own


def permission_checks(
    subject: str, topic: Topic, needed: Iterable[Operation], wanted: Iterable[Operation] = ()
) -> Iterator[Check]:
    """Report operations that our principal lacks: `needed` as errors, `wanted` as warnings."""
    if topic.operations is None:
        return
    for level, operations, without in (
        (Level.ERROR, needed, ""),
        (Level.WARNING, wanted, ": cannot check whether it is compacted"),
    ):
        missing = [each for each in operations if each not in topic.operations]
        if missing:
            names = " and ".join(each.shown for each in missing)
            yield Check(
                level,
                subject,
                f"this principal may not {names} {topic.name}{without}",
                f"grant {names} on topic {topic.name}",
            )


def message_topic_checks(subject: str, topic: Topic) -> Iterator[Check]:
    """Check a topic of messages: its partitions, retention and compaction."""
    found = f"{topic.name}: {number(topic.partitions, 'partition')}"
    if topic.config is None:
        yield Check(Level.OK, subject, f"{found}; no permission to read its configuration")
        return
    if topic.compacted:
        yield Check(
            Level.WARNING,
            subject,
            f"{found}, compacted: a message whose key comes again may be removed, and then counts "
            "as compacted, not as lost",
            "use a topic with cleanup.policy=delete, unless compaction is part of the test",
        )
        if topic.config["cleanup.policy"] == "compact":
            return  # it deletes nothing by age or size
    short = []
    if 0 <= topic.retention_ms < _SHORT_RETENTION_MS:
        short.append("retention.ms above the longest outage of the test")
    if 0 <= topic.retention_bytes < _SMALL_RETENTION_BYTES:
        short.append("retention.bytes above what a partition gets in the longest outage")
    found += f", keeps records {topic.kept or 'for ever'}"
    if short:
        yield Check(
            Level.WARNING,
            subject,
            f"{found}: a consumer or mirror that stops for longer misses messages",
            f"raise {', and '.join(short)}",
        )
    else:
        yield Check(Level.OK, subject, found)


def timestamp_checks(subject: str, topic: Topic) -> Iterator[Check]:
    """Check whether a topic replaces timestamps, or refuses records because of them."""
    config = topic.config or {}
    if stamps_records(config):
        yield Check(
            Level.WARNING,
            subject,
            f"{topic.name} has message.timestamp.type=LogAppendTime, so its brokers replace "
            "timestamps: whether the mirror alters them cannot be judged",
            f"set message.timestamp.type=CreateTime on {topic.name}, unless that is part of the "
            "test",
        )
        return
    oldest_ms = min(int(config.get(name, _UNBOUNDED_MS)) for name in _OLDEST)
    if oldest_ms < _UNBOUNDED_MS:
        yield Check(
            Level.WARNING,
            subject,
            f"{topic.name} takes no records older than {span(oldest_ms * 1_000_000)}: a mirror "
            "that is behind by more stops there, or drops them",
            f"remove message.timestamp.before.max.ms from {topic.name}, or raise it above the "
            "longest outage of the test",
        )


def table_topic_check(subject: str, topic: Topic) -> Check:
    """Check a topic that is a table (ledger, states): one partition, compacted only."""
    if topic.partitions != 1:
        return Check(
            Level.ERROR,
            subject,
            f"{topic.name} has {topic.partitions} partitions and must have one",
            "delete it, or give another name",
        )
    policy = (topic.config or {}).get("cleanup.policy", "compact")
    if policy != "compact":
        return Check(
            Level.ERROR,
            subject,
            f"{topic.name} has cleanup.policy={policy}: its records are deleted with time",
            f"set cleanup.policy=compact on {topic.name}",
        )
    shown = "compacted" if topic.config is not None else "no permission to read its configuration"
    return Check(Level.OK, subject, f"{topic.name}: one partition, {shown}")


def ledger_copy_check(subject: str, copy: Topic) -> Check:
    """Check the ledger's copy: one partition, and no record that is deleted with time."""
    if copy.partitions != 1:
        return Check(
            Level.ERROR,
            subject,
            f"{copy.name} has {copy.partitions} partitions: consumers read only the first",
            "let the mirror create it anew with one partition",
        )
    deletes = "delete" in (copy.config or {}).get("cleanup.policy", "")
    if deletes and copy.kept:
        return Check(
            Level.WARNING,
            subject,
            f"{copy.name} keeps records {copy.kept}: consumers that start or restart after that do "
            "not learn which messages were acknowledged",
            f"set cleanup.policy=compact on {copy.name}",
        )
    return Check(Level.OK, subject, f"{copy.name}: {number(copy.records, 'offset')}")
