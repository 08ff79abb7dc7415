"""The verdict on a stream after its losses were claimed, as judging rounds do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirrortest.model.findings import Finding
from mirrortest.model.intervals import NOTHING, IntervalSet
from mirrortest.verify.judge import StreamVerdict, judge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrortest.verify.fragment import Fragment
    from mirrortest.verify.ledger_record import LaneRecord
    from mirrortest.wire.stream import StreamId


def judge_settled(
    stream: StreamId,
    fragments: Mapping[int, Fragment],
    lane: LaneRecord | None,
    *,
    expired: IntervalSet,
    claimed: IntervalSet = NOTHING,
    **others: Any,
) -> StreamVerdict:
    """Judge, claim what is in flight and `expired`, and judge again."""
    before = judge(stream, fragments, lane, claimed=claimed, **others)
    claimed |= before.having(Finding.IN_FLIGHT) & expired
    return judge(stream, fragments, lane, claimed=claimed, **others)
