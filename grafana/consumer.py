"""Consumer: does it keep up, what does it find, is its state saved?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana.frame import framed, variable
from grafana.judgement import NOT_JUDGED, found, whole
from grafana.panels import AMBER, GREEN, RED, Query, State, Step, lines, number, timeline, warmth
from grafana.process import process_panels
from grafana.promql import DASHBOARD
from mirrortest.metrics import names

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import Dashboard

    from grafana.frame import Row
    from grafana.panels import Panel


WRONG_LANES = "Wrong messages, by partition"
"""The panel to which a wrong lane leads."""


def consumer() -> Dashboard:
    """The dashboard."""
    sections: list[Row] = [
        ("Reading", _reading()),
        ("Judging", _judging()),
        ("State and ledger", _state()),
        ("Process", process_panels("consumer")),
    ]
    return framed(
        "consumer",
        "Consumer",
        "Whether consumers keep up, what they find, and whether their state is saved.",
        sections,
        more=[
            variable(
                "partition",
                "Partition",
                f"label_values({DASHBOARD.one(names.CONSUMER_LAG)}, partition)",
                # A lane without one partition of its own has an empty label.
                everything=".*",
            )
        ],
    )


def _reading() -> list[Panel]:
    scope = DASHBOARD
    latency = names.CONSUMER_LATENCY
    return [
        lines(
            "Messages",
            "Read and judged, of whatever kind, by consumer. Backlog: those that were there before "
            "it took their partition, and are not in the latencies.",
            "mps",
            Query(
                scope.by("sum", "run, name", scope.rate(names.CONSUMER_MESSAGES)),
                "{{name}} {{run}}",
            ),
            Query(
                scope.by("sum", "run, name", scope.rate(names.CONSUMER_BACKLOG)),
                "{{name}} {{run}}: backlog",
            ),
            span=8,
            runbook="MirrortestConsumerStalled",
        ),
        lines(
            "Bytes",
            "Values of the messages, decompressed, without keys and headers.",
            "Bps",
            Query(
                scope.by("sum", "run, name", scope.rate(names.CONSUMER_BYTES)), "{{name}} {{run}}"
            ),
            span=8,
        ),
        lines(
            "Lag",
            "Offsets between the next one to be judged and the partition's end (with "
            "read_committed, its last stable offset).",
            "short",
            Query(
                scope.by(
                    "max",
                    "run, topic, partition",
                    scope.one(names.CONSUMER_LAG, partition="~$partition"),
                ),
                "{{topic}}-{{partition}} {{run}}",
            ),
            span=8,
            runbook="MirrortestConsumerStalled",
        ),
        lines(
            "Partitions",
            "That each consumer reads. A rebalance moves them and causes no finding.",
            "none",
            Query(
                scope.by("sum", "run, name", scope.one(names.CONSUMER_PARTITIONS)),
                "{{name}} {{run}}",
            ),
        ),
        timeline(
            "Cluster",
            "Whether the cluster that each reads answers.",
            [State(0, "answers", GREEN), State(1, "does not answer", RED)],
            Query(
                scope.by(
                    "max", "run, name, role", scope.one(names.CONSUMER_UNREACHABLE, role="~.+")
                ),
                "{{name}} ({{role}})",
            ),
            span=12,
            height=8,
            runbook="MirrortestConsumerStalled",
        ),
        lines(
            "Latency since the intended time",
            "By topic, over all consumers.",
            "s",
            *(
                Query(
                    scope.quantile(share, "run, topic", latency, since="intended"),
                    f"p{share * 100:g} {{{{run}}}} {{{{topic}}}}",
                )
                for share in (0.5, 0.9, 0.99, 0.999)
            ),
            logarithmic=True,
            runbook="MirrortestLatencyHigh",
        ),
        lines(
            "Latency since the actual send",
            "The mirror's own latency, without the producer's delay.",
            "s",
            *(
                Query(
                    scope.quantile(share, "run, topic", latency, since="sent"),
                    f"p{share * 100:g} {{{{run}}}} {{{{topic}}}}",
                )
                for share in (0.5, 0.9, 0.99, 0.999)
            ),
            logarithmic=True,
            runbook="MirrortestLatencyHigh",
        ),
        warmth(
            "Latency since the actual send, all messages",
            "Messages by latency.",
            Query(scope.by("sum", "le", scope.rate(latency, "_bucket", since="sent")), "{{le}}"),
        ),
    ]


def _judging() -> list[Panel]:
    scope = DASHBOARD
    return [
        lines(
            "All findings",
            "Messages with a finding now, over the entire run. Messages in flight are no fault of "
            "the mirror; foreign ones and those of other runs are not judged.",
            "short",
            Query(
                scope.by("max", "run, topic, finding", scope.one(names.CONSUMER_FINDINGS)) + " > 0",
                "{{finding}} {{run}} {{topic}}",
            ),
        ),
        lines(
            WRONG_LANES,
            "Messages with a finding by lane (record key) and the partition to which it belongs.",
            "short",
            Query(
                scope.by(
                    "max",
                    "run, topic, partition, lane, finding",
                    scope.one(names.CONSUMER_LANE_FINDINGS, partition="~$partition"),
                ),
                "{{finding}} {{topic}}-{{partition}}, lane {{lane}} {{run}}",
            ),
            runbook="MirrortestLoss",
        ),
        lines(
            "Claimed lost, and arrived later",
            "Messages claimed lost in the last 5 minutes, and those that arrived after they had "
            "been claimed lost.",
            "short",
            Query(
                scope.by(
                    "sum", "run, topic", f"increase({scope.one(names.CONSUMER_LOST_CLAIMED)}[5m])"
                ),
                "claimed lost {{run}} {{topic}}",
            ),
            Query(
                scope.by(
                    "max", "run, topic", f"increase({scope.one(names.CONSUMER_LOST_REPAID)}[5m])"
                ),
                "arrived later {{run}} {{topic}}",
            ),
            runbook="MirrortestLoss",
        ),
        lines(
            "Checker's fullness",
            "The share of its memory bound that the fullest partition's checker uses. At 1 it "
            "drops ids: their streams are inconclusive online, and exact in the reconciliation.",
            "percentunit",
            Query(
                scope.by("max", "run, topic", scope.one(names.CONSUMER_FULLNESS)),
                "{{run}} {{topic}}",
            ),
            runbook="MirrortestCheckerNearBound",
        ),
        number(
            "Unread offsets",
            "Of all topics. Deleted before they were read: their messages cannot be judged.",
            "locale",
            Query(whole(scope, "run", scope.one(names.CONSUMER_UNREAD)), "{{run}}"),
            steps=[Step(1, AMBER)],
            span=12,
        ),
        number(
            "Foreign and of other runs",
            "All messages in the topics that are not of this run.",
            "locale",
            Query(found(scope, "run", NOT_JUDGED), "{{run}}"),
            span=12,
        ),
    ]


def _state() -> list[Panel]:
    scope = DASHBOARD
    return [
        lines(
            "Since the state was last written",
            "A restarted consumer continues from it, and reads again what came after it.",
            "s",
            Query(
                scope.by("max", "run, name", scope.one(names.CONSUMER_STATE_AGE)),
                "{{name}} {{run}}",
            ),
            span=6,
        ),
        lines(
            "Since the ledger was last read",
            "By each consumer, until producers have recorded their ends.",
            "s",
            Query(
                _of_consumers(
                    f"({scope.one(names.LEDGER_AGE)} unless on (job, instance, worker) "
                    f"{scope.one(names.CONSUMER_LEDGER_ENDED)} == 1)"
                ),
                "{{name}} {{run}}",
            ),
            span=6,
            runbook="MirrortestLedgerSilent",
        ),
        lines(
            "Damaged records of the ledger",
            "Records that are damaged or not ledger records: another program writes to the topic.",
            "short",
            Query(
                scope.by(
                    "max",
                    "run, name",
                    f"increase({scope.one(names.CONSUMER_LEDGER_MALFORMED)}[5m])",
                ),
                "{{name}} {{run}}",
            ),
            span=6,
        ),
        lines(
            "Rows made durable",
            "In the sequence log, per second.",
            "wps",
            Query(_of_consumers(scope.rate(names.LOG_ROWS)), "{{name}} {{run}}"),
            span=6,
        ),
    ]


def _of_consumers(expression: str) -> str:
    info = DASHBOARD.info(role="consumer")
    return (
        f"max by (run, name) ({expression} * on (job, instance, worker) "
        f"group_left (run, name) {info})"
    )
