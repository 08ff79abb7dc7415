"""The bench itself: what it measures, and what it shows."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime

import pytest
from rich.console import Console

pytest.importorskip("confluent_kafka", reason="in the dependency group `bench`")

from typing import TYPE_CHECKING

from mirrortest.wire.stream import checked_run
from tests.bench import report
from tests.bench.cases import Case, Result
from tests.bench.contenders import CONFLUENT, JAVA, OURS, run_of
from tests.bench.curves import Point, counts_of
from tests.bench.held import AtRate
from tests.bench.highest import Tried
from tests.bench.measure import Cost, Figure, Running, figure
from tests.bench.memory import Resident
from tests.bench.profile import read, shares
from tests.bench.scrapes import Scrapes, quantile

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

SPIN = "import time\nwhile time.process_time() < 0.3 + {count} / 1000: pass"


def shown(table: Table) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_a_figure_leaves_out_what_a_start_costs(tmp_path: Path) -> None:
    """A command that burns 1 ms of CPU per message costs 1 ms, whatever its start burns."""
    found = figure(
        lambda count: [sys.executable, "-c", SPIN.format(count=count)], (10, 210), tmp_path
    )
    assert found.cpu_us == pytest.approx(1000, rel=0.3)
    assert found.resident > 1 << 20


def test_a_command_that_fails_ends_the_bench_with_its_words(tmp_path: Path) -> None:
    """A figure of a broken command would be worthless."""
    with pytest.raises(SystemExit, match="it broke"):
        Running([sys.executable, "-c", "import sys; sys.exit('it broke')"], tmp_path).wait()
    code = Running([sys.executable, "-c", "import sys; sys.exit(99)"], tmp_path).wait((0, 99))
    assert code.cpu > 0


def test_the_table_compares_figures_of_one_turn() -> None:
    """Ratios are taken within each turn, not between the medians."""
    case = Case("verify", 1000)
    results = [
        Result(case, contender, turn, Figure(cpu, 1e6, 150_000_000))
        for turn, (ours, theirs) in enumerate(((1.0, 2.0), (2.0, 8.0), (4.0, 4.0)))
        for contender, cpu in ((OURS, ours), (CONFLUENT, theirs))
    ]
    text = shown(report.costs(results))
    assert "verify 1 kB" in text
    assert "2.00 (1.00 to 4.00)" in text
    assert "x 2.0 (1.0 to 4.0)" in text


def test_the_figures_are_json_and_say_what_was_held() -> None:
    """The file has every kind of figure, and says which rates were held."""
    in_time = Tried(1000, 10, 995.0, 0.010, 0.001, 0.001, 1.0, 1.0, 1, 1, 0.1)
    late = Tried(1000, 10, 999.0, 0.030, 0.001, 0.001, 1.0, 1.0, 1, 1, 0.1)
    point = Point("streams", 10, None, Figure(1.0, 2.0, 3))
    result = Result(Case("produce", 100, "headers"), OURS, 0, Figure(0.1, 1.0, 2))
    found = report.figures(
        datetime(2026, 1, 2, tzinfo=UTC), 7, (0.0, 0.0, 0.0), [result], [in_time, late], [point],
        [Resident(5.0, 150_000_000, None)],
    )  # fmt: skip
    found = json.loads(json.dumps(found))
    assert [each["held"] for each in found["highest"]] == [True, False]
    assert found["results"][0]["name"] == "produce 100 B headers"
    assert found["curves"][0]["verify"]["cpu_us"] == 1.0
    assert "995" in shown(report.loads([in_time]))
    assert "streams" in shown(report.curves([point]))
    assert found["memory"][0]["producer"] == 150_000_000
    assert "150" in shown(report.residents([Resident(5.0, 150_000_000, None)]))


def test_a_held_rate_is_shown_beside_javas_of_the_same_turn() -> None:
    """If a turn counted no CPU time, the table marks the cost as not resolved."""
    turns = [
        AtRate(OURS, 1000, 50.0, 0.0, acked=0.004, arrived=0.005),
        AtRate(JAVA, 1000, 100.0, 90.0),
        AtRate(OURS, 1000, 100.0, 20.0, acked=0.006, arrived=0.007),
        AtRate(JAVA, 1000, 400.0, 80.0),
    ]
    text = shown(report.at_rates(turns))
    assert "75.0 (50.0 to 100.0)" in text
    assert "x 3.00 (2.00 to 4.00)" in text
    assert "not resolved: 10.0 (0.0 to 20.0)" in text
    assert "5.0 ms" in text
    found = report.figures(
        datetime(2026, 1, 2, tzinfo=UTC), 7, (0.0,), [], [], [], [], at_rates=turns
    )
    assert [each["produce"] for each in found["held"]] == [50.0, 100.0, 100.0, 400.0]


def test_a_scrape_and_what_it_does_to_latencies_are_shown() -> None:
    """A quantile is the upper bound of its bucket; without a message there is an error."""
    buckets = {0.001: 0.0, 0.002: 98.0, 0.004: 99.0, 0.008: 100.0, float("inf"): 100.0}
    assert [quantile(buckets, share) for share in (0.5, 0.99, 1.0)] == [0.002, 0.004, 0.008]
    with pytest.raises(SystemExit, match="no message"):
        quantile(dict.fromkeys(buckets, 0.0), 0.99)
    took, idle = [0.005, 0.007, 0.030], [0.001, 0.002]
    found = Scrapes(64, 150, 24_000, took, idle, 0.004, 0.008, 0.008, 0.016, 25_000_000, 0.003)
    table = shown(report.scraped([found]))
    for part in ("7.0 ms", "30.0 ms", "67%", "16.0 ms", "1.5 ms", "100%", "25"):
        assert part in table


def test_points_write_about_as_much_whatever_the_size() -> None:
    """A point's larger run has five times the messages of the smaller, and at most 1.2 GB."""
    for size in (16, 1000, 100_000):
        fewer, more = counts_of(size)
        assert more == 5 * fewer or more - 5 * fewer < 5
        assert more * size <= 1_200_000_000


def test_a_run_is_named_after_its_topic() -> None:
    """The name is a valid run id, and differs for each topic and turn."""
    names = [f"bench.d.{turn}.1000.body.mirrortest.{n}" for turn in (0, 1) for n in (5, 25)]
    runs = [checked_run(run_of(name)) for name in names]
    assert len(set(runs)) == len(names)


def test_a_profile_counts_work_alone() -> None:
    """It includes neither the start nor waiting."""
    lines = [
        "run (start.py:1);import_module (x.py:2) 50",
        "run (start.py:1);run_until_complete (b.py:1);take (mirrortest/consume/a.py:3);memcpy 3",
        "run (start.py:1);run_until_complete (b.py:1);take (mirrortest/consume/a.py:3) 2",
        "run (start.py:1);run_until_complete (b.py:1);epoll_pwait (libc.so.6) 70",
    ]
    within, below = shares(read(lines))
    assert within == {"memcpy": 3, "take (mirrortest/consume/a.py:3)": 2}
    assert below == {"take (mirrortest/consume/a.py:3)": 5}


def test_of_several_turns_the_least_cost_of_each_size_counts() -> None:
    """A disturbance of one run neither raises nor lowers the cost of a message."""
    turns = [
        (Cost(cpu=1.0, wall=3.0, resident=5), Cost(cpu=9.0, wall=4.0, resident=6)),
        (Cost(cpu=8.0, wall=1.0, resident=5), Cost(cpu=3.0, wall=9.0, resident=7)),
    ]
    assert Figure.of(turns, (100, 300)) == Figure(cpu_us=1e4, wall_us=1.5e4, resident=7)
