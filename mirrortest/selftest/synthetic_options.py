"""What `mirrortest synth` is asked for, checked before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrortest.errors import UsageError
from mirrortest.model.findings import Finding
from mirrortest.seqlog.batches import Detail
from mirrortest.wire.stream import checked_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

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
"""Messages of a row: three interleaved producers through MirrorMaker 2, sending as fast as they
can, made 2,138 rows of 240,000 messages."""

HOT_ROWS = 9
"""`--skew`: so many rows of the hot stream stand to each row of all others: 90 %."""


@dataclass(frozen=True, kw_only=True)
class SynthOptions:
    """One run to be written; `anomalies` are messages by finding.

    Raises:
        UsageError: an option that contradicts another, or asks for what no run can hold.
    """

    log_dir: Path
    run: str
    messages: int
    topics: Sequence[str] = ("synth",)
    producers: int = 8
    incarnations: int = 1
    lanes: int = 12
    consumers: int = 2
    detail: Detail = Detail.INTERVALS
    seed: int = 0
    anomalies: Mapping[Finding, int] = field(default_factory=dict)
    lost_run: int = 1
    """How many consecutive ids each loss takes."""
    run_length: int = RUN_LENGTH
    batch: int = 50
    """Messages that share an intended time, as in a batch of a producer without a rate."""
    rate: int = 200_000
    """Messages a second, over all producers."""
    skew: bool = False
    jobs: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be written."""
        checked_run(self.run)
        for name in (
            "messages", "producers", "incarnations", "lanes", "consumers", "lost_run",
            "run_length", "batch", "rate", "jobs",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} must be at least 1")
        if not self.topics or len(set(self.topics)) != len(self.topics):
            raise UsageError("--topics: name at least one topic, and each once")
        unknown = [kind.label for kind in self.anomalies if kind not in KINDS]
        if unknown:
            raise UsageError(f"no anomaly that can be seeded: {', '.join(unknown)}")
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
    """Spread anomalies over all kinds, the first ones getting the rest; `lost` stands instead."""
    each, rest = divmod(total, len(KINDS))
    counts = {kind: each + (place < rest) for place, kind in enumerate(KINDS)}
    if lost is not None:
        counts[Finding.LOST] = lost
    return {kind: count for kind, count in counts.items() if count}
