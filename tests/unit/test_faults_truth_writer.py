"""The truth on disk: rows and positions become durable together, or not at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from mirrortest.errors import MirrortestError, UsageError
from mirrortest.faults.alteration import Subject, TruthRow
from mirrortest.faults.ground_truth import TRUTH, Deferral, read_summary, read_truth
from mirrortest.faults.records import (
    CopiedRows,
    RawRecord,
    encode_batch,
    encode_record,
    raw_record,
    record_at,
)
from mirrortest.faults.spec import Spec
from mirrortest.faults.truth_writer import TruthWriter, locked
from mirrortest.faults.unrecorded_writes import UnrecordedWrites
from mirrortest.verify.anomaly import Anomaly
from mirrortest.wire.form import Form
from mirrortest.wire.message import Record, encode
from mirrortest.wire.record_batch import decode_records
from tests.simulation.batch import stamped
from tests.unit.faults_source import ANN, TOPIC, batch_of, lane, message

if TYPE_CHECKING:
    from pathlib import Path

SPEC = Spec.parse('seed = 4\n[[acts]]\nkind = "drop"\nrate = 0.5')
KNOWN = Subject(TOPIC, 1, 70, ANN, 3, 7, Form.BODY)
UNREADABLE = Subject(TOPIC, 1, 71, None, -1, -1, None)


def note(subject: Subject = KNOWN, **changes: Any) -> TruthRow:
    return TruthRow(0, Anomaly.DROP, subject, "not written")._replace(**changes)


def test_rows_and_summary(tmp_path: Path) -> None:
    """What was recorded is read back, with nulls for what is unknown or missing."""
    writer = TruthWriter(tmp_path / "truth", SPEC)
    writer.record(note(), None, None, None)
    writer.record(note(UNREADABLE, part="id", overtaken=4, detail="x"), "A.orders", 2, 99)
    writer.read(TOPIC, 1).next = 72
    writer.read(TOPIC, 1).read = 60
    writer.wrote("A.orders", 2, 59, 100)
    writer.save(clean=True)
    table = read_truth(tmp_path / "truth")
    assert table.schema == TRUTH
    assert table.to_pylist() == [
        {
            "act": 0, "kind": "drop", "topic": TOPIC, "source_partition": 1, "source_offset": 70,
            "run": "r7", "producer": "ann", "incarnation": 1, "lane": 3, "seq": 7, "form": "body",
            "part": None, "overtaken": None, "destination_topic": None,
            "destination_partition": None, "destination_offset": None, "detail": "not written",
        },
        {
            "act": 0, "kind": "drop", "topic": TOPIC, "source_partition": 1, "source_offset": 71,
            "run": None, "producer": None, "incarnation": None, "lane": None, "seq": None,
            "form": None, "part": "id", "overtaken": 4, "destination_topic": "A.orders",
            "destination_partition": 2, "destination_offset": 99, "detail": "x",
        },
    ]  # fmt: skip
    summary = read_summary(tmp_path / "truth")
    assert summary.spec == SPEC
    assert summary.clean
    assert (summary.read[TOPIC][1].read, summary.read[TOPIC][1].next) == (60, 72)
    assert (summary.written, summary.ends) == ({"A.orders": {2: 59}}, {"A.orders": {2: 100}})


def test_what_was_not_saved_was_not_done(tmp_path: Path) -> None:
    """After a kill the truth is as of the last save: rows, positions and deferred messages."""
    writer = TruthWriter(tmp_path, SPEC)
    writer.record(note(), None, None, None)
    waiting = Deferral(offset=3, act=0, due=9, left_ns=5, overtaken=1, copy_of=True)
    writer.read(TOPIC, 1).waiting = [waiting]
    writer.save()
    writer.record(note(), None, None, None)
    writer.read(TOPIC, 1).next = 500
    pq.write_table(TRUTH.empty_table(), tmp_path / "acts-000007.parquet")  # of an interrupted save
    (tmp_path / "truth.json.draft").write_text("{")

    again = TruthWriter(tmp_path, SPEC)
    assert again.was_killed
    assert (again.read(TOPIC, 1).next, again.read(TOPIC, 1).waiting) == (0, [waiting])
    assert read_truth(tmp_path).num_rows == 1
    assert not (tmp_path / "acts-000007.parquet").exists()
    again.save(clean=True)
    assert not TruthWriter(tmp_path, SPEC).was_killed


def test_many_saves_make_few_files(tmp_path: Path) -> None:
    """Files are merged now and then, and into one at the end."""
    writer = TruthWriter(tmp_path, SPEC)
    for number in range(40):
        writer.record(note(detail=str(number)), None, None, None)
        writer.save()
        assert len(writer.summary.files) <= 33
    writer.save(clean=True)
    assert [path.name for path in tmp_path.glob("*.parquet")] == read_summary(tmp_path).files
    assert len(writer.summary.files) == 1
    assert read_truth(tmp_path)["detail"].to_pylist() == [str(number) for number in range(40)]


def test_one_directory_one_specification(tmp_path: Path) -> None:
    """Another specification needs another directory; a path that is no directory is refused."""
    TruthWriter(tmp_path / "a", SPEC)
    corrected = TruthWriter(tmp_path / "a", Spec(seed=9))  # the first one has done nothing
    assert read_summary(tmp_path / "a").spec == Spec(seed=9)
    corrected.read(TOPIC, 0).read = 1
    corrected.save()
    with pytest.raises(UsageError, match="belongs to another specification"):
        TruthWriter(tmp_path / "a", Spec())
    (tmp_path / "b").touch()
    with pytest.raises(UsageError, match="--truth"):
        TruthWriter(tmp_path / "b", SPEC)
    with pytest.raises(MirrortestError, match="cannot be read"):
        read_truth(tmp_path / "c")
    (tmp_path / "a" / "truth.json").write_text("{}")
    with pytest.raises(MirrortestError, match="another format: spec: Field required"):
        read_summary(tmp_path / "a")


def test_one_directory_one_pair_of_clusters(tmp_path: Path) -> None:
    """With other clusters the positions left out records, silently; ids are saved with them."""
    writer = TruthWriter(tmp_path, SPEC)
    writer.check_clusters("a", "b")
    writer.save()
    writer = TruthWriter(tmp_path, SPEC)
    writer.check_clusters("a", "c")  # nothing has been mirrored yet
    writer.read(TOPIC, 0).read = 1
    writer.save()
    again = TruthWriter(tmp_path, SPEC)
    again.check_clusters("a", "c")
    for source, destination in (("a", "b"), ("c", "a")):
        with pytest.raises(UsageError, match=r"--truth .* belongs to other clusters") as found:
            again.check_clusters(source, destination)
        assert "\n" not in str(found.value)


def test_a_truth_of_an_older_version_has_no_clusters(tmp_path: Path) -> None:
    """It can be read, and a mirror that continues it records the clusters."""
    writer = TruthWriter(tmp_path, SPEC)
    writer.read(TOPIC, 0).read = 1
    writer.save()
    file = tmp_path / "truth.json"
    content = json.loads(file.read_text())
    del content["clusters"]
    file.write_text(json.dumps(content))
    assert read_summary(tmp_path).clusters is None
    writer = TruthWriter(tmp_path, SPEC)
    writer.check_clusters("a", "b")
    writer.save()
    assert read_summary(tmp_path).clusters == ("a", "b")


def test_one_directory_one_mirror(tmp_path: Path) -> None:
    """Two at once deleted each other's files; the next one can begin when the first has ended."""
    folder = tmp_path / "new" / "truth"
    with locked(folder):
        with pytest.raises(UsageError, match="another mirror is using it") as found, locked(folder):
            pass
        assert "\n" not in str(found.value)
    with locked(folder):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--truth .*file: File exists"), locked(tmp_path / "file"):
        pass


def test_a_truth_of_a_newer_version_is_refused_in_a_line(tmp_path: Path) -> None:
    """Its specification may have a kind of act, or a parameter, that this version lacks."""
    TruthWriter(tmp_path, SPEC).save()
    file = tmp_path / "truth.json"
    content = json.loads(file.read_text())
    content["spec"]["acts"] = [{"kind": "bend", "rate": 0.5}]
    file.write_text(json.dumps(content))
    with pytest.raises(
        MirrortestError, match=r"another format: spec.acts.0.kind: .*'bend'"
    ) as found:
        TruthWriter(tmp_path, SPEC)
    assert "\n" not in str(found.value)


ODD = [
    Record(None, None, (), 5),
    Record(b"", b"", (("a", None), ("a", b""), ("", b"1"), ("a", b"2")), 0),
    Record(b"k" * 200, b"v" * 70_000, (("h" * 300, b"w" * 300),), 1 << 41),
    *(encode(message(seq), Form.HEADERS) for seq in range(100)),
]


def test_records_are_put_together_as_they_were() -> None:
    """Decoded and encoded again: the same bytes; a batch of both reads the same."""
    arrays = batch_of(ODD).records
    for row, record in enumerate(ODD):
        assert record_at(arrays, row) == record
        assert encode_record(record) == raw_record(arrays, row)
    batch = encode_batch(
        [CopiedRows(arrays, 0, 2), encode_record(ODD[2]), CopiedRows(arrays, 3, len(ODD))]
    )
    again = decode_records(batch.buffer)
    assert [record_at(again, row) for row in range(len(again))] == ODD
    newest = DefaultRecordBatch(bytes(batch.buffer)).max_timestamp
    assert newest == max(record.timestamp_ms for record in ODD)


def test_names_that_are_no_text_are_kept() -> None:
    """A header's name that is not UTF-8 keeps its bytes."""
    tail = b"\x01\x01\x02\x06\xff\xfea\x02x"
    arrays = decode_records(encode_batch([RawRecord(tail, 7)]).buffer)
    record = record_at(arrays, 0)
    assert record is not None
    assert encode_record(record) == RawRecord(tail, 7)


def test_large_stretches_are_cut() -> None:
    """No piece exceeds the limit, except a single record, and nothing is left out."""
    arrays = batch_of(lane(200, Form.BODY, size=1000)).records
    pieces = list(CopiedRows(arrays, 3, 200).cut(20_000))
    assert [piece.lo for piece in pieces] == [3, *(piece.hi for piece in pieces[:-1])]
    assert pieces[-1].hi == 200
    assert max(piece.size for piece in pieces) <= 20_000
    assert [len(piece) for piece in CopiedRows(arrays, 0, 5).cut(10)] == [1] * 5


def test_what_stands_there_already_is_found() -> None:
    """Each written record is found once, by its content; the others must be written."""
    arrays = batch_of(lane(6, Form.BODY)).records
    found = UnrecordedWrites()
    at, elsewhere = ("A.orders", 1), ("A.orders", 2)
    for row, offset in ((1, 70), (2, 71), (4, 75), (4, 80)):
        found.add(at, raw_record(arrays, row), offset)
    all_rows = CopiedRows(arrays, 0, 6)
    assert list(found.match(elsewhere, all_rows)) == [(all_rows, None)]
    pieces = [
        (piece.lo, piece.hi, offset)
        for piece, offset in found.match(at, all_rows)
        if isinstance(piece, CopiedRows)
    ]
    assert pieces == [
        (0, 1, None),
        (1, 2, 70),
        (2, 3, 71),
        (3, 4, None),
        (4, 5, 75),
        (5, 6, None),
    ]
    assert list(found.match(at, raw_record(arrays, 4))) == [(raw_record(arrays, 4), 80)]
    assert not found
    found.add(at, raw_record(arrays, 4), 1)
    assert found.clear() == 1
    assert not found


def test_what_brokers_stamped_is_found() -> None:
    """Where the destination has LogAppendTime, what a killed mirror wrote is not written again."""
    arrays = batch_of(lane(1, Form.BODY)).records
    copied, at = CopiedRows(arrays, 0, 1), ("A.orders", 1)
    found = UnrecordedWrites()
    batch = stamped(encode_batch([copied]).buffer, 1_900_000_000_000)
    found.add(at, raw_record(decode_records(batch), 0), 70)
    assert [offset for _, offset in found.match(at, copied)] == [70]
