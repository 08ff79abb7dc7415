"""Where a process keeps its sequence log, and in which detail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mirrortest.config.option import option
from mirrortest.seqlog.batches import Detail


@dataclass(frozen=True, kw_only=True)
class LogPlace:
    """`log_spool` is a local directory for unfinished logs while `log_dir` is not local."""

    PANEL: ClassVar[str] = "Sequence log"

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
    """Where, and in which detail."""

    PANEL: ClassVar[str] = LogPlace.PANEL

    log_detail: Detail = option(
        Detail.INTERVALS,
        "Log a row for each interval or each message.",
        env=True,
        metavar="intervals|messages",
    )
