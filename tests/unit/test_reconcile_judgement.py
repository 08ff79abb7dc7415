"""The reconciliation without Spark: random histories are judged by their definitions."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from mirrortest.errors import SequenceLogError
from mirrortest.model.findings import Finding
from mirrortest.reconcile import holes, missing, parts, source
from mirrortest.reconcile.bundle import Parts
from mirrortest.reconcile.interval_rows import INTERVALS
from mirrortest.reconcile.job import _latency_seconds, _Result, reconcile_by
from mirrortest.reconcile.plan import plan
from mirrortest.reconcile.slices import slices
from mirrortest.report import REPORT_FILE
from mirrortest.selftest.synthesis import synthesize
from mirrortest.selftest.synthetic_options import KINDS, SynthOptions, spread
from mirrortest.seqlog.options import Detail
from mirrortest.seqlog.rows import reserved
from mirrortest.timing.histogram import Histogram
from mirrortest.verify.placement import ExpectPartition
from tests.oracle.in_process import InProcess
from tests.oracle.offline import Job, differences, write
from tests.oracle.play import play
from tests.oracle.script import make_history
from tests.oracle.tape import LENGTH, Tape
from tests.oracle.truth import RUN
from tests.spark.spark_history import SECOND, START, History, seen, sent, stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrortest.reconcile.stream_rows import StreamRows


def tapes(policy: ExpectPartition, count: int) -> list[bytes]:
    """Random histories, different for each policy."""
    seeds = (f"judgement/{policy.value}/{number}" for number in range(count))
    return [random.Random(seed).randbytes(LENGTH) for seed in seeds]


def tables_of(place: Path) -> dict[str, list[str]]:
    """The rows of every table, sorted."""
    return {
        path.stem: sorted(map(str, pq.read_table(path).to_pylist()))
        for path in place.glob("*.parquet")
    }


@pytest.mark.parametrize("detail", [*Detail])
@pytest.mark.parametrize("policy", [*ExpectPartition])
def test_random_histories_are_judged_as_by_their_definitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: ExpectPartition, detail: Detail
) -> None:
    """By stream, finding and id, with everything packed that can be packed.

    Where online and offline differ, the definitions explain it.
    """
    monkeypatch.setattr(holes, "PACKING", holes.Packing(2, 1))
    differing = differences(None, tmp_path, [Job(tapes(policy, 60), policy, detail)])
    assert not differing, f"{len(differing)} differ\n{next(iter(differing.values()))}"


def test_offsets_that_two_found_gone_bound_what_stood_there_by_the_earlier(tmp_path: Path) -> None:
    """Only one of two logs has the minute: the consumer that knew it called messages reordered.

    Offline they were in doubt, so the comparison listed them as found only online.
    """
    tape = random.Random("e/any/82").randbytes(LENGTH)
    assert not differences(None, tmp_path, [Job([tape], ExpectPartition.ANY)])


def test_parts_are_judged_as_all_lanes_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows in every table, and the same summary, however lanes are spread."""
    policy = ExpectPartition.SOURCE
    played = [
        play(make_history(Tape(tape), name=str(at), topic=f"t{at}", policy=policy))
        for at, tape in enumerate(tapes(policy, 40))
    ]
    write(tmp_path, [online for _, online in played])
    results = {}
    for many in (False, True):
        if many:
            monkeypatch.setattr(source, "_SMALL", 0)
            monkeypatch.setattr(parts, "_AT_ONCE", 50)
            monkeypatch.setattr(missing, "MOST_ROWS", 0)
        summary = reconcile_by(InProcess(), plan([str(tmp_path)], RUN), ())
        place = tmp_path / f"run={RUN}" / "result"
        results[many] = (summary, tables_of(place))
    assert len(list(place.glob("findings.parquet/*"))) > 1
    assert results[True] == results[False]


def test_a_lane_is_judged_slice_by_slice_as_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If too much is missing to fit into memory: the same tables, and no range is cut."""
    synthesize(
        SynthOptions(
            log_dir=tmp_path,
            run="s",
            messages=20_000,
            anomalies=spread(len(KINDS) * 5, 3_000),
            lanes=3,
            producers=2,
            seed=7,
        )
    )
    monkeypatch.setattr(holes, "PACKING", holes.Packing(0, 0))
    monkeypatch.setattr(holes, "_BUCKET_BITS", 8)
    cut: list[int] = []

    def counted(*args: Any) -> Iterator[StreamRows]:
        for rows in slices(*args):
            cut.append(len(rows.kind))
            yield rows

    monkeypatch.setattr(parts, "slices", counted)
    results = []
    for at_once in (1 << 30, 100):
        monkeypatch.setattr(parts, "_AT_ONCE", at_once)
        summary = reconcile_by(InProcess(), plan([str(tmp_path)], "s"), ())
        results.append((summary, tables_of(tmp_path / "run=s" / "result")))
    assert len(cut) > 20
    assert results[1] == results[0]
    assert results[0][0].counts["lost"] == 3_000


def test_a_new_result_removes_the_earlier_report_and_a_summary_is_complete_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report showed the earlier verdict, and a kill could leave the half of a summary."""
    synthesize(SynthOptions(log_dir=tmp_path, run="s", messages=300))
    reconcile_by(InProcess(), plan([str(tmp_path)], "s"), ())
    place = tmp_path / "run=s" / "result"
    (place / REPORT_FILE).touch()
    write_text = Path.write_text

    def interrupted(path: Path, text: str, **how: Any) -> int:
        write_text(path, text[: len(text) // 2], **how)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", interrupted)
    with pytest.raises(SequenceLogError, match="No space left on device"):
        reconcile_by(InProcess(), plan([str(tmp_path)], "s"), ())
    assert not [name for name in ("summary.json", REPORT_FILE) if (place / name).exists()]


def test_all_rows_of_a_lane_are_for_one_part() -> None:
    """The part is the same in every process; rows without a lane go by their partition."""
    rows = pa.Table.from_pylist(
        [
            {"topic": topic, "lane": lane, "partition": partition}
            for topic in ("a", "b")
            for lane in (0, 1, None)
            for partition in (0, 1)
        ],
        INTERVALS,
    )
    assert Parts(7).of(rows).tolist() == [4, 4, 5, 5, 4, 5] * 2
    assert set(Parts(1).of(rows).tolist()) == {0}
    together = Parts(7, frozenset("b")).of(rows).tolist()
    assert (together[:6], len(set(together[6:]))) == ([4, 4, 5, 5, 4, 5], 1)


def test_a_topic_called_all_keeps_its_latencies_next_to_those_of_all_topics() -> None:
    """The latencies of all topics replaced the topic's, which were missing in the summary."""
    histograms = {topic: Histogram() for topic in ("all", "b", "together")}
    for count, histogram in enumerate(histograms.values(), 1):
        histogram.add([1_000_000] * count)
    together = histograms.pop("together")
    result = cast("_Result", SimpleNamespace(by_topic=histograms, latency=together))
    found = {topic: each.count for topic, each in _latency_seconds(result).items()}
    assert found == {"all (topic)": 1, "b": 2, "all": 3}
    del histograms["b"]
    assert list(_latency_seconds(result)) == ["all"]


@pytest.mark.parametrize("changed", [(9,), (9, 10)])
def test_the_audit_takes_the_minute_of_a_copy_whose_times_are_proven(
    tmp_path: Path, changed: tuple[int, ...]
) -> None:
    """A message of unknown outcome that is seen twice, once or both times with a changed time.

    It counted in a minute between its copies, in which nothing was sent.
    """
    history, of = History({"t": 1}), stream()
    history.producer += [reserved(of, 0, 10), sent(of, 0, 9)]
    history.consumers[0].append(seen(of, 0, 9, 0))
    for offset, hours in ((9, 4), (10, 2)):
        at = START + hours * 3600 * SECOND
        copy = seen(of, 9, 10, offset, findings=int(Finding.UNPROVEN) if offset in changed else 0)
        history.consumers[0].append(
            copy._replace(intended_first=at, intended_last=at) if offset in changed else copy
        )
    history.reads(11)
    history.write(tmp_path)
    reconcile_by(InProcess(), plan([str(tmp_path)], None), ())
    audit = pq.read_table(tmp_path / "run=r1" / "result" / "by_minute.parquet")
    (minute,) = audit.filter(pc.equal(audit["unknown"], 1))["minute"].to_pylist()
    hours = (minute.timestamp() - START / SECOND) / 3600
    assert hours == (2 if len(changed) > 1 else 0)
