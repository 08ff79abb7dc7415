"""Options of a sequence log: its location, its detail, and the role of its process."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from mirrortest.config.option import option


class Role(StrEnum):
    """The role of the process that wrote a log."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    SOURCE = "source"


class Detail(StrEnum):
    """What a `sent` or `seen` row of a log is: an interval or a message."""

    INTERVALS = "intervals"
    MESSAGES = "messages"


@dataclass(frozen=True, kw_only=True)
class LogPlace:
    """Where logs are stored; `log_spool` is for unfinished logs if `log_dir` is not local."""

    log_dir: str = option(
        "mirrortest-logs", "Sequence logs and the summary: a directory or a URI.", env=True
    )
    log_spool: str = option(
        "mirrortest-spool",
        "Local directory for unfinished logs, where --log-dir is a URI.",
        env=True,
    )


@dataclass(frozen=True, kw_only=True)
class LogOptions(LogPlace):
    """Where logs are stored, and in which detail."""

    reporting_interval: float = 5.0
    """Seconds from one row of figures to the next."""
    csv: Path | None = option(
        None,
        "Also write the figures of each reporting interval to this file, a line for each topic.",
        metavar="FILE",
    )
    log_detail: Detail = option(
        Detail.INTERVALS,
        "Log a row for each interval or each message.",
        env=True,
        metavar="intervals|messages",
    )
