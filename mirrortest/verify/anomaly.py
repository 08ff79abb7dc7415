"""The anomalies that a mirror can cause, and the findings that follow, as one table.

The faulty mirror causes these anomalies, `mirrortest calibrate` expects the findings in the table,
and the unit tests compare the decoder and the checkers with it. docs/reference/findings.md is
generated from it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.model.findings import Finding
from mirrortest.model.findings import markdown as findings_table
from mirrortest.wire.form import ID, PROOF, SEQ, TIME, Form

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class Anomaly(StrEnum):
    """A kind of anomaly; the values are written into specifications and truth logs."""

    DROP = "drop"
    DROP_RUN = "drop-run"
    DROP_TAIL = "drop-tail"
    DROP_PRODUCER = "drop-producer"
    DROP_PARTITION = "drop-partition"
    DUPLICATE = "duplicate"
    DUPLICATE_LATER = "duplicate-later"
    SWAP = "swap"
    HOLD = "hold"
    CHANGE_ID = "change-id"
    CHANGE_SEQ = "change-seq"
    CHANGE_TIME = "change-time"
    CHANGE_DESCRIPTOR = "change-descriptor"
    CHANGE_PAYLOAD = "change-payload"
    TRUNCATE = "truncate"
    EXTEND = "extend"
    REKEY = "rekey"
    REROUTE = "reroute"
    STRIP_HEADER = "strip-header"
    ADD_HEADER = "add-header"
    RENAME_HEADER = "rename-header"
    RESTAMP = "restamp"
    DELAY = "delay"
    REPLAY = "replay"
    MERGE_PARTITIONS = "merge-partitions"
    MERGE_TOPICS = "merge-topics"
    OTHER_RUN = "other-run"


class Effect(NamedTuple):
    """A row of the table: what one anomaly causes in one form of message.

    Attributes:
        kind: the anomaly.
        form: the form of the message.
        part: the part of the message that is hit, if that makes a difference: a header's name,
            where a truncated value ends, or `OVERTAKEN`. Empty: any part.
        message: the exact set of findings under the message's id.
        record: the finding on the record in the destination if its id cannot be read any more;
            0: the id can be read.
    """

    kind: Anomaly
    form: Form
    part: str
    message: Finding
    record: Finding


NOTHING = Finding(0)

FILL, IN_PROOF, AT_PROOF, IN_NUMBERS, IN_ID = "fill", "descriptor", "header", "numbers", "id"
"""Where a truncated value ends: in the fill, in the descriptor, before the descriptor, in the
header's numbers, in the id."""
OVERTAKEN = "overtaken"
"""For a delayed message: later ones of its stream were written to its partition before it."""

DROPS = (
    Anomaly.DROP_PRODUCER,
    Anomaly.DROP_PARTITION,
    Anomaly.DROP_TAIL,
    Anomaly.DROP_RUN,
    Anomaly.DROP,
)
"""Kinds that write no record. If several hit a message, the first in this order drops it."""
COPIES = (Anomaly.DUPLICATE, Anomaly.DUPLICATE_LATER, Anomaly.REPLAY)
"""Kinds whose record is a further copy of the message."""
MOVES = (Anomaly.REROUTE, Anomaly.MERGE_PARTITIONS)
"""Kinds whose record is in another partition of the message's topic."""
HELD_BACK = (Anomaly.SWAP, Anomaly.HOLD)
"""Kinds whose record is written after later ones of its partition."""

_ANY = ("",)
_UNPROVING = (
    Anomaly.CHANGE_ID,
    Anomaly.CHANGE_SEQ,
    Anomaly.CHANGE_TIME,
    Anomaly.CHANGE_DESCRIPTOR,
    Anomaly.MERGE_TOPICS,
)
_HEADERS_CHANGED = (Anomaly.STRIP_HEADER, Anomaly.RENAME_HEADER)
_F = Finding

_RULES: tuple[tuple[Sequence[Anomaly], Sequence[Form], Sequence[str], Finding, Finding], ...] = (
    (DROPS, tuple(Form), _ANY, _F.LOST, NOTHING),
    (COPIES, tuple(Form), _ANY, _F.DUPLICATED, NOTHING),
    (HELD_BACK, tuple(Form), _ANY, _F.REORDERED, NOTHING),
    (_UNPROVING, tuple(Form), _ANY, _F.LOST, _F.CORRUPTED),
    ((Anomaly.CHANGE_PAYLOAD, Anomaly.EXTEND), tuple(Form), _ANY, _F.CORRUPTED, NOTHING),
    ((Anomaly.TRUNCATE,), (Form.HEADERS,), _ANY, _F.CORRUPTED, NOTHING),
    ((Anomaly.TRUNCATE,), (Form.BODY,), (FILL,), _F.CORRUPTED, NOTHING),
    ((Anomaly.TRUNCATE,), (Form.BODY,), (IN_PROOF, IN_NUMBERS), _F.LOST, _F.CORRUPTED),
    ((Anomaly.TRUNCATE,), (Form.BODY,), (AT_PROOF,), _F.UNPROVEN, NOTHING),
    ((Anomaly.TRUNCATE,), (Form.BODY,), (IN_ID,), _F.LOST, _F.FOREIGN),
    ((Anomaly.REKEY,), tuple(Form), _ANY, _F.ALTERED_KEY, NOTHING),
    (MOVES, tuple(Form), _ANY, _F.MISROUTED, NOTHING),
    (_HEADERS_CHANGED, (Form.HEADERS,), (ID, SEQ), _F.LOST, _F.FOREIGN),
    (_HEADERS_CHANGED, (Form.HEADERS,), (TIME, PROOF), _F.LOST, _F.CORRUPTED),
    ((Anomaly.ADD_HEADER,), tuple(Form), _ANY, _F.ALTERED_HEADERS, NOTHING),
    ((Anomaly.RESTAMP,), tuple(Form), _ANY, _F.ALTERED_TIMESTAMP, NOTHING),
    ((Anomaly.DELAY,), tuple(Form), _ANY, NOTHING, NOTHING),
    ((Anomaly.DELAY,), tuple(Form), (OVERTAKEN,), _F.REORDERED, NOTHING),
    ((Anomaly.OTHER_RUN,), tuple(Form), _ANY, NOTHING, _F.OTHER_RUN),
)

EFFECTS: tuple[Effect, ...] = tuple(
    sorted(
        (
            Effect(kind, form, part, message, record)
            for kinds, forms, parts, message, record in _RULES
            for kind in kinds
            for form in forms
            for part in parts
        ),
        key=lambda effect: (list(Anomaly).index(effect.kind), list(Form).index(effect.form)),
    )
)
"""The table, in the order of `Anomaly`."""

_BY_NAME = {(effect.kind, effect.form, effect.part): effect for effect in EFFECTS}


def effect_of(kind: Anomaly, form: Form, part: str = "") -> Effect:
    """The row of the table for an anomaly.

    Raises:
        ValueError: the anomaly cannot happen to this form, or to this part of a message.
    """
    found = _BY_NAME.get((kind, form, part)) or _BY_NAME.get((kind, form, ""))
    if found is None:
        of_part = f" of {part!r}" if part else ""
        raise ValueError(f"there is no {kind}{of_part} in {form} form")
    return found


def combined(effects: Iterable[Effect]) -> tuple[Finding, Finding]:
    """What several anomalies on one record cause: (findings of the message, of the record).

    Not for duplicates, which are further records: see the rules in `markdown`.
    """
    message, record = NOTHING, NOTHING
    for effect in effects:
        if effect.kind in DROPS:
            return _F.LOST, NOTHING
        message |= effect.message
        record |= effect.record
    if record:
        # Without an id nothing else can be read; without id or seq the record is foreign.
        first = (_F.FOREIGN, _F.CORRUPTED, _F.OTHER_RUN)
        return message & _F.LOST, next(finding for finding in first if record & finding)
    return message, NOTHING


_FINDINGS = """\
# Findings

A finding is one thing that can be wrong with a message. Its name is the same online and offline, in
metrics, summaries, reports and thresholds.

"""

_ABOUT = """
## Which fault causes which finding

Each kind of fault causes exactly this set of findings, online and offline, and no other. This holds
for messages that carry their proof (all that are large enough for it: 66 bytes and the id in body
form, any in header form), under `--expect-partition source`, once the destination is read to its
end and the deadline is past. `mirrortest calibrate` measures it against a faulty mirror.

A finding of the message is counted under the message's exact id. A finding of the record is that of
a record in the destination from which no id can be read: it is counted by partition, and its offset
is in the sequence log.

| fault | form | part | finding of the message | finding of the record |
|---|---|---|---|---|
"""

_COMBINATIONS = """
The part of `truncate` is where the value now ends: within the fill, within the descriptor, with the
header (what is left looks like a message too small for its proof), within the header's numbers, or
within the id. A message that is delayed is overtaken where later ones of its stream were written to
its partition before it. Headers are stripped and renamed in header form only: the body form has
none.

If several faults hit one message, these rules apply:

1. A message that is dropped is lost, and has no other finding.
2. A record without a readable id has one finding. If several apply, foreign comes before corrupted,
   and corrupted before other_run.
3. A message without any record from which its id can be read is lost, and has no other finding.
4. A message with more than one record from which its id can be read is duplicated. Each of these
   records adds its own findings.
5. A message is reordered in a partition if its first record from which its id can be read comes
   after such a record of a later message of its stream, whatever happened to either.
6. A message whose first copy may have been deleted unread is not reordered.
7. A message that arrives after it was claimed lost is late, and not lost.
"""


def markdown() -> str:
    """The table and its rules as documentation."""
    return _FINDINGS + findings_table() + _ABOUT + "\n".join(_lines()) + "\n" + _COMBINATIONS


def _lines() -> Iterator[str]:
    grouped: dict[tuple[Anomaly, str, Finding, Finding], list[Form]] = {}
    for effect in EFFECTS:
        key = (effect.kind, effect.part, effect.message, effect.record)
        grouped.setdefault(key, []).append(effect.form)
    for (kind, part, message, record), forms in grouped.items():
        form = "both" if len(forms) == len(Form) else forms[0].value
        cells = (f"`{kind}`", form, part, _names(message), _names(record))
        yield "| " + " | ".join(cells) + " |"


def _names(findings: Finding) -> str:
    return ", ".join(finding.label for finding in findings)
