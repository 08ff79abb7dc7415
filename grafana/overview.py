"""Overview: is the mirror correct right now, which lane is not, and how late is it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana.consumer import WRONG_LANES, consumer
from grafana.frame import framed, panel_id
from grafana.judgement import (
    EXACTLY_ONCE,
    FAILING,
    QUANTILES,
    SINCE,
    WRONG,
    WRONG_IN_WORDS,
    found,
    whole,
)
from grafana.links import from_row
from grafana.panels import (
    AMBER,
    GREEN,
    RED,
    Link,
    Query,
    State,
    Step,
    lines,
    number,
    rows,
    timeline,
    warmth,
)
from grafana.promql import DASHBOARD
from grafana.setting import set_up, trust
from mirrortest.metrics import names

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import Dashboard

    from grafana.frame import Row
    from grafana.panels import Panel
    from grafana.promql import Scope


def overview() -> Dashboard:
    """The dashboard."""
    sections: list[Row] = [
        ("Is the mirror correct?", _verdict()),
        ("How late is it?", _latency()),
        ("How much?", _volume()),
        ("What is wrong, since when?", _findings()),
        ("Can the figures be trusted?", trust()),
        ("Set-up", set_up()),
    ]
    return framed(
        "overview",
        "Overview",
        "Whether the mirror is correct right now, which topic and lane is not, and how late it is.",
        sections,
    )


def _verdict() -> list[Panel]:
    scope = DASHBOARD
    acked = whole(scope, "run", scope.one(names.CONSUMER_ACKED, outcome="acked"))
    delivered = whole(scope, "run", scope.one(names.CONSUMER_DELIVERED))
    alerts = 'ALERTS{alertname=~"Mirrortest.+", alertstate="firing"}'
    return [
        number(
            "Verdict now",
            f"By the consumers' findings. Wrong: messages are lost, or {WRONG_IN_WORDS}. "
            "Undecided: messages are inconclusive, or the ledger has no acknowledged message of "
            "the run, so that no loss can be proven. Nothing wrong so far: neither; the verdict "
            "comes at the end of the run. Duplicates and reorders have panels of their own.",
            "none",
            Query(_verdict_so_far(scope, acked), "{{run}}"),
            states=[
                State(0, "nothing wrong so far", GREEN),
                State(1, "undecided", AMBER),
                State(2, "wrong", RED),
            ],
            runbook="MirrortestLoss",
        ),
        number(
            "Lost",
            "Acknowledged, never seen, though the destination was read to its end after the "
            "deadline. Late arrivals are taken off again.",
            "locale",
            Query(found(scope, "run", "lost"), "{{run}}"),
            steps=[Step(1, RED)],
            span=3,
            runbook="MirrortestLoss",
        ),
        number(
            "Wrong",
            f"Messages that are {WRONG_IN_WORDS}.",
            "locale",
            Query(found(scope, "run", WRONG), "{{run}}"),
            steps=[Step(1, RED)],
            span=3,
            runbook="MirrortestWrongMessages",
        ),
        number(
            "Duplicated",
            "Messages at more than one destination offset. What a restarted consumer reads "
            "again does not count.",
            "locale",
            Query(found(scope, "run", "duplicated"), "{{run}}"),
            steps=[Step(1, AMBER)],
            span=3,
            runbook="MirrortestDuplicates",
        ),
        number(
            "Reordered",
            "Their first copy comes after the first copy of a later message of their stream.",
            "locale",
            Query(found(scope, "run", "reordered"), "{{run}}"),
            steps=[Step(1, AMBER)],
            span=3,
        ),
        number(
            "Delivered of acked",
            "Of all messages that the source acknowledged. What is missing is in flight, lost, "
            "compacted or inconclusive.",
            "percentunit",
            Query(f"{delivered} / ({acked} > 0)", "{{run}}"),
            span=4,
            decimals=4,
        ),
        number(
            "Run",
            "Complete once the ledger has every expected producer and the end of every lane, and "
            "every acknowledged message has a verdict, by all consumers of the last hour: one that "
            "is down before it was complete may have had topics of its own.",
            "none",
            Query(_complete(scope), "{{run}}"),
            states=[State(0, "going on", "blue"), State(1, "complete", GREEN)],
        ),
        rows(
            "Which lanes are wrong",
            "Lanes (record keys) with findings, the worst first: at most 100 of a topic. With none "
            "the table is empty. A lane leads to its partition.",
            {"messages": f"sort_desc({_lanes(scope)})"},
            steps={"messages": [Step(1, AMBER)]},
            links=dict.fromkeys(("lane", "partition", "messages"), (_to_partition(),)),
            span=12,
            runbook="MirrortestLoss",
        ),
        timeline(
            "Alerts firing",
            "The alerts of mirrortest, as Prometheus evaluates them. Each links to its runbook.",
            [State(1, "firing", RED)],
            Query(f"max by (alertname, run, topic) ({alerts})", "{{alertname}} {{run}} {{topic}}"),
            span=12,
            height=8,
        ),
    ]


def _verdict_so_far(scope: Scope, acked: str) -> str:
    """2: wrong, 1: undecided, 0: neither. Without a ledger, `acked` is 0."""
    failing, inconclusive = found(scope, "run", FAILING), found(scope, "run", "inconclusive")
    return (
        f"2 * ({failing} > bool 0) > 0 or ({inconclusive} > bool 0) > 0 "
        f"or ({acked} == bool 0) > 0 or 0 * {failing}"
    )


def _complete(scope: Scope) -> str:
    """1 where every consumer is complete; one that is down counts as it last was."""
    complete, here = scope.one(names.CONSUMER_COMPLETE), scope.info(role="consumer")
    by_run = scope.by("min", "run", complete)
    missing = (
        f"last_over_time({here}[1h]) unless on (run, name) {here} "
        f"unless on (job, instance) (min by (job, instance) (last_over_time({complete}[1h])) == 1)"
    )
    return f"({by_run} unless on (run) ({missing})) or 0 * {by_run}"


def _lanes(scope: Scope) -> str:
    labels = "run, topic, lane, partition, finding"
    found = scope.by("max", labels, scope.one(names.CONSUMER_LANE_FINDINGS))
    # Without one partition of its own a lane leads to all of them, by Grafana's word for that.
    return f'label_replace({found}, "partition", "All", "partition", "")'


def _to_partition() -> Link:
    panel = panel_id(consumer(), WRONG_LANES)
    address = from_row("consumer", "run", "topic", "partition", panel=panel)
    return Link("This partition in Consumer", address)


def _latency() -> list[Panel]:
    scope = DASHBOARD
    latency = names.CONSUMER_LATENCY
    per_topic = [
        Query(
            scope.quantile(share, "run, topic", latency, since=SINCE),
            f"p{share * 100:g} {{{{run}}}} {{{{topic}}}}",
        )
        for share in (0.5, 0.99)
    ]
    overall = [
        Query(scope.quantile(share, "run", latency, since=SINCE), f"p{share * 100:g} {{{{run}}}}")
        for share in QUANTILES
    ]
    buckets = scope.by("sum", "le", scope.rate(latency, "_bucket", since=SINCE))
    return [
        *(
            number(
                f"p{share * 100:g} now",
                "From the intended time of a message to its arrival, so that a stalled producer "
                "hides nothing.",
                "s",
                Query(scope.quantile(share, "run", latency, since=SINCE), "{{run}}"),
                steps=[Step(5, AMBER), Step(30, RED)],
                span=6,
                runbook="MirrortestLatencyHigh",
            )
            for share in QUANTILES
        ),
        lines(
            "Mirror latency",
            "From the intended time to the arrival, over all topics of a run.",
            "s",
            *overall,
            logarithmic=True,
            runbook="MirrortestLatencyHigh",
        ),
        lines(
            "Mirror latency by topic",
            "Median and 99th percentile of each topic.",
            "s",
            *per_topic,
            logarithmic=True,
            runbook="MirrortestLatencyHigh",
        ),
        warmth(
            "Mirror latency, all messages",
            "Messages by latency. Two peaks are two ways through the mirror.",
            Query(buckets, "{{le}}"),
        ),
    ]


def _volume() -> list[Panel]:
    scope = DASHBOARD
    acked = scope.rate(names.PRODUCER_MESSAGES, outcome="acked")
    return [
        lines(
            "Produced and consumed",
            "Messages that the source acknowledged, and that were read in the destination.",
            "mps",
            Query(scope.by("sum", "run", acked), "acked {{run}}"),
            Query(scope.by("sum", "run", scope.rate(names.CONSUMER_MESSAGES)), "consumed {{run}}"),
            span=8,
            runbook="MirrortestMirrorStalled",
        ),
        lines(
            "Bytes produced and consumed",
            "Produced: record batches as sent, compressed. Consumed: the values alone, "
            "decompressed.",
            "Bps",
            Query(scope.by("sum", "run", scope.rate(names.PRODUCER_BYTES)), "produced {{run}}"),
            Query(scope.by("sum", "run", scope.rate(names.CONSUMER_BYTES)), "consumed {{run}}"),
            span=8,
        ),
        lines(
            "On the way",
            "In flight: acknowledged, not seen, too early to call lost. Lag: offsets in the "
            "destination that are not judged yet.",
            "short",
            Query(found(scope, "run", "in_flight"), "in flight {{run}}"),
            Query(scope.by("sum", "run", scope.one(names.CONSUMER_LAG)), "consumers' lag {{run}}"),
            span=8,
            runbook="MirrortestConsumerStalled",
        ),
        number(
            "Acked in all",
            "Messages with a record in the ledger, over the whole run.",
            "locale",
            Query(whole(scope, "run", scope.one(names.CONSUMER_ACKED, outcome="acked")), "{{run}}"),
            span=6,
        ),
        number(
            "Delivered in all",
            "Acknowledged messages seen at least once, over the whole run.",
            "locale",
            Query(whole(scope, "run", scope.one(names.CONSUMER_DELIVERED)), "{{run}}"),
            span=6,
        ),
        number(
            "Sends of unknown outcome",
            "They may or may not appear: never loss when absent, never phantom when present.",
            "locale",
            Query(
                whole(scope, "run", scope.one(names.CONSUMER_ACKED, outcome="unknown")), "{{run}}"
            ),
            span=6,
        ),
        number(
            "Inconclusive",
            "Missing messages that may have been in offsets that no consumer could read: retention "
            "overtook the reader, or the checker reached its memory limit and dropped ids.",
            "locale",
            Query(found(scope, "run", "inconclusive"), "{{run}}"),
            steps=[Step(1, AMBER)],
            span=6,
            runbook="MirrortestInconclusive",
        ),
    ]


def _findings() -> list[Panel]:
    scope = DASHBOARD
    wrong = scope.one(names.CONSUMER_FINDINGS, finding=FAILING)
    return [
        lines(
            "Lost and wrong",
            "Messages with a finding that fails the run, now. One that arrives after it was "
            "claimed lost is taken off again.",
            "short",
            Query(scope.by("max", "run, topic, finding", wrong), "{{finding}} {{run}} {{topic}}"),
            runbook="MirrortestLoss",
        ),
        lines(
            "Duplicated and reordered",
            "They fail a run only where that is asked for.",
            "short",
            Query(
                scope.by(
                    "max",
                    "run, topic, finding",
                    scope.one(names.CONSUMER_FINDINGS, finding=EXACTLY_ONCE),
                ),
                "{{finding}} {{run}} {{topic}}",
            ),
            runbook="MirrortestDuplicates",
        ),
        timeline(
            "Faults: parts of the lab",
            "Brokers and mirror of `mirrortest lab up --metrics-port`.",
            [State(0, "down", RED), State(1, "running", GREEN)],
            Query(scope.one(names.LAB_PART_UP), "{{part}}"),
            span=12,
        ),
        timeline(
            "Outages: clusters as their readers see them",
            "Consumers wait until an outage ends, and go on.",
            [State(0, "answers", GREEN), State(1, "does not answer", RED)],
            Query(
                scope.by(
                    "max", "run, name, role", scope.one(names.CONSUMER_UNREACHABLE, role="~.+")
                ),
                "{{name}} ({{role}})",
            ),
            span=12,
            runbook="MirrortestConsumerStalled",
        ),
    ]
