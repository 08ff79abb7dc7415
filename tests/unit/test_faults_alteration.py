"""Each kind of act in both forms: what is written, what the truth has, what is then read."""

from __future__ import annotations

from typing import Any

import pytest

from mirrortest.faults.alteration import ORDER, TruthRow
from mirrortest.faults.record_changes import CONTENT
from mirrortest.faults.spec import Spec
from mirrortest.model.findings import Finding
from mirrortest.verify.anomaly import Anomaly, effect_of
from mirrortest.wire.form import Form
from mirrortest.wire.message import Record, decode, encode
from tests.unit.faults_source import ANN, BOB, OTHER, TOPIC, Written, lane, message, through

FORMS = pytest.mark.parametrize("form", Form)
COUNT, VICTIM = 40, 17


def act(kind: str, **details: float | str) -> str:
    """A specification of one act on the victim."""
    chosen = details.pop("chosen", f'ids = ["ann@r7.1 3 {VICTIM}"]')
    lines = "\n".join(f"{key} = {value!r}".replace("'", '"') for key, value in details.items())
    return f'seed = 5\n[[acts]]\nkind = "{kind}"\n{chosen}\n{lines}\n'


def seqs(found: list[Written]) -> list[int]:
    return [each.seq for each in found]


def truth_rows(found: list[Written]) -> list[TruthRow]:
    return [note for each in found for note in each.faults]


def differences(a: bytes, b: bytes) -> list[int]:
    """Positions at which two byte strings of one length differ."""
    assert len(a) == len(b)
    return [at for at, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]


@FORMS
def test_without_acts_all_is_copied(form: Form) -> None:
    """Every record comes out as it went in, once, in order, in its own partition."""
    records = lane(COUNT, form)
    found, faults = through("seed = 1", records, cuts=(3, 30))
    assert [each.record for each in found] == records
    assert {each.target for each in found} == {(TOPIC, 1)}
    assert not truth_rows(found)
    assert not faults


@FORMS
@pytest.mark.parametrize(
    ("kind", "chosen", "dropped"),
    [
        ("drop", f'ids = ["ann@r7.1 3 {VICTIM}"]', {VICTIM}),
        ("drop-run", f'ids = ["ann@r7.1 3 {VICTIM}"]\nlength = 4', {17, 18, 19, 20}),
        ("drop-tail", "window = { seq = [30] }", set(range(30, COUNT))),
        ("drop-tail", f'ids = ["ann@r7.1 3 {VICTIM}"]', set(range(VICTIM, COUNT))),
        ("drop-producer", 'producer = "ann"', set(range(COUNT))),
        ("drop-partition", "partition = 1", set(range(COUNT))),
        ("drop-partition", "partition = 2", set()),
        ("drop-producer", 'producer = "bob"', set()),
    ],
)
def test_drops(form: Form, kind: str, chosen: str, dropped: set[int]) -> None:
    """A dropped message is not written, and has one row in the truth; all others are unchanged."""
    records = lane(COUNT, form)
    found, faults = through(act(kind, chosen=chosen), records, cuts=(18,))
    assert [each.record for each in found] == [
        record for seq, record in enumerate(records) if seq not in dropped
    ]
    assert {note.subject.seq for note in faults} == dropped
    assert len(faults) == len(dropped)
    for note in faults:
        assert (note.kind, note.act, note.detail) == (kind, 0, "not written")
        assert note.subject == (TOPIC, 1, note.subject.seq, ANN, 3, note.subject.seq, form)


CHANGES = [
    ("change-id", {}, ""),
    ("change-seq", {}, ""),
    ("change-time", {}, ""),
    ("change-descriptor", {}, ""),
    ("change-payload", {}, ""),
    ("truncate", {"bytes": 3}, "fill"),
    ("truncate", {"bytes": 100}, "descriptor"),
    ("truncate", {"bytes": 108}, "header"),
    ("truncate", {"bytes": 120}, "numbers"),
    ("truncate", {"bytes": 148}, "id"),
    ("extend", {"bytes": 2}, ""),
    ("rekey", {}, ""),
    ("rekey", {"key": "x"}, ""),
    ("strip-header", {"header": "id"}, "id"),
    ("strip-header", {"header": "seq"}, "seq"),
    ("strip-header", {"header": "ts"}, "ts"),
    ("strip-header", {"header": "d"}, "d"),
    ("add-header", {}, ""),
    ("rename-header", {"header": "id"}, "id"),
    ("rename-header", {"header": "d", "to_header": "D"}, "d"),
    ("restamp", {"shift_ms": -3}, ""),
]


@FORMS
@pytest.mark.parametrize(("kind", "details", "part"), CHANGES)
def test_changes(form: Form, kind: str, details: dict[str, Any], part: str) -> None:
    """Only the victim's record differs, in its place, and is read with the expected findings."""
    records = lane(COUNT, form)
    if kind in {"strip-header", "rename-header"} and form is Form.BODY:
        found, _ = through(act(kind, **details), records)
        assert [each.record for each in found] == records
        assert not truth_rows(found)
        return
    found, faults = through(act(kind, **details), records)
    assert not faults
    changed = [at for at, each in enumerate(found) if each.record != records[at]]
    assert changed == [VICTIM]
    (note,) = truth_rows(found)
    assert found[VICTIM].faults == (note,)
    assert note.subject[:6] == (TOPIC, 1, VICTIM, ANN, 3, VICTIM)
    if kind == "truncate" and form is Form.HEADERS:
        part = ""
    assert not part or note.part == part
    effect = effect_of(Anomaly(kind), form, part)
    read = decode(found[VICTIM].record, TOPIC)
    if effect.record:
        assert (read.id, read.findings) == (None, effect.record)
    else:
        assert (read.id, read.lane, read.seq) == (ANN, 3, VICTIM)
        assert read.findings == effect.message


@FORMS
@pytest.mark.parametrize(
    ("kind", "header", "body"),
    [
        ("change-id", "id", (0, 8)),
        ("change-seq", "seq", (9, 21)),
        ("change-time", "ts", (22, 41)),
        ("change-descriptor", "d", (42, 74)),
        ("change-payload", "", (74, 150)),
    ],
)
def test_a_change_hits_one_byte_of_its_part(
    form: Form, kind: str, header: str, body: tuple[int, int]
) -> None:
    """For any seed, exactly one byte differs; it is in the part, and the truth names it."""
    record = encode(message(VICTIM), form)
    hit = set()
    for seed in range(60):
        spec = act(kind).replace("seed = 5", f"seed = {seed}")
        ((_, changed, (note,)),), _ = through(spec, [record])
        assert changed._replace(value=b"", headers=()) == record._replace(value=b"", headers=())
        if form is Form.HEADERS and header:
            before, after = dict(record.headers)[header], dict(changed.headers)[header]
            assert {**dict(changed.headers), header: before} == dict(record.headers)
            assert changed.value == record.value
        else:
            before, after = record.value, changed.value
            assert changed.headers == record.headers
        assert before is not None
        assert after is not None
        (at,) = differences(before, after)
        assert f"byte {at}: {before[at]:#04x} -> {after[at]:#04x}" in note.detail
        if form is Form.BODY:
            assert body[0] <= at < body[1]
        hit.add(at)
    assert len(hit) > 5


@FORMS
@pytest.mark.parametrize(("kind", "details"), [("change-payload", {}), ("truncate", {})])
def test_what_cannot_be_done_is_not_told(form: Form, kind: str, details: dict[Any, Any]) -> None:
    """A message without a payload stays as it is, and has no row in the truth."""
    records = lane(3, form, size=0)
    spec = act(kind, chosen="rate = 1", **details)
    found, _ = through(spec, records)
    if kind == "truncate" and form is Form.BODY:  # part of the header goes, and the id with it
        assert {decode(each.record, TOPIC).id for each in found} == {None}
        return
    assert [each.record for each in found] == records
    assert not truth_rows(found)


@pytest.mark.parametrize("kind", ["change-seq", "change-id", "rekey"])
def test_no_message_passes_for_another(kind: str) -> None:
    """A message too small for a proof would be read as one that was never sent: left unchanged."""
    records = lane(3, Form.BODY, size=0)
    found, _ = through(act(kind, chosen="rate = 1"), records)
    assert [each.record for each in found] == records


@FORMS
@pytest.mark.parametrize(
    ("kind", "details", "goes"),
    [
        ("reroute", {"to_partition": 3}, {(TOPIC, 3)}),
        ("reroute", {}, {(TOPIC, 0), (TOPIC, 2), (TOPIC, 3)}),
        ("merge-partitions", {"to_partition": 2, "chosen": "partition = 1"}, {(TOPIC, 2)}),
        (
            "merge-topics",
            {"to_topic": OTHER, "chosen": f'topic = "{TOPIC}"\npartition = 1'},
            {(OTHER, 1)},
        ),
    ],
)
def test_moves(form: Form, kind: str, details: dict[str, Any], goes: set[tuple[str, int]]) -> None:
    """The same record is written elsewhere; in another topic it proves nothing."""
    records = lane(COUNT, form)
    details.setdefault("chosen", "rate = 1") if kind == "reroute" else None
    found, faults = through(act(kind, **details), records)
    assert [each.record for each in found] == records
    assert {tuple(each.target) for each in found} == goes
    assert len(truth_rows(found)) == COUNT
    assert not faults
    read = decode(found[0].record, found[0].target.topic)
    if kind == "merge-topics":
        assert read.findings == Finding.CORRUPTED
    else:
        assert read.findings == Finding(0)


@FORMS
def test_duplicates(form: Form) -> None:
    """The same record is written again, at once or later; only the copies have rows."""
    records = lane(COUNT, form)
    found, _ = through(act("duplicate", copies=2), records)
    assert seqs(found) == [*range(18), 17, 17, *range(18, COUNT)]
    assert [len(each.faults) for each in found[17:20]] == [0, 1, 1]
    found, _ = through(act("duplicate-later", distance=5), records, cuts=(20,))
    assert seqs(found) == [*range(23), 17, *range(23, COUNT)]
    assert [note.kind for note in found[23].faults] == ["duplicate-later"]
    found, _ = through(act("duplicate-later", distance=500), records)
    assert seqs(found) == [*range(COUNT), 17]


@FORMS
@pytest.mark.parametrize("cuts", [(), (17,), (18,), (19, 25)])
def test_out_of_order(form: Form, cuts: tuple[int, ...]) -> None:
    """Swapped with its neighbour, or written later; the row has how many overtook it."""
    records = lane(COUNT, form)
    found, _ = through(act("swap"), records, cuts=cuts)
    assert seqs(found) == [*range(17), 18, 17, *range(19, COUNT)]
    (note,) = truth_rows(found)
    assert (note.kind, note.subject.seq, note.overtaken) == ("swap", 17, 1)
    found, _ = through(act("hold", distance=8), records, cuts=cuts)
    assert seqs(found) == [*range(17), *range(18, 26), 17, *range(26, COUNT)]
    (note,) = truth_rows(found)
    assert (note.kind, note.overtaken) == ("hold", 8)
    assert found[25].faults == (note,)


def test_neighbours_are_of_one_stream() -> None:
    """A swap waits for the next message of its own stream, and a hold for at least one."""
    records = []
    for seq in range(6):
        records += [encode(message(seq, producer=producer), Form.BODY) for producer in (ANN, BOB)]
    for spec in (act("swap"), act("hold", distance=1)):
        found, _ = through(spec.replace("17", "2"), records)
        assert [decode(each.record, TOPIC)[:3:2] for each in found[4:9]] == [
            (BOB, 2),
            (ANN, 3),
            (ANN, 2),
            (BOB, 3),
            (ANN, 4),
        ]
        assert [note.overtaken for note in truth_rows(found)] == [1]


def test_a_message_that_nothing_overtook_is_not_told() -> None:
    """A lane's last message can be neither swapped nor held: it is written, without a row."""
    records = lane(18, Form.BODY)
    for kind in ("swap", "hold"):
        found, _ = through(act(kind), records)
        assert [each.record for each in found] == records
        assert not truth_rows(found)


def test_a_delay_is_told_with_its_time() -> None:
    """The message is written when its time is over, after all that came meanwhile."""
    records = lane(COUNT, Form.BODY)
    found, _ = through(act("delay", seconds=5.0), records)
    assert seqs(found) == [*range(17), *range(18, COUNT), 17]
    (note,) = truth_rows(found)
    assert (note.detail, note.overtaken) == ("written 7.000 s later", 22)


@FORMS
def test_a_replay_repeats_what_was_written(form: Form) -> None:
    """The last records again, in order, except those dropped, deferred, or without an id."""
    records = lane(COUNT, form)
    found, _ = through(act("replay", length=6), records, cuts=(15,))
    assert seqs(found) == [*range(18), *range(12, 18), *range(18, COUNT)]
    assert [note.subject.seq for note in truth_rows(found)] == list(range(12, 18))
    others = "".join(
        f'[[acts]]\nkind = "{kind}"\nids = ["ann@r7.1 3 {seq}"]\n{more}'
        for kind, seq, more in (
            ("drop", 13, ""),
            ("hold", 14, "distance = 9\n"),
            ("change-id", 15, ""),
            ("restamp", 16, ""),
        )
    )
    found, _ = through(act("replay", length=6) + others, records)
    again = [each for each in found if any(note.kind == "replay" for note in each.faults)]
    assert seqs(again) == [12, 16, 17]
    assert decode(again[1].record, TOPIC).findings == Finding.ALTERED_TIMESTAMP


@FORMS
def test_another_run_is_put_in(form: Form) -> None:
    """A complete, valid message of another run follows the chosen one."""
    records = lane(COUNT, form)
    found, _ = through(act("other-run", other_run="r6", age=60.0), records)
    extra = found.pop(18)
    assert [each.record for each in found] == records
    read = decode(extra.record, TOPIC)
    assert (read.id, read.lane, read.seq) == (ANN._replace(run="r6"), 3, VICTIM)
    assert read.findings == Finding(0)
    assert read.sent_ns == message(VICTIM).sent_ns - 60 * 10**9
    assert [note.subject.seq for note in extra.faults] == [VICTIM]


@FORMS
def test_several_acts_on_one_message(form: Form) -> None:
    """In the documented order, each with a row; one that removes the id is the last."""

    def both(*kinds: str) -> str:
        return "".join(act(kind) if at == 0 else act(kind)[9:] for at, kind in enumerate(kinds))

    records = lane(COUNT, form)
    found, _ = through(both("duplicate", "restamp", "hold", "add-header", "rekey"), records)
    assert seqs(found) == [*range(17), *range(18, 28), 17, 17, *range(28, COUNT)]
    assert [note.kind for note in found[27].faults] == ["add-header", "rekey", "restamp", "hold"]
    assert [note.kind for note in found[28].faults] == ["duplicate"]
    assert found[27].record == found[28].record
    assert decode(found[27].record, TOPIC).findings == (
        Finding.ALTERED_HEADERS | Finding.ALTERED_KEY | Finding.ALTERED_TIMESTAMP
    )
    found, _ = through(both("hold", "duplicate", "rekey", "change-seq"), records)
    assert len(found) == COUNT
    assert [note.kind for note in truth_rows(found)] == ["change-seq"]
    found, faults = through(both("duplicate", "change-id", "drop", "drop-run"), records)
    assert [note.kind for note in faults if note.subject.seq == VICTIM] == ["drop-run"]


def test_foreign_records_pass_and_can_be_dropped() -> None:
    """A record that is no message is copied as it is; acts that need an id do not select it."""
    odd = [
        Record(None, None, (), 5),
        Record(b"k", b"\0\xff" * 9, (("a", None), ("a", b"1"), ("", b"")), 6),
        Record(b"", b"", (), 7),
    ]
    found, _ = through("seed = 1", odd)
    assert [each.record for each in found] == odd
    every = "".join(act(kind, chosen="rate = 1") for kind in ("swap", "change-id", "other-run"))
    found, _ = through(every.replace("seed = 5\n", ""), odd)
    assert [each.record for each in found] == odd
    _, faults = through(act("drop", chosen="rate = 1"), odd)
    assert [note.subject[2:] for note in faults] == [(n, None, -1, -1, None) for n in range(3)]
    found, faults = through(act("drop", chosen='rate = 1\nproducer = "ann"'), odd)
    assert len(found) == 3


def test_every_kind_is_done_in_some_order() -> None:
    """The order has every kind, and so each act on the content."""
    assert sorted(ORDER) == sorted(Anomaly)
    assert set(CONTENT) < set(ORDER)
    assert Spec.parse("seed = 1").acts == ()
