"""The options of `mirrortest synth`, checked before anything is written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mirrortest.config.option import REQUIRED, Kind, option
from mirrortest.config.run_naming import checked_topics
from mirrortest.errors import UsageError
from mirrortest.model.findings import Finding
from mirrortest.seqlog.options import Detail
from mirrortest.wire.digits import SEQ_LIMIT
from mirrortest.wire.stream import checked_run

KINDS = (
    Finding.LOST,
    Finding.DUPLICATED,
    Finding.REORDERED,
    Finding.CORRUPTED,
    Finding.MISROUTED,
    Finding.ALTERED_KEY,
    Finding.ALTERED_HEADERS,
    Finding.ALTERED_TIMESTAMP,
    Finding.PHANTOM,
    Finding.LATE,
)
"""The anomalies that can be seeded; each message gets at most one."""

RUN_LENGTH = 100
"""Messages of a row on average. Three producers that sent 240,000 messages through MirrorMaker 2 as
fast as they could gave 2,138 rows."""

HOT_ROWS = 9
"""`--skew`: rows of the hot stream for each row of the others: 90 % of all rows."""


_MOST_STREAMS = 100_000
"""One machine does not write more than that in a day."""
_MOST_LANES = (1 << 16) - 1


def _parse_local(text: str, *, option: str) -> Path:
    if re.match(r"[A-Za-z0-9+.-]+:/", text):
        raise UsageError(f"{option} {text}: must be a local directory, not a URI")
    return Path(text)


@dataclass(frozen=True, kw_only=True)
class SynthOptions:
    """A run to write, and the options of `mirrortest synth`; `anomalies` are counts by finding.

    Raises:
        UsageError: an option contradicts another, or the run is impossible.
    """

    log_dir: Path = option(
        REQUIRED, "Local directory for the logs.", kind=Kind(_parse_local, metavar="DIR")
    )
    run: str = option(REQUIRED, "The run's id; the directory must not contain it yet.")
    messages: int = option(
        1_000_000, "Messages sent in total: 1000000 or 1e6.", minimum=1, maximum=SEQ_LIMIT
    )
    topics: Sequence[str] = option(
        ("synth",), "Topics, comma-separated.", kind=Kind(checked_topics, show=",".join)
    )
    producers: int = option(8, "Number of producers.", minimum=1, maximum=_MOST_STREAMS)
    incarnations: int = option(
        1, "Incarnations of each producer, in turn.", minimum=1, maximum=_MOST_STREAMS
    )
    lanes: int = option(12, "Lanes, and partitions, of each topic.", minimum=1, maximum=_MOST_LANES)
    consumers: int = option(2, "Number of consumers.", minimum=1, maximum=_MOST_LANES)
    detail: Detail = option(
        Detail.INTERVALS,
        "Log a row for each interval or each message.",
        name="--log-detail",
        env=True,
    )
    seed: int = option(0, "The same seed gives the same logs.", minimum=0)
    anomalies: Mapping[Finding, int] = field(default_factory=dict)
    lost_run: int = option(1, "Consecutive ids of each loss.", minimum=1, maximum=SEQ_LIMIT)
    run_length: int = option(
        RUN_LENGTH,
        "Messages of a row on average. The default was measured with three producers that sent "
        "240,000 messages through MirrorMaker 2 as fast as they could (2,138 rows). Producers at a "
        "low fixed rate give shorter rows, down to the few messages of a linger time; a single "
        "producer gives longer ones.",
        minimum=1,
        maximum=SEQ_LIMIT,
    )
    batch: int = option(
        50,
        "Messages that share an intended time, as without a rate. With 1, as at a fixed rate, each "
        "has its own, and a row's latency histogram is longer.",
        minimum=1,
        maximum=SEQ_LIMIT,
    )
    rate: int = option(
        200_000,
        "Messages a second of all producers. Producers reserve numbers every two seconds: with "
        "thousands of streams at a low rate, most rows are reservations.",
        name="--throughput",
        minimum=1,
        maximum=SEQ_LIMIT,
    )
    skew: bool = option(False, "Give one stream 90 % of all rows.")
    jobs: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be written."""
        checked_run(self.run)
        if not self.topics or len(set(self.topics)) != len(self.topics):
            raise UsageError("--topics: name at least one topic, and each once")
        if self.anomalies.get(Finding.MISROUTED) and self.lanes < 2:
            raise UsageError("misrouted messages need at least 2 --lanes")

    def count(self, kind: Finding) -> int:
        """How many messages get this anomaly."""
        return self.anomalies.get(kind, 0)

    @property
    def streams(self) -> int:
        """Streams of one incarnation of all producers."""
        return len(self.topics) * self.producers * self.lanes


def spread(total: int, lost: int | None) -> dict[Finding, int]:
    """Spread `total` over all kinds, the remainder over the first; `lost` replaces that share."""
    each, rest = divmod(total, len(KINDS))
    counts = {kind: each + (place < rest) for place, kind in enumerate(KINDS)}
    if lost is not None:
        counts[Finding.LOST] = lost
    return {kind: count for kind, count in counts.items() if count}
