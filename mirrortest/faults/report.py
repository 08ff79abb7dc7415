"""What a faulty mirror says at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrortest.faults.ground_truth import read_summary, rows_of
from mirrortest.results.tables import table

if TYPE_CHECKING:
    from rich.table import Table

    from mirrortest.faults.options import FaultyMirrorOptions

VERSION = 1


@dataclass(frozen=True)
class FaultyMirrorReport:
    """Totals of a whole truth, over all its lives; `acts` are the truth's rows by kind."""

    truth: str
    read: dict[str, int]
    written: dict[str, int]
    acts: dict[str, int]
    seconds: float

    @classmethod
    def of(cls, options: FaultyMirrorOptions, elapsed_ns: int) -> FaultyMirrorReport:
        """Sum a finished truth up; `elapsed_ns` is how long this process mirrored."""
        summary = read_summary(options.truth)
        kinds = rows_of(options.truth, summary)["kind"].value_counts().to_pylist()
        return cls(
            truth=str(options.truth),
            read={t: sum(p.read for p in found.values()) for t, found in summary.read.items()},
            written={t: sum(found.values()) for t, found in summary.written.items()},
            acts={each["values"]: each["counts"] for each in kinds},
            seconds=elapsed_ns / 1e9,
        )

    def to_json(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "version": VERSION,
            "truth": self.truth,
            "read": self.read,
            "written": self.written,
            "acts": self.acts,
            "seconds": round(self.seconds, 3),
        }

    def table(self) -> Table:
        """The report for people."""
        records = {
            f"{name} {topic}": count
            for name, found in (("read", self.read), ("written", self.written))
            for topic, count in sorted(found.items())
        }
        records |= {f"act {kind}": count for kind, count in sorted(self.acts.items())}
        return table(
            ("what", "records"),
            [(name, f"{count:,}") for name, count in records.items()],
            box=None,
            pad_edge=False,
            title=f"truth in {self.truth}",
        )
