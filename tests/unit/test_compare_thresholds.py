"""Thresholds of a comparison: when they are met, fail or are undecided."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.compare.comparison import compare
from mirrortest.compare.repeat import Side, repeat
from mirrortest.compare.terminal import why
from mirrortest.compare.thresholds import DifferenceThreshold
from mirrortest.errors import UsageError
from mirrortest.model.verdict import Verdict
from mirrortest.seqlog.options import Role
from tests.compared import HIGH, LOW, consumed, judged_side, of, produced, reconciled, side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.compare.document import Comparison


def compared(sides: Sequence[Side], *thresholds: str) -> Comparison:
    """Compare the first side with the others."""
    return compare(sides[0], sides[1:], [DifferenceThreshold.parse(each) for each in thresholds])


@pytest.mark.parametrize(
    ("new", "threshold", "verdict", "reason"),
    [
        ("ppp", "lost<=+0", Verdict.PASSED, ""),
        ("pp ", "lost<=+0", Verdict.INCONCLUSIVE, "not counted in run r2"),
        ("pii", "lost<=+0", Verdict.INCONCLUSIVE, "not everything could be decided in runs r1, r2"),
        ("pii", "lost<+0", Verdict.FAILED, ""),
        (
            "pii",
            "delivered>=+0",
            Verdict.INCONCLUSIVE,
            "not everything could be decided in runs r1, r2",
        ),
        ("pp ", "acked>=+0", Verdict.PASSED, ""),
        ("ppp ", "p(99)<+50%", Verdict.INCONCLUSIVE, "not measured in run r3"),
        ("pppi", "p(99)<+50%", Verdict.INCONCLUSIVE, "not everything could be decided in run r3"),
        ("pppi", "p(99)<-50%", Verdict.FAILED, ""),
        ("ppi ", "produce_rate>-5%", Verdict.PASSED, ""),
    ],
)
def test_a_threshold_is_met_only_by_repeats_that_are_all_known(
    new: str, threshold: str, verdict: Verdict, reason: str
) -> None:
    """What a crashed or inconclusive consumer did not count might break it."""
    sides = judged_side("ppp", delivered=10), judged_side(new, delivered=9)
    found = compared(sides, threshold)
    assert found.verdict is verdict
    assert found.inconclusive == ([f"threshold {threshold}: {reason}"] if reason else [])


def test_what_a_failed_run_left_open_may_break_a_threshold() -> None:
    """Its verdict alone was asked for: 4,000 of its messages might have been lost."""
    sides = judged_side("fff"), judged_side("fff")
    unsure = Side("side", [replace(each, doubts={"consume"}) for each in sides[1].repeats])
    found = compared([sides[0], unsure], "lost<=+0")
    assert found.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("base", "threshold", "verdict"),
    [
        ("ppp", "lost<=+0", Verdict.FAILED),
        ("ppi", "lost<=+0", Verdict.INCONCLUSIVE),
        ("pp ", "lost<=+0", Verdict.INCONCLUSIVE),
        ("ppi", "lost<=+3", Verdict.PASSED),
        ("ppi", "lost>=+3", Verdict.INCONCLUSIVE),
        ("ppi", "lost>+3", Verdict.FAILED),
        ("ppi", "lost==+3", Verdict.INCONCLUSIVE),
        ("pppi", "p(99)<-50%", Verdict.INCONCLUSIVE),
    ],
)
def test_what_the_base_may_have_counted_yet_decides_nothing(
    base: str, threshold: str, verdict: Verdict
) -> None:
    """A run of the base that was stopped or crashed may have missed losses; NEW has 3."""
    new = judged_side("pppp", lost=3)
    found = compared([judged_side(base), new], threshold)
    assert found.verdict is verdict


def _arrived(topics: Sequence[dict[str, Any]], *, online: bool) -> Side:
    """A repeat for each topic's latencies, as a consumer's or a reconciliation's summary has it."""
    documents = [
        consumed(
            latency_seconds={"t": {**each, "from_intended": each["quantiles"], "from_sent": {}}}
        )
        if online
        else reconciled(latency_seconds={"t": each})
        for each in topics
    ]
    return Side("side", [repeat(f"r{at}", [each]) for at, each in enumerate(documents)])


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("wrong", [{"off": 60.0}, {"quantiles": {"p99": -3.0}}])
def test_latencies_of_clocks_that_were_set_or_disagree_are_not_compared(
    wrong: dict[str, Any], times: int, *, online: bool
) -> None:
    """A threshold could pass for a slower mirror, or fail for a prompt one."""
    latency = {"count": 5, "negative": 0, "mean": 0.01, "quantiles": {"p99": 0.01}}
    right = _arrived([latency] * 4, online=online)
    spoilt = _arrived([latency] * (4 - times) + [latency | wrong] * times, online=online)
    for base, new in ((right, spoilt), (spoilt, right)):
        found = compared([base, new], "p(99)<+10%")
        (reason,) = found.inconclusive
        assert "wall clocks were set in run" in reason


def test_a_threshold_on_throttling_has_a_reason_without_repeats() -> None:
    """The reason was empty, as one repeat is enough to call it worse."""
    sides = [side(*of("produce_throttle", value)) for value in (0.0, 0.5)]
    found = compared(sides, "produce_throttle<+10%")
    assert found.pairs[0].figures[0].why == ""
    (reason,) = found.inconclusive
    assert reason.endswith("1 run against 1: at least 3 on each side are needed")


def test_one_topics_clocks_leave_out_the_latencies_of_all() -> None:
    """The other topics' latencies alone passed, though that topic may be the slow one."""
    right = {"from_intended": {"p99": 0.01}, "from_sent": {"p99": 0.01}, "off": 0.0}
    slow = {"from_intended": {"p99": 5.0}, "from_sent": {"p99": 5.0}, "off": 1.0}
    sides = [
        Side("side", [repeat("r", [consumed(latency_seconds=topics)])] * 3)
        for topics in ({"a": right, "b": right}, {"a": right, "b": slow})
    ]
    for metric in ("p(99)", "sent_latency.p(99)"):
        found = compared(sides, f"{metric}<+10%")
        (reason,) = found.inconclusive
        assert "wall clocks were set in run" in reason


@pytest.mark.parametrize("restarted", [1, 4])
def test_a_threshold_on_a_figure_that_a_restart_leaves_out_says_so(restarted: int) -> None:
    """A run that lacks the figure may have been the slow one."""
    runs = [repeat(f"r{at}", [produced()]) for at in range(4)]
    others = [
        replace(each, figures={}, incomplete={Role.PRODUCER}) if at < restarted else each
        for at, each in enumerate(runs)
    ]
    sides = Side("base", runs), Side("new", others)
    found = compared(sides, "produce_rate>-10%")
    (reason,) = found.inconclusive
    assert "a process was restarted or killed in run" in reason


@pytest.mark.parametrize(
    ("base", "new", "alone"),
    [("ppp", "fff", True), ("ppp", "ppf", True), ("ppp", "pp ", True), ("fff", "fff", False)],
)
def test_thresholds_that_pass_what_got_worse_say_so(base: str, new: str, *, alone: bool) -> None:
    """The last line then says that only thresholds decide."""
    found = compared([judged_side(base), judged_side(new)], "produce_rate>-5%")
    assert found.verdict is Verdict.PASSED
    assert ("Only thresholds decide" in why(found)) is alone


@pytest.mark.parametrize(("threshold", "alone"), [("lost<=+5", False), ("duplicated<=+5", True)])
def test_a_finding_that_a_threshold_bounds_is_no_remark(threshold: str, *, alone: bool) -> None:
    """The last line said that it has no threshold, although it has one."""
    sides = [
        side(counts=[{"lost": lost, "duplicated": 0}] * 4, verdicts=[Verdict.PASSED] * 4)
        for lost in (0, 3)
    ]
    found = compared(sides, threshold)
    assert found.verdict is Verdict.PASSED
    assert ("Only thresholds decide" in why(found)) is alone


@pytest.mark.parametrize(
    ("threshold", "verdict"),
    [
        ("p(99)<+50%", Verdict.PASSED),
        ("p(99)<+5%", Verdict.FAILED),
        ("p(99)<=+20%", Verdict.INCONCLUSIVE),
        ("p(99)>-5%", Verdict.PASSED),
        ("lost<=+0", Verdict.PASSED),
        ("lost<+0", Verdict.FAILED),
        ("duplicated<=+0", Verdict.INCONCLUSIVE),
        ("ack_latency.max<+1%", Verdict.INCONCLUSIVE),
    ],
)
def test_a_threshold_needs_the_whole_interval(threshold: str, verdict: Verdict) -> None:
    """It is undecided if only a part of the interval meets it, or nothing was measured."""
    counts = [{"lost": 1}] * 4
    sides = [side(*of("p(99)", *each), counts=counts) for each in (LOW, HIGH)]
    found = compared(sides, threshold)
    assert found.verdict is verdict


def test_thresholds_alone_decide_where_there_are_some() -> None:
    """A finding that got worse then needs a threshold of its own."""
    sides = [
        side(*of("p(99)", *LOW), counts=[{"lost": lost}] * 4, verdicts=[Verdict.PASSED] * 4)
        for lost in (0, 3)
    ]
    assert compared(sides).verdict is Verdict.FAILED
    assert compared(sides, "p(99)<+10%").verdict is Verdict.PASSED
    assert compared(sides, "p(99)<+10%", "lost<=+0").verdict is Verdict.FAILED


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("p(99)", "write METRIC OPERATOR DIFFERENCE"),
        ("p99<+10%", r"did you mean p\(99\)\?"),
        ("p(99)<10%", r"a difference has a sign: p\(99\)<\+10%"),
        ("p(99)<+10ms", r"a difference has a sign"),
        ("p(99)<+10", r"compare in per cent: p\(99\)<\+10%"),
        ("p(99)==+0%", "no two runs are equal: use < or >"),
        ("lost<+1%", r"lost counts messages: lost<\+0"),
        ("lost<+0.5", "lost counts messages"),
    ],
)
def test_mistakes_in_a_threshold_are_told(text: str, why: str) -> None:
    """The error says what to write."""
    with pytest.raises(UsageError, match=why):
        DifferenceThreshold.parse(text)
