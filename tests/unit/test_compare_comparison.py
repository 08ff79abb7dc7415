"""What a comparison reports, and when it fails."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from mirrortest.cli import main
from mirrortest.compare.comparison import compare
from mirrortest.compare.document import Change, Comparison, interval
from mirrortest.compare.figures import Unit
from mirrortest.compare.repeat import Repeat, Side
from mirrortest.compare.terminal import view
from mirrortest.model.verdict import Verdict
from tests.compared import HIGH, LOW, drawn, judged_side, of, produced, recorded, side, write
from tests.false_alarms import COUNTS, failed_comparisons

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def change(name: str, base: Sequence[float], new: Sequence[float]) -> Change:
    (pair,) = compare(side(*of(name, *base)), [side(*of(name, *new))]).pairs
    (figure,) = pair.figures
    return figure.change


@pytest.mark.parametrize(
    ("name", "worse", "better"),
    [
        ("p(99)", Change.WORSE, Change.BETTER),
        ("produce_rate", Change.BETTER, Change.WORSE),
        ("batch_messages", Change.DIFFERS, Change.DIFFERS),
    ],
)
def test_each_figure_has_its_direction(name: str, worse: Change, better: Change) -> None:
    """Higher latencies and lower rates are worse; batches only differ."""
    assert change(name, LOW, HIGH) is worse
    assert change(name, HIGH, LOW) is better
    assert change(name, LOW, LOW) is Change.NONE


def test_less_than_a_measures_resolution_is_no_difference() -> None:
    """Its change is none, however certain its sign is, and not unknown."""
    assert change("p(99)", (1.0, 1.0, 1.001), (1.003, 1.003, 1.003)) is Change.NONE


@pytest.mark.parametrize("few", [LOW[:1], LOW[:2]])
def test_one_run_or_two_cannot_be_told(few: tuple[float, ...]) -> None:
    """With so few on either side, the change is unknown, not none; the verdict is inconclusive."""
    assert change("p(99)", few, HIGH) is change("p(99)", HIGH, few) is Change.UNKNOWN
    passed = [Verdict.PASSED]
    found = compare(
        side(*of("p(99)", 1.0), verdicts=passed), [side(*of("p(99)", 9.0), verdicts=passed)]
    )
    assert found.pairs[0].change is Change.UNKNOWN
    assert found.pairs[0].figures[0].difference == 8.0
    assert found.pairs[0].figures[0].low is None
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "1 run against 1: at least 3 on each side" in found.inconclusive[0]


def test_what_only_one_side_measured_cannot_be_told() -> None:
    """The reason names the side that lacks it."""
    found = compare(side(*of("p(99)", *LOW)), [side(*of("lag", *LOW))]).pairs[0].figures
    assert {each.name: each.why for each in found} == {
        "p(99)": "not measured in the new runs",
        "lag": "not measured in the base",
    }


def test_one_difference_of_many_that_chance_explains_is_not_claimed() -> None:
    """Alone, its interval excludes 0; among many figures that happens, so its change is unknown."""
    draws = np.random.default_rng(3)
    sides = [
        Side(
            "",
            [
                replace(each, figures={**each.figures, "produce_memory": first + at * 0.5})
                for at, each in enumerate(drawn(draws) for _ in range(4))
            ],
        )
        for first in (100.0, 101.2)
    ]
    alone = [side(*of("produce_memory", *each.figure("produce_memory"))) for each in sides]
    (by_itself,) = compare(alone[0], alone[1:]).pairs[0].figures
    among = {each.name: each for each in compare(sides[0], sides[1:]).pairs[0].figures}
    assert by_itself.low is not None
    assert by_itself.low > 0
    assert among["produce_memory"].change is Change.UNKNOWN
    assert among["produce_memory"].why == "may be chance, among so many figures"


def test_no_difference_means_that_the_interval_contains_none() -> None:
    """It does so for recorded runs, whose far latencies differ among themselves by a multiple."""
    sides = recorded()
    (pair,) = compare(Side("", sides["base"]), [Side("", sides["slow"])]).pairs
    equal = [each for each in pair.figures if each.change is Change.NONE]
    assert equal
    for each in equal:
        assert each.low is not None
        assert each.high is not None
        assert each.low <= 0 <= each.high, each.name


@pytest.mark.parametrize(
    ("name", "base", "new", "expected"),
    [
        ("lost", [0], [3], Change.WORSE),
        ("lost", [0, 0, 0], [0, 3, 0], Change.WORSE),
        ("lost", [3], [0], Change.UNKNOWN),
        ("lost", [3], [3], Change.NONE),
        ("lost", [3], [5], Change.UNKNOWN),
        ("lost", [3, 4, 3], [900, 950, 800], Change.WORSE),
        ("lost", [2, 9], [5, 4], Change.UNKNOWN),
        ("lost", [], [5], Change.UNKNOWN),
        ("duplicated", [0], [3], Change.UNKNOWN),
        ("duplicated", [0, 0, 0], [0, 3, 0], Change.NONE),
        ("duplicated", [90, 110, 100], [105, 95, 120], Change.NONE),
        ("duplicated", [3, 4, 3], [900, 950, 800], Change.WORSE),
        ("duplicated", [900, 950, 800], [3, 4, 3], Change.BETTER),
        ("inconclusive", [0, 0, 0], [7, 7, 7], Change.UNKNOWN),
    ],
)
def test_only_what_is_never_right_needs_no_repeats(
    name: str, base: list[int], new: list[int], expected: Change
) -> None:
    """One new loss is worse; duplicates may be chance: a restart causes them in some runs only."""
    sides = [side({}, counts=[{name: each} for each in of]) for of in (base, new)]
    found = compare(sides[0], sides[1:])
    (count,) = found.pairs[0].counts
    assert count.change is expected
    assert (found.exit_code == 99) is (expected is Change.WORSE)


def test_messages_that_could_not_be_judged_make_it_inconclusive() -> None:
    """Such messages may have been lost."""
    sides = [side(*of("p(99)", *LOW), counts=[{"inconclusive": each}] * 4) for each in (0, 7)]
    found = compare(sides[0], sides[1:])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.inconclusive == ["inconclusive: messages could not be judged"]


def test_counts_that_every_run_may_have_are_no_findings() -> None:
    """Foreign records in the topic, for example, are not compared."""
    found = compare(side(counts=[{"foreign": 0}]), [side(counts=[{"foreign": 9, "acked": 5}])])
    assert found.pairs[0].counts == []


@pytest.mark.parametrize(
    ("base", "new", "expected", "verdict"),
    [
        ("p", "p", Change.NONE, Verdict.PASSED),
        ("p", "f", Change.UNKNOWN, Verdict.INCONCLUSIVE),
        ("p", "i", Change.UNKNOWN, Verdict.INCONCLUSIVE),
        ("f", "p", Change.UNKNOWN, Verdict.PASSED),
        ("i", "p", Change.UNKNOWN, Verdict.PASSED),
        ("i", "i", Change.UNKNOWN, Verdict.INCONCLUSIVE),
        ("", "p", Change.UNKNOWN, Verdict.INCONCLUSIVE),
        ("ppp", "fff", Change.WORSE, Verdict.FAILED),
        ("ppp", "fffi", Change.WORSE, Verdict.FAILED),
        ("fff", "ppp", Change.BETTER, Verdict.PASSED),
        ("ppp", "ppi", Change.UNKNOWN, Verdict.INCONCLUSIVE),
        ("ppp", "pfp", Change.UNKNOWN, Verdict.INCONCLUSIVE),
        ("pfp", "fpf", Change.NONE, Verdict.PASSED),
    ],
)
def test_a_verdict_is_worse_if_it_fails_more_often(
    base: str, new: str, expected: Change, verdict: Verdict
) -> None:
    """An inconclusive one proves nothing, so it is never worse."""
    verdicts = {each.value[0]: each for each in Verdict}
    sides = [side({}, verdicts=[verdicts[each] for each in letters]) for letters in (base, new)]
    found = compare(sides[0], sides[1:])
    assert found.pairs[0].verdicts[0].change is expected
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("base", "new", "verdict", "reasons"),
    [
        ("ppp", "pp ", Verdict.INCONCLUSIVE, ["no verdict of consume in run r2"]),
        ("ppp", "p  ", Verdict.INCONCLUSIVE, ["no verdict of consume in runs r1, r2"]),
        ("fff", "ppi", Verdict.INCONCLUSIVE, ["consume could not decide everything in run r2"]),
        ("ppp", "fff ", Verdict.FAILED, ["no verdict of consume in run r3"]),
        ("pp ", "ppp", Verdict.PASSED, []),
        ("   ", "   ", Verdict.PASSED, []),
    ],
)
def test_a_repeat_without_a_verdict_is_never_left_out(
    base: str, new: str, verdict: Verdict, reasons: list[str]
) -> None:
    """A crashed consumer may have missed a finding; the runs without a verdict are named."""
    found = compare(judged_side(base), [judged_side(new)])
    assert found.verdict is verdict
    assert found.inconclusive == reasons


def test_a_failed_verdict_with_an_open_part_is_inconclusive() -> None:
    """A run that lost messages, and lost logs of others, counted as completely judged."""
    verdict = {"consume": Verdict.FAILED}
    base = Repeat(run="r1", started_ns=0, figures={}, verdicts=verdict)
    new = replace(base, doubts={"consume"})
    found = compare(Side("", [base]), [Side("", [new])])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.inconclusive == ["consume could not decide everything in run r1"]


def test_one_of_two_judges_that_is_missing_is_named() -> None:
    """The missing reconciliation might have found what the repeat's consumer did not see."""
    passed = Verdict.PASSED
    both, one = (
        Repeat(run=f"r{len(by)}", started_ns=0, figures={}, verdicts=dict.fromkeys(by, passed))
        for by in (("consume", "reconcile"), ("consume",))
    )
    found = compare(Side("", [both]), [Side("", [both, one])])
    assert found.inconclusive == ["no verdict of reconcile in run r1"]


@pytest.mark.parametrize("case", COUNTS)
def test_equal_runs_seldom_fail(case: str) -> None:
    """Findings after restarts, or a verdict that fails now and then, seldom make them fail."""
    counts, failing = COUNTS[case]
    failed = failed_comparisons(3, comparisons=100, seed=8, counts=counts, failing=failing)
    assert failed <= 3


@pytest.mark.parametrize(
    ("base", "new", "expected"),
    [
        ([0.0], [0.02], Change.WORSE),
        ([0.02, 0.01], [0.0], Change.BETTER),
        ([0.0, 0.0, 0.0], [0.02, 0.0, 0.01], Change.NONE),
        ([0.0], [0.0], Change.UNKNOWN),
    ],
)
def test_a_brokers_quota_is_never_by_chance(
    base: list[float], new: list[float], expected: Change
) -> None:
    """Without a quota nothing is throttled, so a single repeat proves one."""
    assert change("produce_throttle", base, new) is expected


def test_a_figure_that_was_0_is_shown_where_it_got_worse() -> None:
    """It is shown although it has no difference in per cent."""
    sides = [side(*of("produce_behind", *values)) for values in ([0.0] * 4, [4.0, 4.1, 4.2, 4.3])]
    found = compare(sides[0], sides[1:])
    assert found.pairs[0].figures[0].change is Change.WORSE
    console = Console(width=80)
    with console.capture() as shown:
        console.print(view(found))
    assert re.search(r"worse +produce_behind +0 ns +4\.15 s", shown.get())


def test_small_values_keep_their_digits() -> None:
    """A rate of a message per hour was 0.000/s."""
    shown = [Unit.MESSAGES_PER_SECOND.show(each) for each in (0.000278, 0.5, 0.0, 9.5, 95.0)]
    assert shown == ["0.000278/s", "0.5/s", "0/s", "9.500/s", "95/s"]


def test_an_interval_without_an_end_has_infinity() -> None:
    """Where resamples of the base are all 0: the end was missing."""
    sides = [side(*of("produce_behind", *values)) for values in ([0, 0, 1], [1, 1.1, 2])]
    (figure,) = compare(sides[0], sides[1:]).pairs[0].figures
    assert interval(figure) == "+0.0 to +\N{INFINITY}"


def test_settings_that_differ_are_listed() -> None:
    """Equal settings are not listed."""
    base = side({}, settings={"producer: linger": "5 ms", "producer: acks": "all"})
    new = side({}, settings={"producer: linger": "250 ms", "producer: acks": "all"})
    (found,) = compare(base, [new]).pairs[0].settings
    assert (found.name, found.base, found.new) == ("producer: linger", ["5 ms"], ["250 ms"])


def test_damaged_logs_make_it_inconclusive() -> None:
    """The figures lack what was in the damaged parts."""
    damaged = Side("there", side(*of("p(99)", *LOW)).repeats, ["a file is short"])
    found = compare(side(*of("p(99)", *LOW)), [damaged])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.inconclusive == ["there: a file is short"]


def test_several_sides_share_the_false_alarms() -> None:
    """With a second side, equal to the base, the adjusted chance of each difference is doubled."""
    draws = np.random.default_rng(5)
    base, slow = (Side("", [drawn(draws, slow=of) for _ in range(4)]) for of in (1, 2))
    alone, shared = (
        {each.name: each.chance for each in compare(base, sides).pairs[0].figures}
        for sides in ([slow], [slow, base])
    )
    chance = alone["ack_latency.p(50)"]
    assert chance
    assert shared["ack_latency.p(50)"] == pytest.approx(2 * chance)


def test_it_fits_a_terminal_of_80_columns() -> None:
    """No name is cut and no line of a table folded; what changed comes first."""
    draws = np.random.default_rng(6)
    base = Side("before", [drawn(draws) for _ in range(5)])
    new = Side("after", [drawn(draws, slow=3) for _ in range(5)])
    console = Console(width=80, file=None, record=True, force_terminal=False)
    with console.capture() as captured:
        console.print(view(compare(base, [new]), details=True))
    text = captured.get()
    lines = text.splitlines()
    assert lines[0] == "before (5 runs) and after (5 runs): worse"
    assert all(len(line.rstrip()) <= 80 for line in lines)
    for name in base.repeats[0].figures:
        assert f" {name} " in text
    assert sum(line.startswith("worse  ack_latency.") for line in lines) >= 3


def test_the_document_is_read_again() -> None:
    """So is one with an infinite difference, which JSON lacks."""
    found = compare(side(*of("lag", 0, 0, 0)), [side(*of("lag", 5, 6, 7))])
    (figure,) = found.pairs[0].figures
    assert figure.change is Change.WORSE
    assert figure.difference is None
    assert Comparison.model_validate_json(found.encode()) == found


def test_the_command_compares_and_exits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A latency twice as high fails a threshold: the command prints the document, and exits 99."""
    for number in range(4):
        for name, slow in (("before", 1), ("after", 2)):
            document = produced(f"{name}{number}", p99=slow * (0.1 + number / 1000))
            write(tmp_path / name / f"{number}.json", document)
    monkeypatch.chdir(tmp_path)
    words = "mirrortest compare before after --threshold ack_latency.p(99)<+10% --json"
    monkeypatch.setattr("sys.argv", words.split())
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert ended.value.code == 99
    document = json.loads(capsys.readouterr().out)
    assert document["pairs"][0]["thresholds"][0]["passed"] is False


def _points(shown: str, **values: float) -> Side:
    """Four repeats of each point, interleaved as a scenario runs them."""
    return Side(
        shown,
        [
            Repeat(
                run=f"{point}{repeat}",
                started_ns=0,
                figures={"p(99)": value + repeat / 100},
                point=point,
            )
            for repeat in range(4)
            for point, value in values.items()
        ],
    )


def test_the_points_of_a_scenario_are_compared_each_with_its_own() -> None:
    """Points that differ are no difference between sides; a point of one side only is named."""
    found = compare(
        _points("before", slow=9.0, fast=1.0, left=1.0), [_points("after", fast=2.0, slow=9.0)]
    )
    assert [(each.point, each.change) for each in found.pairs] == [
        ("slow", Change.NONE),
        ("fast", Change.WORSE),
    ]
    assert found.pairs[0].base_runs == ["slow0", "slow1", "slow2", "slow3"]
    assert found.inconclusive == ["after: only one side has the point left"]


def test_a_point_without_any_result_is_inconclusive() -> None:
    """It passed if its runs left nothing on both sides."""
    left = _points("before", left=1.0, fast=1.0)
    nothing = Side(
        "s", [replace(r, figures={} if r.point == "left" else r.figures) for r in left.repeats]
    )
    found = compare(nothing, [nothing])
    assert [pair.change for pair in found.pairs] == [Change.UNKNOWN, Change.NONE]
    assert found.inconclusive == ["left: neither side has a result"]


def test_sides_of_one_point_each_are_compared_whatever_it_is() -> None:
    """So two values of a varied setting can be compared."""
    (pair,) = compare(_points("before", one=1.0), [_points("after", two=2.0)]).pairs
    assert (pair.point, pair.change) == ("", Change.WORSE)
