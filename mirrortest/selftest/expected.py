"""What must be found: the table of findings and its rules, applied to all that was done.

The truth names the records that were changed, moved, repeated or put in; what is left of each
partition are the other messages in the order of the source. To all of them the rules of
docs/findings.md are applied, record by record.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mirrortest.model.findings import PER_MESSAGE, Finding
from mirrortest.selftest.injected_faults import MOVES, SURPLUS
from mirrortest.selftest.sent import NONE, SHIFT
from mirrortest.verify.anomaly import together

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from mirrortest.selftest.injected_faults import Done
    from mirrortest.selftest.sent import Numbers, Place, Sent

Keys = dict[Finding, "NDArray[np.int64]"]
"""By finding the keys of messages, or of records, sorted, each once."""


@dataclass
class Expected:
    """The findings that must be told, and no others.

    Attributes:
        messages: by finding, of messages' ids.
        records: by finding, of records that name no id.
        standing: by partition, whose copy each record is, from offset 0 on; NONE: of no message.
            A partition whose truth does not add up is left out.
        reasons: where the truth does not add up.
    """

    messages: Keys = field(default_factory=dict)
    records: Keys = field(default_factory=dict)
    standing: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def owner(self, record: int) -> int:
        """The message whose copy a record is; NONE where that is not known."""
        standing = self.standing.get(record >> SHIFT)
        offset = record & ((1 << SHIFT) - 1)
        if standing is None or offset >= len(standing):
            return NONE
        return int(standing[offset])


def expect(
    sent: Sent, done: Sequence[Done], written: Mapping[Place, int], numbers: Numbers
) -> Expected:
    """Apply the rules. `written` is how many records each destination partition has."""
    expected = Expected()
    touched: dict[int, list[Done]] = defaultdict(list)
    for each in done:
        if each.record != NONE:
            touched[each.record].append(each)
    surplus = {record for record, acts in touched.items() if any(a.kind in SURPLUS for a in acts)}
    # Messages whose own record the truth names, or which have none.
    moved = _keys(a.message for a in done if a.message != NONE and a.record not in surplus)
    seen: list[NDArray[np.int64]] = []
    shown: dict[Finding, list[int]] = defaultdict(list)
    unreadable: dict[Finding, list[int]] = defaultdict(list)
    for place in sorted({*sent.at, *written}):
        number = numbers.record(place) >> SHIFT
        owners = {record: acts for record, acts in touched.items() if record >> SHIFT == number}
        here = sent.at.get(place, np.zeros(0, np.int64))
        kept = here[~np.isin(here, moved)]
        nameless = _read(owners, shown, unreadable)
        readable = {r: acts[0].message for r, acts in owners.items() if r not in nameless}
        seen += [kept, np.fromiter(readable.values(), np.int64)]
        shown[Finding.REORDERED] += _overtaken(owners, readable.keys() - surplus)
        standing = _stand(kept, owners, written.get(place, 0))
        if standing is None:
            expected.reasons.append(
                f"the truth of {place[0]}-{place[1]} does not add up: {len(kept):,} messages left "
                f"alone and {len(owners):,} other records make no {written.get(place, 0):,}"
            )
            continue
        expected.standing[number] = standing
        # Where a message has copies or strays, their places tell whether it is reordered: what is
        # held back may be overtaken by its own copy, and that one by others.
        guests = surplus | {r for r, acts in owners.items() if any(a.kind in MOVES for a in acts)}
        strange = _keys(readable[record] for record in readable.keys() & guests)
        if len(strange):
            behind = np.intersect1d(strange, _behind(standing, nameless))
            shown[Finding.REORDERED] += behind.tolist()
    every = np.concatenate([np.zeros(0, np.int64), *seen])
    distinct, counts = np.unique(every, return_counts=True)
    expected.messages = {finding: _keys(found) for finding, found in shown.items()}
    expected.messages[Finding.DUPLICATED] = distinct[counts > 1]
    expected.messages[Finding.LOST] = np.setdiff1d(sent.keys, distinct, assume_unique=True)
    expected.records = {finding: _keys(found) for finding, found in unreadable.items()}
    return expected


def _read(
    owners: Mapping[int, Sequence[Done]],
    shown: dict[Finding, list[int]],
    unreadable: dict[Finding, list[int]],
) -> set[int]:
    """Add what each of these records shows; those that name no id."""
    nameless: set[int] = set()
    for record, acts in owners.items():
        of_message, of_record = together(each.effect for each in acts)
        if of_record:
            unreadable[of_record].append(record)
            nameless.add(record)
            continue
        for finding in of_message & PER_MESSAGE:
            shown[finding].append(acts[0].message)
    return nameless


def _stand(
    kept: NDArray[np.int64], owners: Mapping[int, Sequence[Done]], written: int
) -> NDArray[np.int64] | None:
    """Whose copy each record of a partition is; None where the numbers do not add up."""
    offsets = np.array([record & ((1 << SHIFT) - 1) for record in owners], np.int64)
    if len(kept) + len(owners) != written or (len(offsets) and int(offsets.max()) >= written):
        return None
    standing = np.full(written, NONE, np.int64)
    alone = np.ones(written, np.bool_)
    alone[offsets] = False
    standing[alone] = kept
    standing[offsets] = [acts[0].message for acts in owners.values()]
    return standing


def _overtaken(owners: Mapping[int, Sequence[Done]], records: Iterable[int]) -> list[int]:
    """Messages that were held back until a later one of their stream was written here.

    The truth says so itself, of each that was held back.
    """
    return [
        owners[record][0].message
        for record in records
        if any(each.effect.message & Finding.REORDERED for each in owners[record])
    ]


def _behind(standing: NDArray[np.int64], nameless: set[int]) -> NDArray[np.int64]:
    """Messages whose first readable record here lies behind one of a later seq of their stream."""
    readable = standing != NONE
    readable[[record & ((1 << SHIFT) - 1) for record in nameless]] = False
    keys = standing[readable]
    keys = keys[np.argsort(keys >> SHIFT, kind="stable")]
    _, first = np.unique(keys, return_index=True)
    # A later stream's keys are all greater, so that one running maximum serves every stream.
    behind = keys[first] < np.maximum.accumulate(keys)[first]
    late: NDArray[np.int64] = keys[first[behind]]
    return late


def _keys(found: Iterable[int]) -> NDArray[np.int64]:
    return np.unique(np.fromiter(found, np.int64))
