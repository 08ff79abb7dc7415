"""The faulty mirror's truth as rows of the table of findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.errors import MirrortestError
from mirrortest.selftest.sent import NONE, STREAM
from mirrortest.verify.anomaly import NOTHING, OVERTAKEN, Anomaly, Effect, effect_of
from mirrortest.wire.message import Form
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirrortest.config.run import TopicMapping
    from mirrortest.selftest.sent import Numbers

SURPLUS = frozenset({Anomaly.DUPLICATE, Anomaly.DUPLICATE_LATER, Anomaly.REPLAY})
"""Kinds whose record is a further copy of the message."""
MOVES = frozenset({Anomaly.REROUTE, Anomaly.MERGE_PARTITIONS})
"""Kinds whose record stands in another partition of the message's topic."""
_HELD_BACK = frozenset({Anomaly.SWAP, Anomaly.HOLD})


class Done(NamedTuple):
    """One thing that the faulty mirror did.

    Attributes:
        effect: what it must cause.
        message: the key of the message that it was done to; NONE: a record was put in.
        record: the key of the destination's record that shows it; NONE: none was written.
    """

    effect: Effect
    message: int
    record: int

    @property
    def kind(self) -> Anomaly:
        """Which anomaly."""
        return self.effect.kind


def read_done(
    rows: Iterable[Mapping[str, Any]], numbers: Numbers, mapping: TopicMapping, run: str
) -> list[Done]:
    """Read rows of the truth; those of other runs' messages are left out.

    Raises:
        MirrortestError: a row tells of what the table of findings does not know.
    """
    done: list[Done] = []
    for row in rows:
        if row["run"] != run or row["seq"] is None:
            continue
        kind = Anomaly(row["kind"])
        part = OVERTAKEN if kind is Anomaly.DELAY and row["overtaken"] else row["part"] or ""
        try:
            effect = effect_of(kind, Form(row["form"]), part)
        except ValueError as error:
            raise MirrortestError(f"the faulty mirror's truth has no finding: {error}") from None
        if kind in _HELD_BACK and not row["overtaken"]:
            # Behind other streams' messages alone: it is not in its place, and in order.
            effect = effect._replace(message=NOTHING)
        message = numbers.message(StreamId(*(row[name] for name in STREAM)), row["seq"])
        record = NONE
        if row["destination_offset"] is not None:
            place = (mapping.source_of(row["destination_topic"]), row["destination_partition"])
            record = numbers.record(place, row["destination_offset"])
        done.append(Done(effect, NONE if kind is Anomaly.OTHER_RUN else message, record))
    return done
