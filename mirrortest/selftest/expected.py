"""What must be found: docs/reference/findings.md applied to what the faulty mirror did.

Its truth names the records that were changed, moved, repeated or inserted. All other records of a
partition are the other messages, in the order of the source. The rules are applied to every record.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mirrortest.errors import MirrortestError
from mirrortest.model.findings import PER_MESSAGE, Finding
from mirrortest.selftest.sent import NO_KEY, NO_KEYS, SHIFT, number_of
from mirrortest.verify.anomaly import (
    COPIES,
    HELD_BACK,
    MOVES,
    NOTHING,
    OVERTAKEN,
    Anomaly,
    Effect,
    combined,
    effect_of,
)
from mirrortest.wire.form import Form

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from mirrortest.config.run_naming import TopicMapping
    from mirrortest.selftest.sent import Numbers, Place, Sent

Keys = dict[Finding, "NDArray[np.int64]"]
"""Finding -> the keys of messages, or of records, sorted, each once."""


class Injected(NamedTuple):
    """One anomaly that the faulty mirror injected.

    Attributes:
        effect: what it must cause.
        message: the key of the message that it was done to; NO_KEY: a record was inserted.
        record: the key of the destination's record that shows it; NO_KEY: no record was written.
    """

    effect: Effect
    message: int
    record: int

    @property
    def kind(self) -> Anomaly:
        """The kind of anomaly."""
        return self.effect.kind


def read_injected(
    rows: Iterable[Mapping[str, Any]], numbers: Numbers, mapping: TopicMapping, run: str
) -> list[Injected]:
    """Read rows of the faulty mirror's truth, without those of other runs' messages.

    Raises:
        MirrortestError: a row's anomaly is not in the table of findings.
    """
    injected: list[Injected] = []
    for row in rows:
        if row["run"] != run or row["seq"] is None:
            continue
        kind = Anomaly(row["kind"])
        part = OVERTAKEN if kind is Anomaly.DELAY and row["overtaken"] else row["part"] or ""
        try:
            effect = effect_of(kind, Form(row["form"]), part)
        except ValueError as error:
            raise MirrortestError(f"the faulty mirror's truth has no finding: {error}") from None
        if kind in HELD_BACK and not row["overtaken"]:
            # Only messages of other streams overtook it: its own stream is in order.
            effect = effect._replace(message=NOTHING)
        message = numbers.message_of(row, row["seq"])
        record = NO_KEY
        if row["destination_offset"] is not None:
            place = (mapping.source_of(row["destination_topic"]), row["destination_partition"])
            record = numbers.record(place, row["destination_offset"])
        injected.append(Injected(effect, NO_KEY if kind is Anomaly.OTHER_RUN else message, record))
    return injected


@dataclass
class Expected:
    """The findings that must be reported, and no others.

    Attributes:
        messages: the keys of messages, by finding.
        records: the keys of records without an id, by finding.
        owners: by partition, the message that each record copies, from offset 0 on; NO_KEY: no
            message. A partition whose truth is inconsistent is left out.
        reasons: where the truth is inconsistent.
    """

    messages: Keys = field(default_factory=dict)
    records: Keys = field(default_factory=dict)
    owners: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def owner(self, record: int) -> int:
        """The message that a record copies; NO_KEY if that is unknown."""
        owners = self.owners.get(record >> SHIFT, NO_KEYS)
        offset = number_of(record)
        return int(owners[offset]) if offset < len(owners) else NO_KEY


def expect(
    sent: Sent, injected: Sequence[Injected], written: Mapping[Place, int], numbers: Numbers
) -> Expected:
    """Apply the rules. `written` is the number of records in each destination partition."""
    expected = Expected()
    by_record: dict[int, list[Injected]] = defaultdict(list)
    for each in injected:
        if each.record != NO_KEY:
            by_record[each.record].append(each)
    copies = {record for record, acts in by_record.items() if any(a.kind in COPIES for a in acts)}
    # Messages whose own record the truth names, or that have no record.
    moved = _keys(a.message for a in injected if a.message != NO_KEY and a.record not in copies)
    delivered: list[NDArray[np.int64]] = [NO_KEYS]
    found: dict[Finding, list[int]] = defaultdict(list)
    unreadable: dict[Finding, list[int]] = defaultdict(list)
    for place in sorted({*sent.at, *written}):
        number = numbers.record(place) >> SHIFT
        touched = {record: acts for record, acts in by_record.items() if record >> SHIFT == number}
        here = sent.at.get(place, NO_KEYS)
        untouched = here[~np.isin(here, moved)]
        without_id = _effects(touched, found, unreadable)
        readable = {r: acts[0].message for r, acts in touched.items() if r not in without_id}
        delivered += [untouched, np.fromiter(readable.values(), np.int64)]
        # The truth itself records whether a deferred message was overtaken.
        found[Finding.REORDERED] += [
            readable[record]
            for record in readable.keys() - copies
            if any(each.effect.message & Finding.REORDERED for each in touched[record])
        ]
        owners = _owners(untouched, touched, written.get(place, 0))
        if owners is None:
            expected.reasons.append(
                f"the truth of {place[0]}-{place[1]} is inconsistent: {len(untouched):,} untouched "
                f"and {len(touched):,} other records, but {written.get(place, 0):,} were written"
            )
            continue
        expected.owners[number] = owners
        # If a message has copies or moved records, their order decides whether it is reordered: its
        # own copy can overtake a deferred message, and others can overtake that copy.
        extras = copies | {r for r, acts in touched.items() if any(a.kind in MOVES for a in acts)}
        extra_messages = _keys(readable[record] for record in readable.keys() & extras)
        if len(extra_messages):
            overtaken = np.intersect1d(extra_messages, _overtaken(owners, without_id))
            found[Finding.REORDERED] += overtaken.tolist()
    distinct, counts = np.unique(np.concatenate(delivered), return_counts=True)
    expected.messages = {finding: _keys(keys) for finding, keys in found.items()}
    expected.messages[Finding.DUPLICATED] = distinct[counts > 1]
    expected.messages[Finding.LOST] = np.setdiff1d(sent.keys, distinct, assume_unique=True)
    expected.records = {finding: _keys(keys) for finding, keys in unreadable.items()}
    return expected


def _effects(
    touched: Mapping[int, Sequence[Injected]],
    found: dict[Finding, list[int]],
    unreadable: dict[Finding, list[int]],
) -> set[int]:
    """Add the findings of these records; return the records without an id."""
    without_id: set[int] = set()
    for record, acts in touched.items():
        of_message, of_record = combined(each.effect for each in acts)
        if of_record:
            unreadable[of_record].append(record)
            without_id.add(record)
            continue
        for finding in of_message & PER_MESSAGE:
            found[finding].append(acts[0].message)
    return without_id


def _owners(
    untouched: NDArray[np.int64], touched: Mapping[int, Sequence[Injected]], written: int
) -> NDArray[np.int64] | None:
    """The message that each record of a partition copies; None if the truth is inconsistent."""
    offsets = np.array([number_of(record) for record in touched], np.int64)
    if len(untouched) + len(touched) != written or (offsets >= written).any():
        return None
    owners = np.full(written, NO_KEY, np.int64)
    owners[np.setdiff1d(np.arange(written), offsets)] = untouched
    owners[offsets] = [acts[0].message for acts in touched.values()]
    return owners


def _overtaken(owners: NDArray[np.int64], without_id: set[int]) -> NDArray[np.int64]:
    """Messages whose first readable record here comes after one of a later seq of their stream."""
    readable = owners != NO_KEY
    readable[[number_of(record) for record in without_id]] = False
    keys = owners[readable]
    keys = keys[np.argsort(keys >> SHIFT, kind="stable")]
    _, first = np.unique(keys, return_index=True)
    # A later stream's keys are all greater: one running maximum serves every stream.
    overtaken = keys[first] < np.maximum.accumulate(keys)[first]
    late: NDArray[np.int64] = keys[first[overtaken]]
    return late


def _keys(keys: Iterable[int]) -> NDArray[np.int64]:
    return np.unique(np.fromiter(keys, np.int64))
