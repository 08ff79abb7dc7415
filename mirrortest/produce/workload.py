"""A load as one value: its topics, rate, sizes, batches, payload and how it is sent.

The command line and files use the same names: a key of `--workload FILE` is the name of an option.
Connections, names and log directories are not part of a load.
"""

from __future__ import annotations

import re
from collections.abc import Iterator  # noqa: TC003  # the command line reads types
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from mirrortest.config.client_config import (  # noqa: TC001  # the command line reads types
    ClientConfig,
    Compression,
)
from mirrortest.config.option import NANOSECONDS, REQUIRED, Kind, option
from mirrortest.config.run_naming import checked_topics
from mirrortest.config.shape import (
    BATCH_FORMS,
    FASTEST,
    RATE_FORMS,
    SIZE_FORMS,
    SLOWEST,
    Choice,
    Gaussian,
    RateShape,
    Replay,
    Shape,
    SizeShape,
    Uniform,
    parse_shape,
)
from mirrortest.config.suggestion import did_you_mean
from mirrortest.config.units import (
    SECOND_NS,
    exact_number,
    parse_count,
    parse_duration,
    parse_number,
    parse_size,
)
from mirrortest.config.visible import uri_without_secrets
from mirrortest.errors import UsageError
from mirrortest.produce.new_topics import NewTopics, check_count
from mirrortest.wire.form import Form
from mirrortest.wire.payload import MAX_SIZE, MOST_COMPRESSIBLE

_HIGHEST_SEED = (1 << 63) - 1
_UNLIMITED = -1
_DEFAULT_SIZE = 1000
_DELIMITER = re.compile(r"([^\\]|\\[\\0nrt]|\\x[0-9A-Fa-f]{2})+", re.DOTALL)


def _parse_throughput(text: str, *, option: str) -> float | RateShape | None:
    if text.strip() == str(_UNLIMITED):
        return None
    shape: RateShape | None = parse_shape(text, RATE_FORMS, option=option)
    if shape is not None:
        return shape
    try:
        rate = parse_number(text, option=option)
    except UsageError as error:
        raise UsageError(f"{error}; -1 is unlimited") from None
    if not SLOWEST <= rate <= FASTEST:
        raise UsageError(
            f"{option} {text!r}: must be in {SLOWEST:g}..{FASTEST:g} messages/s; -1 is unlimited"
        )
    return float(rate)


def _parse_message_size(text: str, *, option: str) -> int | SizeShape:
    shape: SizeShape | None = parse_shape(text, SIZE_FORMS, option=option)
    return parse_size(text, option=option) if shape is None else shape


def _parse_batch(text: str, *, option: str) -> int | Gaussian:
    shape: Gaussian | None = parse_shape(text, BATCH_FORMS, option=option)
    return parse_count(text, option=option, minimum=1) if shape is None else shape


@dataclass(frozen=True)
class StartTime:
    """When a schedule begins: at a time (ns since the epoch), or `after_ns` from now."""

    text: str
    at_ns: int | None = None
    after_ns: int = 0

    def __str__(self) -> str:
        return self.text

    @property
    def shown(self) -> str:
        """The time as text, in UTC; as typed while it is relative."""
        if self.at_ns is None:
            return self.text
        return datetime.fromtimestamp(self.at_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def _parse_start(text: str, *, option: str) -> StartTime:
    if text.startswith("+"):
        return StartTime(text, after_ns=parse_duration(text[1:], option=option))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise UsageError(
            f"{option} {text!r}: write a time with its offset, for example 2026-01-31T08:00:00Z, "
            "or +30s"
        )
    return StartTime(text, int(moment.timestamp()) * SECOND_NS + moment.microsecond * 1000)


def _show_throughput(rate: float | RateShape | None) -> str:
    if isinstance(rate, float):
        return exact_number(rate)
    return str(_UNLIMITED) if rate is None else str(rate)


def _parse_percent(text: str, *, option: str) -> int:
    percent = 100 * parse_number(text, option=option)
    if not 0 <= percent <= MOST_COMPRESSIBLE or percent.denominator != 1:
        raise UsageError(f"{option} {text!r}: must be in 0..1, in hundredths: 0.3")
    return int(percent)


def _parse_file(text: str, *, option: str) -> str:
    if not text:
        raise UsageError(f"{option}: must be a file")
    return text


def _show_file(path: str | None) -> str:
    return "" if path is None else uri_without_secrets(path)


def _parse_delimiter(text: str, *, option: str) -> str:
    if _DELIMITER.fullmatch(text) is None:
        raise UsageError(
            f"{option} {text!r}: write the text between two payloads; a newline is \\n, a byte "
            "\\x1e, a backslash \\\\"
        )
    return text


@dataclass(frozen=True, kw_only=True)
class Sending:
    """Client properties with options of their own, which override --command-property."""

    acks: str | None = option(
        None,
        "Default all, idempotent. With 0 every message's outcome stays unknown; with 1 the source "
        "may lose what it acknowledged.",
        env=True,
        metavar="all|1|0",
    )
    compression: Compression | None = option(
        None,
        "Of record batches: none (default), gzip, snappy, lz4, zstd.",
        env=True,
        metavar="CODEC",
    )
    linger_ms: int | None = option(
        None, "Wait this long for a batch to fill up. Default 12.", env=True, minimum=0
    )

    @classmethod
    def of(cls, client: ClientConfig) -> Self:
        """The values in a client's configuration."""
        acks = "all" if client.acks == -1 else str(client.acks)
        return cls(acks=acks, compression=client.compression_type, linger_ms=client.linger_ms)

    def properties(self) -> Iterator[str]:
        """The given properties as KEY=VALUE, with Kafka's names."""
        for key, value in (
            ("acks", self.acks),
            ("compression.type", self.compression),
            ("linger.ms", self.linger_ms),
        ):
            if value is not None:
                yield f"{key}={value}"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What all producers of a load together send to each topic, and when.

    `throughput` is messages/s or a shape (None: unlimited); `num_records` and `warmup_records` are
    for each topic. `message_size` is bytes of record value; durations are ns.
    `destination_partitions` is None if the destination's topics have as many partitions as the
    source's.

    Raises:
        UsageError: a value is out of range, or values contradict each other.
    """

    topics: tuple[str, ...] = option(
        REQUIRED,
        "The topics to write to; load[1-8] are eight.",
        kind=Kind(checked_topics, show=",".join, metavar="TOPIC[,...]"),
        aliases=("--topic",),
        env=True,
    )
    throughput: float | RateShape | None = option(
        None,
        "Messages/s for each topic, at most twice as many while it catches up; -1: as fast as "
        "possible. Or a shape: "
        "gaussian(500, 50, every=10s), ramp(0, 5k, 10m), steps(100 for 1m, 500 for 5m), "
        "burst(100, 1k, every=1m, for=5s), sine(500, 400, 10m), replay(FILE).",
        kind=Kind(_parse_throughput, show=_show_throughput, metavar="RATE|SHAPE"),
        env=True,
    )
    seed: int = option(
        0,
        "What random shapes draw from: the same seed, topic and shape give the same load.",
        minimum=0,
        maximum=_HIGHEST_SEED,
        env=True,
    )
    num_records: int | None = option(None, "Stop after this many messages to each topic.", env=True)
    duration_ns: int | None = option(
        None,
        "How long the load lasts: 30s, 10m, 1h30m; messages that are late then are still sent. "
        "Without this and --num-records, a signal ends the run.",
        name="--duration",
        kind=NANOSECONDS,
        env=True,
    )
    warmup_records: int = option(
        0,
        "Leave each topic's first messages out of the steady-state summary. They are "
        "judged like all others.",
        env=True,
    )
    message_size: int | SizeShape = option(
        _DEFAULT_SIZE,
        "Size of a message's value, its header included: 900, 64KiB. Or a shape: "
        "gaussian(512, 100, every=100), uniform(100, 1kB), choice(100:0.9, 10kB:0.1), file(FILE).",
        kind=Kind(_parse_message_size, metavar="SIZE|SHAPE"),
        env=True,
    )
    payload_compressibility: int = option(
        0,
        "The share of each message's payload (what follows its header) that codecs compress away: "
        "with 0.3 it takes 70 % of its bytes, with 0 all. The header compresses besides.",
        kind=Kind(_parse_percent, show=lambda percent: f"{percent / 100:g}", metavar="SHARE"),
        env=True,
    )
    payload_file: str | None = option(
        None,
        "Send payloads of this file, each message one that is drawn at random (--seed). Needs "
        "--form headers.",
        kind=Kind(_parse_file, show=_show_file, metavar="FILE"),
        env=True,
    )
    payload_delimiter: str = option(
        r"\n",
        r"The text between two payloads of --payload-file, with \n, \t, \0, \x1e, \\.",
        kind=Kind(_parse_delimiter, metavar="TEXT"),
        env=True,
    )
    batch_messages: int | Gaussian | None = option(
        None,
        "Send batches of exactly so many messages, each once its last one is due: 16, or "
        "gaussian(16, 4). Default: what is due within linger.ms.",
        kind=Kind(_parse_batch, metavar="NUMBER|SHAPE"),
        env=True,
    )
    start_at: StartTime | None = option(
        None,
        "When the schedule begins, for producers that start together: 2026-01-31T08:00:00Z, or "
        "+30s from now. What was due before this producer was ready is left out.",
        kind=Kind(_parse_start, metavar="TIME"),
        env=True,
    )
    form: Form = option(
        Form.BODY, "Where a message carries its id: in its body or in Kafka headers.", env=True
    )
    destination_partitions: int | None = option(
        None,
        "Partitions of the destination's topics: one record key is used for each. "
        "Default: as many as the source topic has.",
        env=True,
    )
    only_partition: int | None = option(
        None,
        "Send to this partition of each source topic only.",
        minimum=0,
        env=True,
    )

    def __post_init__(self) -> None:
        """Check the values."""
        if not self.topics:
            raise UsageError("no topic is given: use --topics NAME[,NAME...]")
        if len(set(self.topics)) < len(self.topics):
            raise UsageError("--topics names a topic twice")
        rate = self.throughput
        if isinstance(rate, float | int) and not 0 < rate <= FASTEST:
            raise UsageError("--throughput is a positive number of messages/s; -1 is unlimited")
        if isinstance(self.batch_messages, int) and self.batch_messages < 1:
            raise UsageError("--batch-messages must be at least 1")
        if self.num_records is not None and self.num_records < 1:
            raise UsageError("--num-records must be at least 1")
        if self.duration_ns is not None and self.duration_ns <= 0:
            raise UsageError("--duration must be longer than 0")
        self._check_warmup()
        size = self.message_size
        if not 0 <= (size if isinstance(size, int) else size.largest) <= MAX_SIZE:
            raise UsageError(f"--message-size must be at most {MAX_SIZE >> 20}MiB")
        if not 0 <= self.payload_compressibility <= MOST_COMPRESSIBLE:
            raise UsageError("--payload-compressibility must be in 0..1")
        if self.payload_file is not None:
            self._check_own_payloads()
        check_count("--destination-partitions", self.destination_partitions)

    @property
    def drawn(self) -> bool:
        """Whether anything is drawn from the seed."""
        varying = (self.throughput, self.message_size, self.batch_messages)
        shapes = (isinstance(each, Gaussian | Uniform | Choice) for each in varying)
        return self.payload_file is not None or any(shapes)

    @property
    def shown_throughput(self) -> str:
        """The rate as text."""
        if isinstance(self.throughput, Shape):
            return str(self.throughput)
        return "unlimited" if self.throughput is None else f"{exact_number(self.throughput)}/s"

    def _check_own_payloads(self) -> None:
        if self.form is Form.BODY:
            raise UsageError(
                "--payload-file: the messages' ids must be in headers: add --form headers"
            )
        for name, changed in (
            ("--message-size", self.message_size != _DEFAULT_SIZE),
            ("--payload-compressibility", self.payload_compressibility > 0),
        ):
            if changed:
                raise UsageError(f"{name} and --payload-file contradict each other: leave one out")

    def _check_warmup(self) -> None:
        if self.warmup_records < 0:
            raise UsageError("--warmup-records must not be negative")
        if not self.warmup_records or isinstance(self.throughput, Replay):
            return
        # Imports numpy, which --help must not wait for.
        from mirrortest.produce.pace import planned_messages  # noqa: PLC0415

        planned = planned_messages(self)
        if planned is not None and self.warmup_records >= planned:
            raise UsageError(
                f"--warmup-records {self.warmup_records} leaves nothing of the {planned} messages "
                "that each topic gets: it must be smaller"
            )


LOAD_PROPERTIES = (
    "batch.size",
    "buffer.memory",
    "delivery.timeout.ms",
    "enable.idempotence",
    "max.request.size",
    "request.timeout.ms",
    "retry.backoff.ms",
)
"""Client properties without an option of their own that a load depends on."""


def _load_property(text: str, *, option: str) -> str:
    # No error repeats a value, which may be a secret.
    key, equals, _ = text.partition("=")
    if not equals:
        raise UsageError(f"{option}: write it as KEY=VALUE")
    if key.strip() not in LOAD_PROPERTIES:
        raise UsageError(
            f"{option}: {key!r} is not a load property: {did_you_mean(key, LOAD_PROPERTIES)}; "
            "put connection properties into --command-config"
        )
    return text


@dataclass(frozen=True, kw_only=True)
class WholeWorkload(Sending, NewTopics, Workload):
    """A complete load, as in a workload file and in each result."""

    command_property: list[str] | None = option(
        None, "A client property that the load depends on.", kind=Kind(_load_property)
    )

    def __post_init__(self) -> None:
        """Check the values."""
        Workload.__post_init__(self)
        NewTopics.__post_init__(self)
