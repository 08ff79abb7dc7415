"""Held against each other: what must be found and what was, kind by kind."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from mirrortest.model.findings import Finding
from mirrortest.selftest.observed import STREAMLESS, by_place
from mirrortest.selftest.sent import NONE, SHIFT
from mirrortest.verify.anomaly import EFFECTS, Anomaly
from mirrortest.wire.message import Form

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from mirrortest.selftest.expected import Expected, Keys
    from mirrortest.selftest.injected_faults import Done
    from mirrortest.selftest.observed import Observed
    from mirrortest.selftest.sent import Numbers

Line = tuple[Anomaly | None, Form]
"""What is scored by itself. None: findings that no kind of anomaly explains."""
SHOWN_EXAMPLES = 10
MOST = 200_000
"""False findings of one name that are looked at: what is all wrong need not be counted out."""


@dataclass
class Tally:
    """How one kind in one form fared; all are numbers of things done, `false` of findings."""

    seeded: int = 0
    found: int = 0
    missed: int = 0
    false: int = 0

    def __iadd__(self, other: Tally) -> Self:
        self.seeded += other.seeded
        self.found += other.found
        self.missed += other.missed
        self.false += other.false
        return self

    @property
    def recall(self) -> float | None:
        """The share of what was seeded that was found; None where nothing was."""
        return self.found / self.seeded if self.seeded else None

    @property
    def precision(self) -> float | None:
        """The share of what was found that was seeded; None where nothing was found."""
        told = self.found + self.false
        return self.found / told if told else None

    @property
    def perfect(self) -> bool:
        """Whether all of it was found, and no more."""
        return not (self.missed or self.false)


@dataclass
class Score:
    """How one way of finding fared; `differences` are counts that are not as they must be."""

    lines: dict[Line, Tally] = field(default_factory=lambda: defaultdict(Tally))
    examples: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    @property
    def perfect(self) -> bool:
        """Whether every figure is 100 %."""
        return not self.differences and all(tally.perfect for tally in self.lines.values())

    def show(self, what: str) -> None:
        """Keep an example of what went wrong, the first few."""
        if len(self.examples) < SHOWN_EXAMPLES:
            self.examples.append(what)


def score(
    done: Sequence[Done],
    expected: Expected,
    observed: Observed,
    numbers: Numbers,
    form_of: Callable[[int], Form],
) -> Score:
    """Hold findings against what was done; `form_of` tells the form of a message by its key."""
    result = Score()
    claimed: dict[int, Finding] = {}
    for each in done:
        claimed[each.message] = claimed.get(each.message, _NO) | each.effect.message
    must, is_told = (_sets(keys, claimed) for keys in (expected.messages, observed.agreed))
    records = {each.record for each in done}
    must_records = _sets(expected.records, records)
    is_told_records = _sets(observed.agreed_records, records)
    for each in done:
        tally = result.lines[each.kind, each.effect.form]
        tally.seeded += 1
        # What the rules make of several anomalies together, and no single one claims, is all's.
        wanted = must.get(each.message, _NO) & (each.effect.message | ~claimed[each.message])
        missing = wanted & ~is_told.get(each.message, _NO)
        missing |= must_records.get(each.record, _NO) & ~is_told_records.get(each.record, _NO)
        if missing:
            tally.missed += 1
            result.show(f"{each.kind}: {_named(each, numbers)} is not told {_labels(missing)}")
        else:
            tally.found += 1
    _count_false(done, expected, observed, numbers, form_of, result)
    _count_consequences(claimed, expected, observed, numbers, form_of, result)
    _compare_counts(expected, observed, numbers, result)
    return result


_NO = Finding(0)


def _sets(keys: Keys, among: Collection[int] | None = None) -> dict[int, Finding]:
    """By key all its findings; of all keys, or of these alone."""
    wanted = None if among is None else np.fromiter(among, np.int64)
    found: dict[int, Finding] = {}
    for finding, ids in keys.items():
        for key in (ids if wanted is None else ids[np.isin(ids, wanted)]).tolist():
            found[key] = found.get(key, _NO) | finding
    return found


def _beyond(these: Keys, those: Keys, most: int = MOST) -> dict[int, Finding]:
    """By key the findings that stand in the first alone; no more than `most` of each."""
    none = np.zeros(0, np.int64)
    return _sets(
        {
            finding: np.setdiff1d(keys, those.get(finding, none), assume_unique=True)[:most]
            for finding, keys in these.items()
        }
    )


def _count_false(
    done: Sequence[Done],
    expected: Expected,
    observed: Observed,
    numbers: Numbers,
    form_of: Callable[[int], Form],
    result: Score,
) -> None:
    """Put each false finding under the kind that was done there, else under what it looks like."""
    at_message: dict[int, Done] = {}
    at_record: dict[int, Done] = {}
    for each in done:
        at_message.setdefault(each.message, each)
        at_record.setdefault(each.record, each)
    of_messages = _beyond(observed.told, expected.messages)
    of_records: dict[int, Finding] = {}
    for record, finding in _beyond(observed.told_records, expected.records).items():
        owner = expected.owner(record)
        if owner in of_messages:
            of_records[owner] = of_records.get(owner, _NO) | finding
        else:
            of_records[~record] = finding  # by itself: no key of a message is negative
    for key in {**of_messages, **of_records}:
        message, record = of_messages.get(key, _NO), of_records.get(key, _NO)
        known = at_message.get(key) if key >= 0 else at_record.get(~key)
        if known is not None:
            line: Line = (known.kind, known.effect.form)
        else:
            form = form_of(key) if key >= 0 else Form.BODY
            line = (_looks_like(message, record, form), form)
        result.lines[line].false += 1
        where = _shown(key, numbers) if key >= 0 else _shown_record(~key, numbers)
        result.show(f"{line[0] or 'nothing'}: {where} is told {_labels(message | record)}")


def _looks_like(message: Finding, record: Finding, form: Form) -> Anomaly | None:
    """The first kind that would cause just these findings, else one of them."""
    fitting = [effect for effect in EFFECTS if effect.form is form]
    for effect in fitting:
        if (effect.message, effect.record) == (message, record):
            return effect.kind
    for effect in fitting:
        if effect.message & message or effect.record & record:
            return effect.kind
    return None


def _count_consequences(
    claimed: Collection[int],
    expected: Expected,
    observed: Observed,
    numbers: Numbers,
    form_of: Callable[[int], Form],
    result: Score,
) -> None:
    """Findings that the rules demand of messages that nothing was done to."""
    for key, missing in _beyond(expected.messages, observed.agreed).items():
        if key not in claimed:
            result.lines[None, form_of(key)].missed += 1
            result.show(f"{_shown(key, numbers)} is not told {_labels(missing)}")


def _compare_counts(
    expected: Expected, observed: Observed, numbers: Numbers, result: Score
) -> None:
    none = np.zeros(0, np.int64)
    for who, told in observed.counts:
        for finding in STREAMLESS:
            records = expected.records.get(finding, none)
            must = by_place(records, numbers)
            if None in told:
                must = {None: len(records) + len(expected.messages.get(finding, none))}
            for place in sorted({*must, *told}, key=str):
                wanted, got = must.get(place, 0), told.get(place, Counter())[finding]
                if wanted != got:
                    at = "" if place is None else f" in {place[0]}-{place[1]}"
                    result.differences.append(
                        f"{who} counts {got:,} {finding.label}{at}, not {wanted:,}"
                    )


def _named(done: Done, numbers: Numbers) -> str:
    if done.message == NONE:
        return _shown_record(done.record, numbers)
    return _shown(done.message, numbers)


def _shown(key: int, numbers: Numbers) -> str:
    topic, run, producer, incarnation, lane = numbers.stream_of(key)
    seq = key & ((1 << SHIFT) - 1)
    return f"{producer}@{run}.{incarnation} to {topic}, lane {lane}, seq {seq}"


def _shown_record(key: int, numbers: Numbers) -> str:
    topic, partition = numbers.place_of(key)
    return f"the record at {topic}-{partition}, offset {key & ((1 << SHIFT) - 1)}"


def _labels(findings: Finding | Iterable[Finding]) -> str:
    return ", ".join(finding.label for finding in findings)
