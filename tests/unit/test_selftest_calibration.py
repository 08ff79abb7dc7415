"""What a calibration run writes, how it is judged, and why it may prove nothing."""

from __future__ import annotations

import asyncio
import json
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrortest.config.run_naming import TopicMapping
from mirrortest.errors import ClusterError, LabError, MirrortestError
from mirrortest.faults.ground_truth import TRUTH
from mirrortest.model.findings import Finding, Outcome
from mirrortest.model.verdict import Verdict
from mirrortest.results.summary import Partition, Summary
from mirrortest.selftest import calibration_run as running
from mirrortest.selftest.calibration import judge
from mirrortest.selftest.calibration_run import CalibrationRun, Progress, _Runner
from mirrortest.selftest.expected import read_injected
from mirrortest.selftest.sent import Numbers, Sent
from mirrortest.seqlog import rows
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Session
from mirrortest.seqlog.writer import SequenceLog
from mirrortest.verify.row import SeenRow
from mirrortest.wire.form import Form
from mirrortest.wire.stream import StreamId
from tests.unit.test_selftest_calibration_plan import plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirrortest.lab.testbed import Lab
    from mirrortest.selftest.calibration import Calibration
    from mirrortest.seqlog.rows import Row

RUN = "r7"
STREAM = StreamId("orders", RUN, "ann", 1, 0)
COUNT = 20
HIT, UNREADABLE = 5, 9
TIMES = (1, 2)


async def log(folder: Path, role: Role, name: str, added: list[Row]) -> None:
    """A complete log of these rows."""
    about = Session(run=RUN, role=role, name=name, session="s", started_ns=1)
    writer = await SequenceLog.open(folder / "logs", about)
    writer.append(added)
    await writer.close(clean=True)


def sent(lo: int, hi: int, offset: int | None, outcome: Outcome = Outcome.ACKED) -> Row:
    return rows.sent(STREAM, lo, hi, partition=0, outcome=outcome, offset_lo=offset, intended=TIMES)


@pytest.mark.parametrize(
    ("added", "reason"),
    [
        ([sent(0, 5, 0), sent(5, 9, 5, Outcome.UNKNOWN)], "messages 5 to 8 .* not all acknowled"),
        ([sent(0, 5, 0), sent(5, 9, None)], "messages 5 to 8"),
        ([sent(0, 5, 0), sent(5, 9, 6)], "orders-0 in the source has other records than"),
    ],
)
async def test_sends_that_prove_nothing(tmp_path: Path, added: list[Row], reason: str) -> None:
    """Unacknowledged messages, and records that are in no log, are reasons for doubt."""
    await log(tmp_path, Role.PRODUCER, "ann", added)
    found = Sent.read(tmp_path / "logs", RUN, Numbers())
    assert len(found.reasons) == 1
    assert re.search(reason, found.reasons[0])


async def test_sends_in_any_order(tmp_path: Path) -> None:
    """Every message at its offset, whatever the order of the rows."""
    await log(tmp_path, Role.PRODUCER, "ann", [sent(5, 9, 7), sent(0, 5, 0), sent(9, 11, 5)])
    numbers = Numbers()
    found = Sent.read(tmp_path / "logs", RUN, numbers)
    base = numbers.message(STREAM)
    wanted = [0, 1, 2, 3, 4, 9, 10, 5, 6, 7, 8]
    assert np.array_equal(found.at["orders", 0] - base, wanted)
    assert found.reasons == []


def row(kind: str, seq: int, **changes: str) -> dict[str, Any]:
    """A row of a faulty mirror's truth."""
    defaults = {
        "act": 0,
        "kind": kind,
        "topic": "orders",
        "source_partition": 0,
        "source_offset": seq,
        "run": RUN,
        "producer": "ann",
        "incarnation": 1,
        "lane": 0,
        "seq": seq,
        "form": "body",
        "destination_topic": "A.orders",
        "destination_partition": 0,
        "destination_offset": seq,
        "detail": "",
    }
    return {**defaults, **changes}


async def left(folder: Path, **changes: int | list[str]) -> Path:
    """The folder of a perfect calibration run: a key and a seq were changed, and found to be."""
    await log(folder, Role.PRODUCER, "ann", [sent(0, COUNT, 0)])
    seen = SeenRow(None, 0, 0, UNREADABLE, UNREADABLE + 1, int(Finding.CORRUPTED), *(0,) * 6)
    await log(folder, Role.CONSUMER, "carl", [rows.seen(seen, topic="orders", partition=0)])
    truth = folder / "truth"
    truth.mkdir()
    acts = [row("rekey", HIT), row("change-seq", UNREADABLE)]
    pq.write_table(pa.Table.from_pylist(acts, TRUTH), truth / "acts.parquet")
    summary = {"version": 1, "spec": {}, "clean": True, "files": ["acts.parquet"]}
    (truth / "truth.json").write_text(json.dumps(summary))
    ids = STREAM._asdict()
    online = {
        "streams": [{**ids, "altered_key": [[HIT, HIT + 1]], "lost": [[UNREADABLE, 10]]}],
        "counts": {"corrupted": 1},
    }
    (folder / "online").mkdir()
    (folder / "online" / "carl.json").write_text(json.dumps(online))
    result = folder / "logs" / f"run={RUN}" / "result"
    result.mkdir(parents=True)
    lost = {**ids, "seq_lo": UNREADABLE, "seq_hi": 10}
    found = [
        {**lost, "finding": "lost"},
        {**ids, "finding": "altered_key", "seq_lo": 5, "seq_hi": 6},
    ]
    pq.write_table(pa.Table.from_pylist(found), result / "findings.parquet")
    pq.write_table(
        pa.Table.from_pylist([{**lost, "verdict": "lost"}]), result / "undelivered.parquet"
    )
    reconciled = Summary(
        run=RUN,
        verdict=Verdict.FAILED,
        exit_code=99,
        counts={},
        partitions=[Partition(topic="orders", partition=0, counts={"corrupted_unknown_id": 1})],
    )
    (result / "summary.json").write_text(reconciled.encode())
    stage = CalibrationRun(
        run=RUN,
        messages=COUNT,
        rates=[0.1],
        deadline=20,
        seed=1,
        forms=[Form.BODY],
        senders={"ann": Form.BODY},
        readers=["carl"],
        alias="A",
        ends={"orders": {0: COUNT}},
        slowest=1,
        reasons=[],
    )
    stage = stage.model_copy(update=changes)
    (folder / "stage.json").write_text(stage.model_dump_json())
    return folder


def wrong(figures: Calibration) -> dict[tuple[str, str], tuple[int, int]]:
    """Where something is missed or false, both counts, by kind and way."""
    return {
        (each.kind, way): (counts.missed, counts.false)
        for each in figures.kinds
        for way, counts in (("online", each.online), ("offline", each.offline))
        if counts.missed or counts.false
    }


async def test_a_perfect_run_that_leaves_kinds_out(tmp_path: Path) -> None:
    """All injected anomalies are found; kinds that never occurred are unmeasured: no pass."""
    figures = judge(await left(tmp_path))
    assert wrong(figures) == {}
    assert figures.differences == figures.examples == []
    assert (figures.verdict, figures.exit_code) == (Verdict.INCONCLUSIVE, 3)
    assert "no drop was seeded in body form: it was not measured" in figures.inconclusive
    assert json.loads((tmp_path / "calibration.json").read_text())["seeded"] == 2


async def test_reasons_stand_before_failures(tmp_path: Path) -> None:
    """If a part died, a missing finding proves nothing."""
    folder = await left(tmp_path, reasons=["the faulty mirror died"])
    (folder / "online" / "carl.json").write_text(json.dumps({"streams": [], "counts": {}}))
    figures = judge(folder)
    assert wrong(figures) == {("rekey", "online"): (1, 0), ("change-seq", "online"): (1, 0)}
    assert figures.exit_code == 3
    assert figures.inconclusive[0] == "the faulty mirror died"


@pytest.mark.parametrize("name", [f"logs/run={RUN}/result/summary.json", "online/carl.json"])
async def test_an_interrupted_calibration_is_refused_in_a_line(tmp_path: Path, name: str) -> None:
    """Half a file, or none, ended the command with a traceback."""
    file = await left(tmp_path) / name
    file.write_text(file.read_text()[:20])
    with pytest.raises(MirrortestError, match=f"{name}: cannot be read: it is incomplete"):
        judge(tmp_path)
    if file.name == "summary.json":
        file.unlink()
        with pytest.raises(MirrortestError, match=f"{name}: cannot be read: No such file"):
            judge(tmp_path)


async def test_a_failure_is_proven(tmp_path: Path) -> None:
    """A finding that one way misses fails the calibration, and so does a wrong count."""
    folder = await left(tmp_path)
    (folder / "online" / "carl.json").write_text(json.dumps({"streams": [], "counts": {}}))
    figures = judge(folder)
    assert figures.exit_code == 99
    assert figures.differences == ["carl counts 0 corrupted, not 1"]
    assert "is not reported altered_key" in figures.examples[0]


async def test_late_from_slowness_proves_nothing(tmp_path: Path) -> None:
    """A mirror slower than the deadline makes messages late; a fast one does not."""
    folder = await left(tmp_path, slowest=25)
    file = folder / "online" / "carl.json"
    content = json.loads(file.read_text())
    content["streams"][0]["late"] = [[1, 2]]
    file.write_text(json.dumps(content))
    figures = judge(folder)
    assert figures.exit_code == 3
    assert "messages took up to 25 s" in figures.inconclusive[0]
    stage = json.loads((folder / "stage.json").read_text())
    (folder / "stage.json").write_text(json.dumps({**stage, "slowest": 1}))
    assert judge(folder).exit_code == 99


def test_a_truth_without_a_finding_is_refused() -> None:
    """A row that is not in the table of findings is an error; it is not skipped."""
    mapping = TopicMapping.parse(source_alias="A")
    with pytest.raises(MirrortestError, match="no strip-header of 'id' in body form"):
        read_injected([row("strip-header", 3, part="id")], Numbers(), mapping, RUN)


def test_nothing_there_is_told(tmp_path: Path) -> None:
    """A directory without a calibration is an error that says so."""
    with pytest.raises(MirrortestError, match="no calibration here"):
        judge(tmp_path)


def played(tmp_path: Path, **lab: Any) -> _Runner:
    return running._Runner(cast("Lab", SimpleNamespace(**lab)), plan(), tmp_path, lambda _: None)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            LabError("mirror died"),
            "the faulty mirror died, so its truth is incomplete: mirror died",
        ),
        (OSError("no descriptor"), "the faulty mirror could not be watched: no descriptor"),
    ],
    ids=["dead", "not watched"],
)
async def test_a_faulty_mirror_that_is_lost_ends_all(
    error: Exception, reason: str, tmp_path: Path
) -> None:
    """All applications are asked to end, and the reason is kept.

    Whatever the error is: nothing awaits the task that watches.
    """

    def check() -> None:
        raise error

    play = played(tmp_path, mirror=SimpleNamespace(check=check))
    await play._watch(asyncio.Event())
    assert play._ending.is_set()
    assert play._reasons == [reason]


async def test_a_consumer_that_dies_ends_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that ends early ends the run: there is no pass without its verdict."""

    async def dies(*_: None, **__: Callable[..., Any] | asyncio.Event) -> None:
        raise ClusterError("the destination is gone")

    monkeypatch.setattr("mirrortest.consume.consumer.run", dies)
    monkeypatch.setattr(running._Runner, "_consume_options", lambda *_: None)
    play = played(tmp_path)
    assert await play._guarded("consumer reader-1", play._consume("reader-1")) is None
    assert play._ending.is_set()
    assert play._reasons == ["consumer reader-1 ended early: the destination is gone"]


async def test_a_truth_that_is_not_clean_is_told(tmp_path: Path) -> None:
    """No truth, and the truth of a faulty mirror that did not exit cleanly."""
    play = played(tmp_path)
    play._note_truth()
    assert "cannot be read" in play._reasons[0]
    (tmp_path / "truth").mkdir()
    (tmp_path / "truth" / "truth.json").write_text(json.dumps({"spec": {}, "skipped": [{}]}))
    play._reasons.clear()
    play._note_truth()
    assert [reason.split(":")[0] for reason in play._reasons] == [
        "the faulty mirror did not exit cleanly",
        "records were deleted before the faulty mirror could read them",
    ]


def test_progress_is_one_line() -> None:
    """It has the numbers of producers and consumers."""
    progress = Progress(of=1000, doing="mirroring", sent={"a": 10, "b": 5}, read={"c": 7}, found=2)
    assert str(progress) == (
        "mirroring: 15 of 1,000 sent, 7 read by 1 consumers, 2 findings so far"
    )
    assert str(Progress(of=1)) == "starting"
