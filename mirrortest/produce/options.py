"""The options of a producer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields, replace

from mirrortest.config.client_config import ClientConfig
from mirrortest.config.option import SECONDS, Kind, option
from mirrortest.config.run_naming import checked_topic
from mirrortest.config.shape import Replay, SizeFile
from mirrortest.config.units import exact_seconds
from mirrortest.errors import UsageError
from mirrortest.metrics.options import MetricsOptions
from mirrortest.produce.new_topics import EXISTING_TOPICS, NewTopics
from mirrortest.produce.workload import (
    LOAD_PROPERTIES,
    Sending,
    WholeWorkload,
    Workload,
)
from mirrortest.seqlog.options import LogOptions
from mirrortest.wire.own_payloads import Payloads  # the command line reads it

PRODUCER_DEFAULTS = {
    "client.id": "mirrortest-produce",
    "batch.size": str(1 << 20),
    "linger.ms": "12",
}
"""Client properties whose defaults differ from the Java client's.

A batch costs much, a message in it little; `linger.ms` bounds how long a message waits. At a given
rate a request costs the same whatever its size, and with Java's 5 ms there are twice as many.
"""


@dataclass(frozen=True)
class Share:
    """A producer's share where `of` producers send a topic's messages together.

    The producer sends message *i* if *i* modulo `of` is `index`. Each producer has all lanes;
    `lane` numbers them among the lanes of all producers.
    """

    index: int = 0
    of: int = 1

    def lane(self, index: int, lanes: int) -> tuple[int, int]:
        """The position of the producer's `index`-th lane among those of all, and their number."""
        return self.index + self.of * index, self.of * lanes


ALL_MESSAGES = Share()
"""The share of a single producer."""


@dataclass(frozen=True, kw_only=True)
class ProduceOptions(Workload, LogOptions, MetricsOptions):
    """The validated options of `mirrortest produce`.

    The workload is that of all producers together; this one sends its `share`.

    Raises:
        UsageError: a value is out of range, or values contradict each other.
    """

    run: str
    name: str
    client: ClientConfig
    create: NewTopics = EXISTING_TOPICS
    share: Share = ALL_MESSAGES
    payloads: Payloads | None = field(default=None, compare=False)
    """The payloads in `payload_file`."""
    ledger_topic: str = option(
        "mirrortest.ledger",
        "Compacted topic where producers record what was acknowledged; created if missing.",
        kind=Kind(checked_topic, metavar="TOPIC"),
        env=True,
    )
    drain_timeout: float = option(
        30.0,
        "After a signal, how long to wait for acknowledgements, and then for the ledger.",
        kind=SECONDS,
        env=True,
    )

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        if self.ledger_topic in self.topics:
            raise UsageError(f"--topics: {self.ledger_topic!r} is the ledger's topic")
        if not self.create.create_topics and self.create != EXISTING_TOPICS:
            raise UsageError(
                "--partitions, --replication-factor, --retention and --topic-config describe new "
                "topics: add --create-topics"
            )
        if self.drain_timeout < 0:
            raise UsageError("--drain-timeout must not be negative")

    def resolved(self) -> ProduceOptions:
        """The same options, with a relative start as a time, and with the content of named files.

        Raises:
            UsageError: a file cannot be read, or its content is wrong.
        """
        # Imports pyarrow, which --help must not wait for.
        from mirrortest.produce.input_files import (  # noqa: PLC0415
            read_payloads,
            read_replay,
            read_sizes,
        )

        throughput, size, start = self.throughput, self.message_size, self.start_at
        if start is not None and start.at_ns is None:
            start = replace(start, at_ns=time.time_ns() + start.after_ns)
        return replace(
            self,
            throughput=read_replay(throughput) if isinstance(throughput, Replay) else throughput,
            message_size=read_sizes(size) if isinstance(size, SizeFile) else size,
            start_at=start,
            payloads=None
            if self.payload_file is None
            else read_payloads(self.payload_file, self.payload_delimiter),
        )

    @property
    def workload(self) -> WholeWorkload:
        """The load as one value, without connections, names and log directories."""
        client = self.client
        default_texts = ClientConfig.from_properties(
            {**client.texts(("acks",)), "bootstrap.servers": "localhost:9092"},
            defaults=PRODUCER_DEFAULTS,
        ).texts(LOAD_PROPERTIES)
        given = client.texts(LOAD_PROPERTIES).items() - default_texts.items()
        parts = ((Workload, self), (NewTopics, self.create), (Sending, Sending.of(client)))
        return WholeWorkload(
            command_property=sorted(f"{key}={value}" for key, value in given) or None,
            **{each.name: getattr(part, each.name) for of, part in parts for each in fields(of)},
        )

    @property
    def largest_size(self) -> int:
        """The largest size of a message's value, in bytes."""
        if self.payloads is not None:
            return self.payloads.largest
        size = self.message_size
        return size if isinstance(size, int) else size.largest

    @property
    def _shown_size(self) -> str:
        if self.payloads is not None:
            return self.payloads.shown
        size = self.message_size
        return f"{size:,} bytes" if isinstance(size, int) else str(size)

    @property
    def settings(self) -> dict[str, str]:
        """The options as text for reports; nothing in it is secret."""
        client = self.client
        asked = {
            "bootstrap servers": ",".join(client.bootstrap_servers),
            "ledger": self.ledger_topic,
            "throughput": self.shown_throughput,
            "seed": str(self.seed) if self.drawn else "",
            "worker": f"{self.share.index + 1} of {self.share.of}" if self.share.of > 1 else "",
            "records": "" if self.num_records is None else f"{self.num_records:,}",
            "duration": ""
            if self.duration_ns is None
            else f"{exact_seconds(self.duration_ns / 1e9)} s",
            "warm-up records": f"{self.warmup_records:,}" if self.warmup_records else "",
            "message size": self._shown_size,
            "payload file": "" if self.payloads is None else self.payloads.source,
            "payload compressibility": (
                f"{self.payload_compressibility} %" if self.payload_compressibility else ""
            ),
            "batch messages": "" if self.batch_messages is None else str(self.batch_messages),
            "start": "" if self.start_at is None else self.start_at.shown,
            "partition": "" if self.only_partition is None else str(self.only_partition),
            "form": self.form.value,
            "acks": Sending.of(client).acks or "",
            "idempotence": "" if client.enable_idempotence is not False else "off",
            "compression": client.compression_type.value,
            "linger": f"{client.linger_ms} ms",
            "client library": "public API only" if client.portable else "",
        }
        return {name: value for name, value in asked.items() if value}
