"""The judgement spread over minutes of intended time, without a row per stream and minute.

What was acknowledged and stands in the destination once, with nothing wrong, is most of a run:
it is what the tasks counted as acknowledged by minute, less the rest. Only the rest is brought
together with the minutes of its messages.
"""

from __future__ import annotations

from typing import Any

from mirrortest.model.findings import Outcome
from mirrortest.reconcile.intervals import ACKED, STREAM
from mirrortest.reconcile.judge import view
from mirrortest.reconcile.stretch import NONE
from mirrortest.reconcile.sweep import Spans, sweep
from mirrortest.reconcile.tables import plainly_lost

_COLUMNS = ", ".join(STREAM)
_FLAGS = ("seen", "is_sent", "is_acked", "is_failed", "is_unknown", "unlogged", "accounted")
_NUMBERS = ("copies", "findings", "acked")

_CLEAN = "acked = 1 AND copies = 1 AND findings = 0"
"""Says of a segment of `judged` all that any count asks: it is sent, and neither failed nor else.

Acknowledged by the log is sent and not failed; what is sent is not unaccounted for."""

_REST = f"(SELECT * FROM judged WHERE NOT ({_CLEAN}))"  # noqa: S608


_MARKS = f"""(
    SELECT {_COLUMNS}, kind = 'seen' AS is_seen, kind = 'sent' AND outcome = {int(Outcome.ACKED)}
        AS is_acked, pair.mark_minute AS minute, pair.mark_seq AS lo,
        coalesce(get(mark_seq, at + 1), seq_hi) AS hi
    FROM (
        SELECT * FROM intervals LEFT SEMI JOIN (SELECT DISTINCT {_COLUMNS} FROM {_REST})
            USING ({_COLUMNS})
        WHERE kind IN ('sent', 'seen') AND seq_lo IS NOT NULL
    ) LATERAL VIEW posexplode(arrays_zip(mark_seq, mark_minute)) AS at, pair
)"""  # noqa: S608  # all of it is ours
"""Spans of one minute each, of the streams that have anything else than clean segments."""


def spread(spark: Any, *, lost: bool) -> None:
    """Make the view `judged_by_minute`: as `judged`, for sums alone, with a `minute` (or null).

    `lost`: what the view `plainly_lost` counts belongs to it.
    """
    pieces = sweep(
        STREAM,
        [
            Spans(
                _REST,
                {
                    **{name: f"if({name}, 1, 0)" for name in _FLAGS},
                    **{name: name for name in _NUMBERS},
                },
                "lo",
                "hi",
            ),
            Spans(
                _MARKS,
                {
                    f"{name}_{what}": f"if({test}, {value}, 0)"
                    for name, test in (
                        ("acked", "is_acked"),
                        ("sent", "NOT is_seen"),
                        ("seen", "is_seen"),
                    )
                    for what, value in (("told", "1"), ("minute", "minute"))
                },
                "lo",
                "hi",
            ),
        ],
    )
    flags = ", ".join(f"{name} > 0 AS {name}" for name in _FLAGS)
    clean = ", ".join(
        f"{name in {'seen', 'is_sent', 'is_acked', 'accounted'}} AS {name}" for name in _FLAGS
    )
    rest = f"""
        SELECT topic, hi - lo AS messages, {flags}, copies, findings, acked, CASE
            WHEN acked_told > 0 THEN acked_minute DIV acked_told
            WHEN sent_told > 0 THEN sent_minute DIV sent_told
            WHEN seen_told > 0 THEN seen_minute DIV seen_told END AS minute
        FROM ({pieces}) WHERE copies + is_sent + is_acked + is_failed + seen > 0
    """  # noqa: S608  # all of it is ours
    view(spark, "rest_by_minute", rest)
    columns = f"topic, minute, messages, copies, findings, {', '.join(_FLAGS)}"
    plainly = f"UNION ALL SELECT {columns} FROM ({plainly_lost('topic, minute')})"  # noqa: S608
    # What of the acknowledged is in the rest is taken away from the clean.
    statement = f"""
        SELECT topic, if(minute = {NONE}, NULL, minute) AS minute, messages, copies, findings,
            {", ".join(_FLAGS)}
        FROM (
            SELECT topic, minute, messages, copies, findings, {", ".join(_FLAGS)}
            FROM rest_by_minute
            UNION ALL
            SELECT topic, minute, -acked * messages, 1, 0, {clean} FROM rest_by_minute
            WHERE acked > 0
            UNION ALL
            SELECT topic, minute, messages, 1, 0, {clean} FROM intervals WHERE kind = '{ACKED}'
            {plainly if lost else ""}
        )
    """  # noqa: S608  # all of it is ours
    view(spark, "judged_by_minute", statement)
