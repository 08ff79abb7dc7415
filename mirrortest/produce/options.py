"""What a producer is asked to do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrortest.errors import UsageError
from mirrortest.seqlog.batches import Detail
from mirrortest.wire.message import Form
from mirrortest.wire.payload import MAX_SIZE

if TYPE_CHECKING:
    from mirrortest.config.client import ClientConfig

PRODUCER_DEFAULTS = {"client.id": "mirrortest-produce", "batch.size": str(1 << 20)}
"""A batch costs much, a message in it little; `linger.ms` bounds how long a message waits."""
"""Client properties where this application's defaults are not the Java client's."""

_MAX_PARTITIONS = (1 << 16) - 1


@dataclass(frozen=True, kw_only=True)
class NewTopics:
    """How missing topics are made, by default with one partition; the rest is the brokers' to say.

    Topics that exist must have as many `partitions`, if a number is given.
    """

    partitions: int | None = None
    replication_factor: int | None = None
    retention_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class ProduceOptions:
    """A validated request.

    `throughput` (messages/s, None: unlimited), `num_records` and `warmup_records` are of each
    topic. `message_size` is bytes of record value; durations are ns. `destination_partitions` is
    None where the destination's topics have as many partitions as the source's. `create` is None
    where topics must exist. `log_spool` is a local folder for what is not finished while
    `log_dir` is no local one.

    Raises:
        UsageError: a value is out of range, or values contradict each other.
    """

    run: str
    name: str
    client: ClientConfig
    topics: tuple[str, ...]
    throughput: float | None = None
    num_records: int | None = None
    duration_ns: int | None = None
    warmup_records: int = 0
    message_size: int = 1000
    form: Form = Form.BODY
    destination_partitions: int | None = None
    create: NewTopics | None = None
    ledger_topic: str = "mirrortest.ledger"
    log_dir: str = "mirrortest-logs"
    log_spool: str = "mirrortest-spool"
    log_detail: Detail = Detail.INTERVALS
    metrics_port: int = 0
    metrics_address: str = "127.0.0.1"
    drain_timeout: float = 30.0

    def __post_init__(self) -> None:
        """Refuse what cannot be done."""
        if not self.topics:
            raise UsageError("no topic is given: say --topics NAME[,NAME...]")
        if len(set(self.topics)) < len(self.topics):
            raise UsageError("--topics names a topic twice")
        if self.ledger_topic in self.topics:
            raise UsageError(f"--topics: {self.ledger_topic!r} is the ledger's topic")
        if self.throughput is not None and not 0 < self.throughput < math.inf:
            raise UsageError("--throughput is a positive number of messages/s; -1 is unlimited")
        if self.num_records is not None and self.num_records < 1:
            raise UsageError("--num-records must be at least 1")
        if self.duration_ns is not None and self.duration_ns <= 0:
            raise UsageError("--duration must be longer than 0")
        self._check_warmup()
        if not 0 <= self.message_size <= MAX_SIZE:
            raise UsageError(f"--message-size must be in 0..{MAX_SIZE}")
        if self.drain_timeout < 0:
            raise UsageError("--drain-timeout must not be negative")
        counts = {"--destination-partitions": self.destination_partitions}
        if self.create is not None:
            counts["--partitions"] = self.create.partitions
            counts["--replication-factor"] = self.create.replication_factor
        for option, count in counts.items():
            if count is not None and not 1 <= count <= _MAX_PARTITIONS:
                raise UsageError(f"{option} must be in 1..{_MAX_PARTITIONS}")

    @property
    def settings(self) -> dict[str, str]:
        """What was asked for, for people to read in reports; nothing of it is secret."""
        client = self.client
        asked = {
            "bootstrap servers": ",".join(client.bootstrap_servers),
            "throughput": "unlimited" if self.throughput is None else f"{self.throughput:g}/s",
            "records": "" if self.num_records is None else f"{self.num_records:,}",
            "duration": "" if self.duration_ns is None else f"{self.duration_ns / 1e9:g} s",
            "warm-up records": f"{self.warmup_records:,}" if self.warmup_records else "",
            "message size": f"{self.message_size:,} bytes",
            "form": self.form.value,
            "acks": "all" if client.acks == -1 else str(client.acks),
            "idempotence": "" if client.enable_idempotence is not False else "off",
            "compression": client.compression_type.value,
            "linger": f"{client.linger_ms} ms",
            "client library": "public calls alone" if client.portable else "",
        }
        return {name: value for name, value in asked.items() if value}

    def _check_warmup(self) -> None:
        if self.warmup_records < 0:
            raise UsageError("--warmup-records must not be negative")
        if self.num_records is not None and self.warmup_records >= self.num_records:
            raise UsageError(
                f"--warmup-records {self.warmup_records} leaves nothing of --num-records "
                f"{self.num_records}: it must be smaller"
            )
