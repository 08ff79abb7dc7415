"""The score: what must be found against what was found, by kind of anomaly."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mirrortest.model.findings import Finding
from mirrortest.selftest.detected import STREAMLESS, by_place
from mirrortest.selftest.sent import NO_KEY, NO_KEYS, number_of
from mirrortest.verify.anomaly import EFFECTS, Anomaly
from mirrortest.wire.form import Form

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from mirrortest.selftest.detected import Detected
    from mirrortest.selftest.expected import Expected, Injected, Keys
    from mirrortest.selftest.sent import Numbers

Line = tuple[Anomaly | None, Form]
"""One line of the score. None: findings that no kind of anomaly explains."""
SHOWN_EXAMPLES = 10
MOST = 200_000
"""Most messages examined per finding: an entirely wrong result need not be counted in full."""
_NO = Finding(0)


@dataclass
class Tally:
    """One kind's score: all figures count anomalies, except `false`, which counts findings."""

    seeded: int = 0
    found: int = 0
    missed: int = 0
    false: int = 0

    @property
    def perfect(self) -> bool:
        """Whether all of it was found, and no more."""
        return not (self.missed or self.false)


@dataclass
class Score:
    """One way's score; `differences` are wrong counts of records without an id."""

    lines: dict[Line, Tally] = field(default_factory=lambda: defaultdict(Tally))
    examples: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    @property
    def perfect(self) -> bool:
        """Whether every figure is 100 %."""
        return not self.differences and all(tally.perfect for tally in self.lines.values())

    def add_example(self, what: str) -> None:
        """Keep an example of what went wrong; only the first few are kept."""
        if len(self.examples) < SHOWN_EXAMPLES:
            self.examples.append(what)


def score(
    injected: Sequence[Injected],
    expected: Expected,
    detected: Detected,
    numbers: Numbers,
    form_of: Callable[[int], Form],
) -> Score:
    """Compare findings with what was injected; `form_of` is the form of a message by its key."""
    result = Score()
    claimed: dict[int, Finding] = {}
    for each in injected:
        claimed[each.message] = claimed.get(each.message, _NO) | each.effect.message
    must, reported = (_by_key(keys, claimed) for keys in (expected.messages, detected.by_all))
    records = {each.record for each in injected}
    must_records, reported_records = (
        _by_key(keys, records) for keys in (expected.records, detected.records)
    )
    for each in injected:
        tally = result.lines[each.kind, each.effect.form]
        tally.seeded += 1
        # A finding that only several anomalies together cause is expected of each of them.
        wanted = must.get(each.message, _NO) & (each.effect.message | ~claimed[each.message])
        missing = wanted & ~reported.get(each.message, _NO)
        missing |= must_records.get(each.record, _NO) & ~reported_records.get(each.record, _NO)
        if missing:
            tally.missed += 1
            of_record = each.message == NO_KEY
            shown = _record(each.record, numbers) if of_record else _message(each.message, numbers)
            result.add_example(f"{each.kind}: {shown} is not reported {_labels(missing)}")
        else:
            tally.found += 1
    # Findings that the rules require of messages without an anomaly.
    for key, missing in _beyond(expected.messages, detected.by_all).items():
        if key not in claimed:
            result.lines[None, form_of(key)].missed += 1
            result.add_example(f"{_message(key, numbers)} is not reported {_labels(missing)}")
    _count_false(injected, expected, detected, numbers, form_of, result)
    _compare_counts(expected, detected, numbers, result)
    return result


def _by_key(keys: Keys, among: Collection[int] | None = None) -> dict[int, Finding]:
    """Key -> all its findings; for all keys, or only for those in `among`."""
    wanted = None if among is None else np.fromiter(among, np.int64)
    found: dict[int, Finding] = {}
    for finding, ids in keys.items():
        for key in (ids if wanted is None else ids[np.isin(ids, wanted)]).tolist():
            found[key] = found.get(key, _NO) | finding
    return found


def _beyond(these: Keys, those: Keys) -> dict[int, Finding]:
    """Key -> the findings that are in `these` only; at most `MOST` keys for each finding."""
    return _by_key(
        {
            finding: np.setdiff1d(keys, those.get(finding, NO_KEYS), assume_unique=True)[:MOST]
            for finding, keys in these.items()
        }
    )


def _count_false(
    injected: Sequence[Injected],
    expected: Expected,
    detected: Detected,
    numbers: Numbers,
    form_of: Callable[[int], Form],
    result: Score,
) -> None:
    """Count each false finding under the kind that was injected there, else under a likely one."""
    at_message: dict[int, Injected] = {}
    at_record: dict[int, Injected] = {}
    for each in injected:
        at_message.setdefault(each.message, each)
        at_record.setdefault(each.record, each)
    of_messages = _beyond(detected.by_any, expected.messages)
    of_records: dict[int, Finding] = {}
    for record, finding in _beyond(detected.records, expected.records).items():
        owner = expected.owner(record)
        if owner in of_messages:
            of_records[owner] = of_records.get(owner, _NO) | finding
        else:
            of_records[~record] = finding  # on its own: a message's key is never negative
    for key in {**of_messages, **of_records}:
        message, record = of_messages.get(key, _NO), of_records.get(key, _NO)
        there = at_message.get(key) if key >= 0 else at_record.get(~key)
        if there is not None:
            line: Line = (there.kind, there.effect.form)
        else:
            form = form_of(key) if key >= 0 else Form.BODY
            line = (_looks_like(message, record, form), form)
        result.lines[line].false += 1
        where = _message(key, numbers) if key >= 0 else _record(~key, numbers)
        result.add_example(
            f"{line[0] or 'nothing'}: {where} is reported {_labels(message | record)}"
        )


def _looks_like(message: Finding, record: Finding, form: Form) -> Anomaly | None:
    """The first kind that would cause exactly these findings, else any of them."""
    fitting = [effect for effect in EFFECTS if effect.form is form]
    for effect in fitting:
        if (effect.message, effect.record) == (message, record):
            return effect.kind
    for effect in fitting:
        if effect.message & message or effect.record & record:
            return effect.kind
    return None


def _compare_counts(
    expected: Expected, detected: Detected, numbers: Numbers, result: Score
) -> None:
    for source, counts in detected.counts:
        for finding in STREAMLESS:
            records = expected.records.get(finding, NO_KEYS)
            must = by_place(records, numbers)
            if None in counts:
                must = {None: len(records) + len(expected.messages.get(finding, NO_KEYS))}
            for place in sorted({*must, *counts}, key=str):
                wanted, got = must.get(place, 0), counts.get(place, Counter())[finding]
                if wanted != got:
                    at = "" if place is None else f" in {place[0]}-{place[1]}"
                    result.differences.append(
                        f"{source} counts {got:,} {finding.label}{at}, not {wanted:,}"
                    )


def _message(key: int, numbers: Numbers) -> str:
    topic, run, producer, incarnation, lane = numbers.stream_of(key)
    return f"{producer}@{run}.{incarnation} to {topic}, lane {lane}, seq {number_of(key)}"


def _record(key: int, numbers: Numbers) -> str:
    topic, partition = numbers.place_of(key)
    return f"the record at {topic}-{partition}, offset {number_of(key)}"


def _labels(findings: Finding | Iterable[Finding]) -> str:
    return ", ".join(finding.label for finding in findings)
