"""Synthetic logs are filled as real ones; by brute force, their findings are exactly the truth."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from mirrortest.cli.synth import synth
from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.consume.consumer_log import ConsumerLog
from mirrortest.errors import UsageError
from mirrortest.model.findings import Finding, Outcome
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.produce.clock import Clock
from mirrortest.produce.lane import Flight, Lane
from mirrortest.produce.recording import LaneRecorder, TopicNumbers
from mirrortest.selftest.synthesis import synthesize
from mirrortest.selftest.synthetic_options import KINDS, SynthOptions, spread
from mirrortest.selftest.synthetic_run import SyntheticRun
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import batch_of, explode
from mirrortest.seqlog.files import find_sessions, read_file
from mirrortest.seqlog.options import Detail, Role
from mirrortest.seqlog.schema import Kind
from mirrortest.verify.judge import StreamVerdict
from mirrortest.verify.ledger import Ledger
from mirrortest.verify.ledger_record import LaneRecord
from mirrortest.verify.placement import ExpectPartition
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.form import Form
from mirrortest.wire.record_batch import decode_records
from mirrortest.wire.stream import ProducerId, StreamId
from tests.lab.harness import until
from tests.topics_seen import topics_seen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.seqlog.damage import Damage
    from mirrortest.seqlog.rows import Row
    from mirrortest.seqlog.writer import SequenceLog

MINUTE = 60_000_000_000
START = 1_700_000_000_000_000_000
STREAM = StreamId("t", "r1", "p", 1, 0)


def asked(log_dir: Path, messages: int = 3000, each: int = 3, **options: Any) -> SynthOptions:
    """A small run with so many anomalies of each kind."""
    return SynthOptions(
        **{
            "log_dir": log_dir,
            "run": "s",
            "messages": messages,
            "topics": ["a"],
            "producers": 3,
            "lanes": 3,
            "consumers": 2,
            "seed": 1,
            "anomalies": spread(each * len(KINDS), None),
            "run_length": 20,
            "batch": 7,
            "rate": 100,
            **options,
        }
    )


def logged(log_dir: Path, role: Role | None = None) -> list[dict[str, Any]]:
    """All rows of the run, as dicts."""
    return [
        row
        for found in find_sessions(log_dir)
        if role in {None, found.session.role}
        for file in found.files
        for batch in read_file(file, [])
        for row in batch.to_pylist()
    ]


def stream_of(row: dict[str, Any]) -> tuple[str | None, int | None, str, int | None]:
    return row["producer"], row["incarnation"], row["topic"], row["lane"]


def each_message(row: dict[str, Any]) -> Iterator[Any]:
    """(seq, offset) of an interval's messages."""
    return zip(
        range(row["seq_lo"], row["seq_hi"]), range(row["offset_lo"], row["offset_hi"]), strict=True
    )


def judged(written: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """The findings of logs by their definitions, a message at a time: (stream, seq, finding)."""
    acked: set[tuple[Any, ...]] = set()
    claimed: set[tuple[Any, ...]] = set()
    copies: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    found: set[tuple[Any, ...]] = set()
    for row in written:
        of = stream_of(row)
        if row["kind"] == Kind.SENT and row["outcome"] == Outcome.ACKED:
            acked |= {(*of, seq) for seq in range(row["seq_lo"], row["seq_hi"])}
        elif row["kind"] == Kind.CLAIMED:
            claimed |= {(*of, seq) for seq in range(row["seq_lo"], row["seq_hi"])}
        elif row["kind"] == Kind.SEEN:
            for seq, offset in each_message(row):
                copies[*of, seq].append((row["partition"], offset))
                found |= {(*of, seq, bit.label) for bit in Finding if row["findings"] & int(bit)}
    firsts = defaultdict(list)
    for message, at in copies.items():
        if len(at) > 1:
            found.add((*message, "duplicated"))
        for partition in {partition for partition, _ in at}:
            first = min(offset for where, offset in at if where == partition)
            firsts[message[:-1], partition].append((first, message[-1]))
    for (of, _), in_order in firsts.items():
        highest = -1
        for _, seq in sorted(in_order):
            if seq < highest:
                found.add((*of, seq, "reordered"))
            highest = max(highest, seq)
    found |= {(*message, "lost") for message in acked - copies.keys()}
    found |= {(*message, "late") for message in claimed & copies.keys()}
    found |= {(*message, "phantom") for message in copies.keys() - acked}
    return found


def truth_rows(log_dir: Path) -> list[tuple[str, int, str, int, int, str]]:
    """The truth's rows as tuples."""
    table = pq.read_table(log_dir / "run=s" / "truth.parquet")
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"detail": Detail.MESSAGES},
        {"skew": True, "topics": ["a", "b"], "incarnations": 3},
        {"producers": 1, "consumers": 9, "detail": Detail.MESSAGES, "batch": 1},
        {"anomalies": {Finding.LOST: 500, Finding.REORDERED: 20}, "lost_run": 3, "jobs": 2},
        {"anomalies": {Finding.LOST: 500}, "run_length": 99, "rate": 10_000},
        {"messages": 50, "producers": 20, "anomalies": {}, "run_length": 1},
    ],
)
def test_the_logs_hold_the_truth_and_nothing_else(tmp_path: Path, options: dict[str, Any]) -> None:
    """Judged a message at a time, the logs' findings are the truth's rows, each once."""
    wanted = asked(tmp_path, **options)
    written = synthesize(wanted)
    truth = truth_rows(tmp_path)
    assert len(truth) == len(set(truth))
    assert judged(logged(tmp_path)) == set(truth)
    counts = {kind.label: number for kind, number in wanted.anomalies.items()}
    assert Counter(row[-1] for row in truth) == counts == written.findings


@pytest.mark.parametrize("skew", [False, True])
def test_numbers_and_offsets_are_those_of_two_clusters(tmp_path: Path, skew: bool) -> None:
    """Each seq is sent once, each offset is used once on both sides, and all offsets are read."""
    wanted = asked(tmp_path, skew=skew, incarnations=2, topics=["a", "b"])
    synthesize(wanted)
    seqs: Counter[tuple[Any, ...]] = Counter()
    offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
    ends: dict[tuple[Any, ...], int] = {}
    marks: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in logged(tmp_path, Role.PRODUCER):
        of = stream_of(row)
        if row["kind"] == Kind.SENT:
            assert row["seq_hi"] <= marks[of]
            seqs.update((*of, seq) for seq, _ in each_message(row))
            offsets[row["topic"], row["partition"]] += [at for _, at in each_message(row)]
        elif row["kind"] == Kind.RESERVED:
            assert row["seq_lo"] == marks[of]
            marks[of] = row["seq_hi"]
        else:
            ends[of] = row["seq_hi"]
    assert set(seqs.values()) == {1}
    assert sum(ends.values()) == len(seqs) == wanted.messages
    assert all(message[-1] < ends[message[:-1]] for message in seqs)
    assert all(len(at) == len(set(at)) for at in offsets.values())
    tails: dict[tuple[str, int], int] = {}
    read: dict[tuple[str, int], set[int]] = defaultdict(set)
    seen: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in logged(tmp_path, Role.CONSUMER):
        at = (row["topic"], row["partition"])
        if row["kind"] == Kind.TAIL:
            tails[at] = row["offset_hi"]
        elif row["kind"] == Kind.READ:
            assert not read[at] & set(range(row["offset_lo"], row["offset_hi"]))
            read[at] |= set(range(row["offset_lo"], row["offset_hi"]))
        elif row["kind"] == Kind.SEEN:
            seen[at] += [offset for _, offset in each_message(row)]
    assert len(tails) == 6
    for at, end in tails.items():
        assert read[at] == set(range(end))
        assert len(seen[at]) == len(set(seen[at]))
        assert set(seen[at]) <= read[at]
        assert skew or len(seen[at]) == end


def test_rows_keep_the_rules_of_a_log(tmp_path: Path) -> None:
    """No row spans two minutes, times ascend, and histograms count each message once."""
    synthesize(asked(tmp_path, rate=5))
    spans = [row for row in logged(tmp_path) if row["kind"] in {Kind.SENT, Kind.SEEN}]
    minutes = {row["intended_first"] // MINUTE for row in spans}
    assert len(minutes) == 10
    for row in spans:
        assert row["intended_first"] // MINUTE == row["intended_last"] // MINUTE
        assert row["intended_first"] <= row["intended_last"] < row["arrived_last"]
        assert row["arrived_first"] <= row["arrived_last"]
        assert sum(row["latency_count"]) == row["seq_hi"] - row["seq_lo"]
        assert row["latency_bucket"] == sorted(set(row["latency_bucket"]))


def fill(written: list[dict[str, Any]]) -> dict[str, set[frozenset[str]]]:
    """By kind: which sets of columns are filled."""
    filled = defaultdict(set)
    for row in written:
        filled[row["kind"]].add(frozenset(name for name, value in row.items() if value is not None))
    return filled


def really_produced(detail: Detail) -> list[dict[str, Any]]:
    """A producer's rows, made by the producer's own code."""
    kept = []
    recorder = LaneRecorder(
        cast("Lane", SimpleNamespace(stream=STREAM, partition=0)),
        TopicNumbers(100),
        warmup=0,
        clock=Clock(lambda: START, lambda: START),
        per_message=detail is Detail.MESSAGES,
        append=lambda added: kept.append(batch_of(added)),
        append_arrays=lambda columns: kept.append(columns.batch()),
    )
    recorder.record_outcome(
        Flight(0, 0, np.arange(5) + START, START, 0, 1000), Outcome.ACKED, 0, START
    )
    recorder.close_row()
    kept.append(
        batch_of([rows.reserved(STREAM, 0, 5, partition=0), rows.end(STREAM, 5, partition=0)])
    )
    return [row for batch in kept for row in batch.to_pylist()]


def really_consumed(detail: Detail) -> list[dict[str, Any]]:
    """A consumer's rows, made by the consumer's own code."""
    kept: list[Row] = []
    log = SimpleNamespace(append=kept.extend)
    topics = topics_seen()
    book = ConsumerLog(
        cast("SequenceLog", log),
        cast("ConsumeOptions", SimpleNamespace(run="r1")),
        topics,
    )
    partition = AssignedPartition.fresh(
        TopicPartition("t", 0), 1, source="t", run="r1", policy=ExpectPartition.ANY, counts=[1]
    )
    partition.read_from = 0
    encoder = LaneEncoder("t", ProducerId("p", "r1", 1), 0, 0, 1, Form.BODY, 200)
    book.seen(
        partition,
        partition.take(
            decode_records(encoder.encode(0, np.full(5, START), START).buffer), START + 9
        ),
    )
    partition.checker.fragments[STREAM].duplicated.add(3, 4)
    book.read(partition)
    book.tail(partition.reached, 5)
    book.found(partition)
    lost = IntervalSet()
    lost.add(5, 6)
    book.claimed(STREAM, lost)
    book.expired(STREAM, lost)
    book.verdict(STREAM, StreamVerdict(STREAM, found={Finding.LOST: lost}))
    ledger = Ledger()
    acked = IntervalSet()
    acked.add(0, 5)
    ledger.merge(LaneRecord(STREAM, reserved=6, acked=acked))
    book.vouched(ledger)
    batch = batch_of(kept)
    listed: list[dict[str, Any]] = (
        explode(batch) if detail is Detail.MESSAGES else batch
    ).to_pylist()
    return listed


@pytest.mark.parametrize("detail", list(Detail))
def test_columns_are_filled_as_in_real_logs(tmp_path: Path, detail: Detail) -> None:
    """By kind of row, exactly those columns have values that the real writers fill."""
    synthesize(asked(tmp_path, detail=detail))
    assert fill(logged(tmp_path, Role.PRODUCER)) == fill(really_produced(detail))
    assert fill(logged(tmp_path, Role.CONSUMER)) == fill(really_consumed(detail))


def test_sessions_are_whole_and_explain_themselves(tmp_path: Path) -> None:
    """Every file is listed with its rows, every session ended cleanly, after its last row."""
    written = synthesize(asked(tmp_path, messages=12_000, incarnations=2))
    found = find_sessions(tmp_path)
    assert written.sessions == len(found) == 3 * 2 + 2
    for each in found:
        session = each.session
        damage: list[Damage] = []
        assert (each.damage, session.clean) == ((), True)
        assert session.topics["a"].destination_partitions == 3
        for file in each.files:
            assert sum(b.num_rows for b in read_file(file, damage)) == file.rows
            assert not file.unproven
            times = pq.read_table(file.location.uri)["arrived_last"].drop_null().to_numpy()
            assert session.started_ns < times.min()
            assert times.max() < session.ended_ns
        assert not damage
    assert sum(note.rows for each in found for note in each.session.files) == written.rows


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    """Whatever the number of threads; another seed gives other logs."""

    def digest(name: str, **options: int) -> bytes:
        synthesize(asked(tmp_path / name, **options))
        files = sorted((tmp_path / name).rglob("*.*"))
        assert len(files) > 2
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).digest()

    assert digest("x", jobs=1) == digest("y", jobs=3) != digest("z", seed=2)


def test_any_stretch_of_the_run_is_known_alone(tmp_path: Path) -> None:
    """A producer's rows are the same whether others' are computed or not; chunks leave no gaps."""
    run = SyntheticRun(
        asked(tmp_path, messages=250_000, run_length=1, producers=100, lanes=100, incarnations=2)
    )
    assert sum(1 for _ in run.chunks()) == 4
    mine = run.producer == 2
    positions: Counter[tuple[int, int]] = Counter()
    for full, part in zip(run.chunks(), run.chunks(slots=mine), strict=True):
        kept = mine[full.slot]
        assert (full.seq_lo[kept] == part.seq_lo).all()
        assert (full.offset[kept] == part.offset).all()
        for slot, lo, hi in zip(part.slot, part.seq_lo, part.seq_hi, strict=True):
            assert positions[full.phase, slot] == lo
            positions[full.phase, slot] = hi


def test_a_skewed_run_has_a_stream_of_nine_rows_in_ten(tmp_path: Path) -> None:
    """Its rows do not continue each other, so that they are not merged."""
    synthesize(asked(tmp_path, skew=True, messages=30_000, anomalies={}))
    for role in (Role.PRODUCER, Role.CONSUMER):
        spans = [r for r in logged(tmp_path, role) if r["kind"] in {Kind.SENT, Kind.SEEN}]
        share = Counter(stream_of(row) for row in spans)
        (hot, most), *_ = share.most_common()
        assert 0.88 < most / len(spans) < 0.92
        mine = [row for row in spans if stream_of(row) == hot]
        for before, after in pairwise(mine):
            cut = after["intended_first"] // MINUTE > before["intended_first"] // MINUTE
            assert cut or after["offset_lo"] > before["offset_hi"]


def test_mistakes_are_told_in_a_line(tmp_path: Path) -> None:
    """Too many anomalies, a run that exists already, and invalid options."""
    with pytest.raises(UsageError, match="too many anomalies for"):
        synthesize(asked(tmp_path / "a", each=300))
    with pytest.raises(UsageError, match="too many anomalies for"):
        synthesize(asked(tmp_path / "b", anomalies={Finding.LOST: 2000}))
    assert not any((tmp_path / "b").iterdir())
    synthesize(asked(tmp_path, anomalies={}))
    with pytest.raises(UsageError, match="exists already"):
        synthesize(asked(tmp_path))
    with pytest.raises(UsageError, match="at least 2 --lanes"):
        asked(tmp_path, lanes=1)
    with pytest.raises(UsageError, match="--run"):
        replace(asked(tmp_path), run="No")
    for option in ("--messages", "--throughput", "--anomalies", "--lost"):
        for text in ("1.5", "-3", "many", "1e99"):
            with pytest.raises(UsageError, match=option):
                invoke("--log-dir", str(tmp_path), "--run", "a", f"{option}={text}")


def test_an_interrupted_run_is_removed(tmp_path: Path) -> None:
    """Half of it remained, and the same command was refused: the run existed already."""
    line = f"synth --run big --messages 1e9 --log-dir {tmp_path}"
    with subprocess.Popen([sys.executable, "-m", "mirrortest", *line.split()]) as writing:
        until(lambda: list(tmp_path.glob("run=big/role=*")))
        writing.send_signal(signal.SIGINT)
        assert writing.wait(60) == 128 + signal.SIGINT
    assert not list(tmp_path.iterdir())


def invoke(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(synth)
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_command_tells_what_it_wrote(tmp_path: Path) -> None:
    """As lines for people, and as JSON; the figures are those of the files."""
    asked_for = ["--log-dir", str(tmp_path), "--messages", "2e4", "--anomalies", "10"]
    lines = invoke(*asked_for, "--run", "a")
    assert "20,000 messages as" in lines
    assert "phantom: 1" in lines
    output = json.loads(invoke(*asked_for, "--run", "b", "--json"))
    assert output["findings"] == {kind.label: 1 for kind in sorted(KINDS, key=lambda k: k.label)}
    files = list(tmp_path.glob("run=b/role=*/*/*.parquet"))
    assert output["files"] == len(files) == output["sessions"] == 10
    assert output["rows"] == sum(pq.read_metadata(file).num_rows for file in files)
    assert output["size"] == sum(file.stat().st_size for file in files)
    assert pq.read_metadata(output["truth"]).num_rows == 10
