"""Messages that were written in transactions, and may have been aborted.

Under `isolation.level=read_uncommitted` a consumer reads what an aborted transaction wrote. Such a
message was not delivered: consumers that read committed never see it. Which of them were aborted
cannot be seen then, so that the run is inconclusive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.model.intervals import IntervalSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirrortest.kafka.fetched import FetchedBatches
    from mirrortest.verify.row import SeenRow


def in_transactions(
    topic: str, rows: Iterable[SeenRow], batches: Sequence[FetchedBatches]
) -> str | None:
    """The note for the report if messages of the run were written in transactions; None if not.

    `rows` are the run's, of these batches of one partition. Others' transactions do not matter.
    """
    written = [(each.fetched_from, each.next_offset) for each in batches if each.transactional]
    if not written:
        return None
    ours = IntervalSet((row.offset_lo, row.offset_hi) for row in rows if row.stream is not None)
    if not ours & IntervalSet(written):
        return None
    return (
        f"{topic}: messages of this run were written in transactions, and isolation.level="
        "read_uncommitted reads aborted ones, too: judge a run with --exactly-once or "
        "--command-property isolation.level=read_committed"
    )
