"""Run comparison: the chosen runs side by side, over the time shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana.frame import framed
from grafana.judgement import FAILING, QUANTILES, SINCE, WRONG, found, whole
from grafana.links import from_row
from grafana.panels import AMBER, RED, Link, Query, Step, lines, rows
from grafana.promql import DASHBOARD
from mirrortest.metrics import names

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import Dashboard

    from grafana.frame import Row
    from grafana.panels import Panel

_OVER = "[$__range:$__interval]"
"""A subquery: an instance may take part in one run after another."""
_TO_RUN = {"run": [Link("This run in Overview", from_row("overview", "run"))]}


def comparison() -> Dashboard:
    """The dashboard."""
    sections: list[Row] = [
        ("Verdicts", _verdicts()),
        ("Latency", _latency()),
        ("Course", _course()),
    ]
    return framed(
        "comparison",
        "Run comparison",
        "Runs side by side: choose them above, and a time that holds them all.",
        sections,
    )


def _most(expression: str) -> str:
    return f"max by (run) (max_over_time(({expression}){_OVER}))"


def _verdicts() -> list[Panel]:
    scope = DASHBOARD
    times = f"timestamp({scope.info()})"
    first = f"min by (run) (min_over_time({times}{_OVER}))"
    span = f"max by (run) (max_over_time({times}{_OVER})) - {first}"
    acked = _most(whole(scope, "run", scope.one(names.CONSUMER_ACKED, outcome="acked")))
    delivered = _most(whole(scope, "run", scope.one(names.CONSUMER_DELIVERED)))
    bad = [Step(1, RED)]
    doubtful = [Step(1, AMBER)]
    return [
        rows(
            "Findings by run",
            "The highest value of each run in the time shown.",
            {
                "duration": span,
                "acked": acked,
                "delivered of acked": f"{delivered} / ({acked} > 0)",
                "lost": _most(found(scope, "run", "lost")),
                "wrong": _most(found(scope, "run", WRONG)),
                "duplicated": _most(found(scope, "run", "duplicated")),
                "reordered": _most(found(scope, "run", "reordered")),
                "inconclusive": _most(found(scope, "run", "inconclusive")),
            },
            units={"duration": "s", "acked": "locale", "delivered of acked": "percentunit"},
            steps={
                "lost": bad, "wrong": bad, "duplicated": doubtful, "reordered": doubtful,
                "inconclusive": doubtful,
            },
            links=_TO_RUN,
            runbook="MirrortestLoss",
        ),
    ]  # fmt: skip


def _latency() -> list[Panel]:
    scope = DASHBOARD
    rates = scope.by("sum", "run, le", scope.rate(names.CONSUMER_LATENCY, "_bucket", since=SINCE))
    whole_run = f"sum by (run, le) (sum_over_time(({rates}){_OVER}))"
    quantiles = {
        f"p{share * 100:g}": f"histogram_quantile({share:g}, {whole_run})" for share in QUANTILES
    }
    behind = _most(scope.by("max", "run", scope.one(names.PRODUCER_BEHIND)))
    debt = _most(scope.by("max", "run", scope.one(names.PRODUCER_DEBT_SECONDS)))
    rate = scope.by("sum", "run", scope.rate(names.CONSUMER_MESSAGES))
    columns = {
        **quantiles,
        "messages/s, most": _most(rate),
        "producer was behind": behind,
        "most schedule debt": debt,
    }
    return [
        rows(
            "Latency and rate by run",
            "Latency from the intended time over all messages of a run in the time shown. Where "
            "a producer was behind its schedule (1), the figures are its own.",
            columns,
            units={
                **dict.fromkeys(quantiles, "s"),
                "messages/s, most": "mps",
                "most schedule debt": "s",
            },
            steps={"producer was behind": [Step(1, AMBER)]},
            links=_TO_RUN,
            runbook="MirrortestLatencyHigh",
        ),
        lines(
            "p99",
            "From the intended time.",
            "s",
            Query(scope.quantile(0.99, "run", names.CONSUMER_LATENCY, since=SINCE), "{{run}}"),
            logarithmic=True,
        ),
        lines(
            "Median",
            "From the intended time.",
            "s",
            Query(scope.quantile(0.5, "run", names.CONSUMER_LATENCY, since=SINCE), "{{run}}"),
            logarithmic=True,
        ),
    ]


def _course() -> list[Panel]:
    scope = DASHBOARD
    return [
        lines(
            "Consumed",
            "Messages per second.",
            "mps",
            Query(scope.by("sum", "run", scope.rate(names.CONSUMER_MESSAGES)), "{{run}}"),
            span=8,
        ),
        lines(
            "Lost and wrong",
            "Messages with a finding that fails a run.",
            "short",
            Query(found(scope, "run", FAILING), "{{run}}"),
            span=8,
            runbook="MirrortestLoss",
        ),
        lines(
            "Duplicated",
            "Messages at more than one destination offset.",
            "short",
            Query(found(scope, "run", "duplicated"), "{{run}}"),
            span=8,
            runbook="MirrortestDuplicates",
        ),
    ]
