"""Thresholds: parsed, refused, and compared with what was measured."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirrortest.config.threshold import (
    COUNTS,
    Threshold,
    ThresholdResult,
    evaluate,
    thresholds,
    undecided,
)
from mirrortest.errors import UsageError
from mirrortest.model.findings import Finding
from mirrortest.timing.histogram import Histogram

OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def seconds(*values: float) -> Histogram:
    """A histogram of latencies."""
    histogram = Histogram()
    histogram.add(np.array([round(value * 1e9) for value in values], dtype=np.int64))
    return histogram


def result_of(
    text: str, counts: dict[str, int] | None = None, total: int = 100, **latencies: Histogram
) -> ThresholdResult:
    """The result of one threshold."""
    return Threshold.parse(text).evaluate(counts or {}, total=total, latencies=latencies)


@given(st.sampled_from(COUNTS), st.sampled_from(sorted(OPERATORS)), *[st.integers(0, 20)] * 2)
def test_counts_compare_as_integers(metric: str, comparison: str, bound: int, count: int) -> None:
    """Every count can be compared by every operator; white space is ignored."""
    result = result_of(f" {metric} {comparison} {bound}", {metric: count})
    assert result.passed is OPERATORS[comparison](count, bound)
    assert result.value == count
    assert str(result.threshold) == f"{metric}{comparison}{bound}"


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(0, 1000))
def test_percentages_are_exact(count: int, total: int, tenths: int) -> None:
    """A share of the acknowledged messages, with no rounding at the bound."""
    result = result_of(f"lost<={tenths / 10}%", {"lost": count}, total)
    assert result.passed is (count * 1000 <= tenths * total)


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("p(50)<2s", True),
        ("p(50)<=1.01s", True),
        ("p(99.9)<=3s", True),
        ("max<2950ms", False),
        ("max<=3000ms", True),
        ("min>=1s", True),
        ("mean==2s", False),
        ("latency.p(100)>2999ms", True),
        ("sent_latency.max<1s", True),
    ],
)
def test_latencies(text: str, passed: bool) -> None:
    """Statistics of the latency from the intended time, or of the series that is named."""
    result = result_of(text, latency=seconds(1, 1, 3), sent_latency=seconds(0.5))
    assert result.passed is passed


def test_what_cannot_be_told_from_the_bound_meets_it() -> None:
    """A value in the bound's bucket meets it, so the online and the offline judgement agree."""
    exact = seconds(0.189009919, 0.5, 0.739009919)
    for of_logs in (exact, Histogram.of(exact.sparse())):
        for text in (
            "max<=739009919ns", "max<739009920ns", "max>=739009919ns", "p(100)<=739009919ns",
            "min>=189009919ns", "min<=189009919ns", "p(0)<=189009919ns", "max==739009919ns",
        ):  # fmt: skip
            assert result_of(text, latency=of_logs).passed, text
        for text in ("max<730ms", "min>=191ms", "max==730ms", "mean<470ms"):
            assert not result_of(text, latency=of_logs).passed, text


_LATENCIES = st.lists(st.integers(-(10**4), 10**11) | st.integers(-(10**11), 10**11), min_size=1)


@given(
    _LATENCIES,
    st.sampled_from(("min", "max", "mean", "p(50)", "p(99)")),
    st.sampled_from(sorted(OPERATORS)),
    st.integers(0, 10**11),
    st.data(),
)
def test_both_sides_say_the_same(
    values: list[int], statistic: str, comparison: str, bound: int, data: st.DataObject
) -> None:
    """Logs have only buckets, and the minimum if below zero; the bound may equal a latency."""
    bound = data.draw(st.sampled_from([bound, *map(abs, values)]))
    online = Histogram()
    online.add(values)
    offline = Histogram.of(online.sparse())
    offline.minimum = min(offline.minimum, online.minimum)
    text = f"{statistic}{comparison}{bound}ns"
    ours, theirs = result_of(text, latency=online), result_of(text, latency=offline)
    assert (ours.passed, ours.undecided, ours.why) == (theirs.passed, theirs.undecided, theirs.why)


@pytest.mark.parametrize("text", ["p(99)<2s", "p(50)<2s", "min<2s", "max<2s", "mean<2s"])
def test_a_latency_below_zero_proves_nothing(text: str) -> None:
    """The consumer's clock is behind by more than the mirror took, which is unknown."""
    result = result_of(text, latency=seconds(-3570, -3569))
    assert (result.value, result.passed) == (None, True)
    (reason,) = undecided([result])
    assert reason.startswith(f"threshold {text}: 2 of 2 latencies are below zero, by up to 3570 s")


@pytest.mark.parametrize("text", ["p(50)<2s", "p(99)<2s", "max<2s", "mean<1000s"])
def test_one_producer_whose_clock_is_ahead_leaves_conditions_undecided(text: str) -> None:
    """Its true latencies may be the longest, by as much as the clocks differ."""
    assert result_of(text, latency=seconds(-3570, *[0.1] * 9)).undecided


@pytest.mark.parametrize("text", ["p(50)<2s", "p(99)<2s", "max<2s", "mean<2s", "max>1ms"])
def test_clocks_that_are_milliseconds_apart_decide(text: str) -> None:
    """A fast mirror's messages may seem to arrive before their send, by too little to matter."""
    result = result_of(text, latency=seconds(-0.003, -0.001, *[0.02] * 98))
    assert not result.undecided
    assert result.passed


@pytest.mark.parametrize("text", ["p(50)<2s", "p(99)<2s", "max<2s", "mean<2s"])
def test_what_fails_though_clocks_disagree_has_failed(text: str) -> None:
    """True latencies are only longer."""
    result = result_of(text, latency=seconds(-5, *[10] * 99))
    assert not result.undecided
    assert not result.passed


def test_every_finding_can_be_spoken_of() -> None:
    """Its name in a threshold is its usual label."""
    assert {finding.label for finding in Finding} <= set(COUNTS)


@given(
    st.sampled_from([*OPERATORS]),
    st.sampled_from(["2", "3", "150%", "200%"]),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_what_producers_may_have_repeated_decides_nothing(
    comparison: str, bound: str, count: int, own: int
) -> None:
    """A threshold is decided only if it ends alike however many of them the mirror caused."""
    own = min(own, count)
    condition = Threshold.parse(f"duplicated{comparison}{bound}")

    def ended(count: int, own: int = 0) -> ThresholdResult:
        excused = {"duplicated": own}
        return condition.evaluate({"duplicated": count}, total=2, latencies={}, excused=excused)

    possible = {ended(some).passed for some in range(count - own, count + 1)}
    result = ended(count, own)
    assert result.undecided == (len(possible) == 2)
    assert result.undecided or possible == {result.passed}
    if result.undecided:
        assert f"the mirror may not have caused {own} of {count}" in undecided([result])[0]


@given(
    st.sampled_from(["delivered", "corrupted", "failed"]),
    st.sampled_from([*OPERATORS]),
    st.sampled_from(["0", "2", "3", "0%", "50%", "100%", "150%"]),
    st.integers(0, 4),
    st.integers(0, 4),
    st.one_of(st.none(), st.integers(0, 3)),
)
def test_what_open_messages_may_meet_has_not_failed(
    metric: str, comparison: str, bound: str, count: int, others: int, outstanding: int | None
) -> None:
    """It fails only if no possible end meets it: open messages arrive or not, more are sent."""
    total = max(count + others, 1)
    left = total if outstanding is None else outstanding
    if metric == "delivered":
        total = max(total, count + left)
    condition = Threshold.parse(f"{metric}{comparison}{bound}")

    def ended(count: int, total: int, outstanding: int | None = 0) -> ThresholdResult:
        return condition.evaluate(
            {metric: count}, total=total, latencies={}, outstanding=outstanding
        )

    ends, more = {(count, total)}, (*range(24), 1000)
    if outstanding is None:
        ends |= {(count + some, total + rest) for some in more for rest in more}
    elif outstanding and metric == "delivered":
        ends |= {(count + some, total) for some in range(outstanding + 1)}
    elif outstanding and metric == "corrupted":
        ends |= {(count + some, total) for some in more}
    result = ended(count, total, outstanding)
    possible = [ended(*end) for end in ends if metric != "delivered" or end[0] <= end[1]]
    if result.undecided:
        assert not ended(count, total).passed
        # The code also allows for shares between two whole numbers of messages.
        assert comparison == "==" or any(each.passed for each in possible)
    elif not result.passed:
        assert not any(each.passed for each in possible)


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=5),
    st.integers(0, 2),
    st.sampled_from(["min", "mean", "max", "p(0)", "p(30)", "p(50)", "p(99)", "p(100)"]),
    st.sampled_from([*OPERATORS]),
    st.integers(0, 6),
)
@example([0], 2, "mean", "==", 4)
def test_what_another_consumer_measured_may_have_been_anything(
    measured: list[int], unmeasured: int, statistic: str, comparison: str, bound: int
) -> None:
    """A condition is decided only if it ends alike whatever the unknown latencies were."""
    text = f"{statistic}{comparison}{bound}s"
    known = seconds(*measured)
    known.unmeasured = unmeasured
    result = result_of(text, latency=known)
    mean = bound * (len(measured) + unmeasured) - sum(measured)  # of one, with the other at 0
    every = {*range(7), *({mean} if mean > 0 else ()), 2**30}
    possible = {
        result_of(text, latency=seconds(*measured, *others)).passed
        for others in itertools.product(every, repeat=unmeasured)
    }
    # Means are of buckets' middles: whether one is equal to the bound depends on further values.
    if not (statistic == "mean" and comparison in {"==", "!="} and result.undecided):
        assert result.undecided == (len(possible) == 2)
    assert result.undecided or possible == {result.passed}
    if result.undecided:
        assert f"another consumer read up to {unmeasured} of the messages" in result.why


@pytest.mark.parametrize(
    ("text", "decided"),
    [("negative_latency==0", False), ("negative_latency<=2", True), ("negative_latency<2%", False)],
)
def test_unknown_latencies_may_have_been_below_zero(text: str, *, decided: bool) -> None:
    """Two of a hundred messages were measured by another consumer."""
    known = seconds(1)
    known.unmeasured = 2
    assert result_of(text, {"negative_latency": 0}, latency=known).undecided is not decided


def test_a_threshold_says_what_may_meet_it() -> None:
    """The reason has its value so far and the open messages; a count of these is decided."""
    conditions = [Threshold.parse(text) for text in ("delivered>=99%", "acked>9", "in_flight==0")]
    counts = {"delivered": 500, "acked": 4, "in_flight": 500}
    unknown = evaluate(conditions, counts, total=1000, latencies={}, outstanding=None)
    assert undecided(unknown) == [
        "threshold delivered>=99%: 50% so far: messages not yet known may meet it",
        "threshold acked>9: 4 so far: messages not yet known may meet it",
    ]
    left = evaluate(conditions, counts, total=1000, latencies={}, outstanding=500)
    assert undecided(left) == [
        "threshold delivered>=99%: 50% so far: 500 open messages may meet it"
    ]
    assert [each.passed for each in left] == [True, False, False]
    (nearly,) = evaluate(
        [Threshold.parse("delivered>=100%")],
        {"delivered": 9_999_999},
        total=10**7,
        latencies={},
        outstanding=1,
    )
    assert nearly.why == "99.99999% so far: 1 open messages may meet it"


def test_what_was_not_measured_decides_nothing() -> None:
    """Such a threshold makes a run inconclusive, neither passed nor failed."""
    conditions = [Threshold.parse(text) for text in ("lost==0", "late<1%", "p(99)<2s", "max<1s")]
    results = evaluate(conditions, {"late": 0}, total=0, latencies={"latency": Histogram()})
    assert [result.undecided for result in results] == [True] * 4
    assert all(result.passed for result in results)
    assert undecided(results)[0] == "threshold lost==0: nothing measured"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lost", "METRIC OPERATOR VALUE"),
        ("lost=0", "METRIC OPERATOR VALUE"),
        ("==0", "METRIC OPERATOR VALUE"),
        ("lost==", "METRIC OPERATOR VALUE"),
        ("lost==few", "compare with a number"),
        ("lost<1.5", "compare with a number"),
        ("lost<2s", "compare with a number"),
        ("lots==0", "no metric 'lots'"),
        ("p(99)<2", "with its unit"),
        ("p(101)<2s", "at most 100"),
        ("p()<2s", "no metric"),
        ("nap.p(5)<2s", "no latency 'nap'"),
    ],
)
def test_nonsense_is_refused(text: str, message: str) -> None:
    """The error repeats the threshold."""
    with pytest.raises(UsageError, match="--threshold") as caught:
        Threshold.parse(text)
    assert message in str(caught.value)
    assert text in str(caught.value)


def test_defaults() -> None:
    """Nothing may be lost, corrupted, misrouted, phantom or altered; exactly once adds two."""
    never = [
        "lost==0", "corrupted==0", "misrouted==0", "phantom==0",
        "altered_key==0", "altered_headers==0", "altered_timestamp==0",
    ]  # fmt: skip
    assert [str(threshold) for threshold in thresholds(())] == never
    once = [str(threshold) for threshold in thresholds((), exactly_once=True)]
    assert once == [*never, "duplicated==0", "reordered==0"]


def test_the_user_speaks_before_the_defaults() -> None:
    """A threshold on the same metric takes the default's place; others are added."""
    found = [str(threshold) for threshold in thresholds(["lost<=5", "p(99)<2s"])]
    assert "lost==0" not in found
    assert found[-2:] == ["lost<=5", "p(99)<2s"]
    assert "corrupted==0" in found
