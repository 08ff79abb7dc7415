"""Producer: does it keep its schedule, and what becomes of what it sends?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana.frame import framed
from grafana.panels import AMBER, GREEN, RED, Query, State, Step, lines, number, timeline, warmth
from grafana.process import process_panels
from grafana.promql import DASHBOARD
from mirrortest.metrics import names

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import Dashboard

    from grafana.frame import Row
    from grafana.panels import Panel


def producer() -> Dashboard:
    """The dashboard."""
    sections: list[Row] = [
        ("Schedule", _schedule()),
        ("Sends", _sends()),
        ("Ledger and log", _vouching()),
        ("Process", process_panels("producer")),
    ]
    return framed(
        "producer",
        "Producer",
        "Whether producers keep their schedule, and how their sends end.",
        sections,
    )


def _schedule() -> list[Panel]:
    scope = DASHBOARD
    sent = scope.by("sum", "run, topic", scope.rate(names.PRODUCER_MESSAGES))
    target = scope.by("sum", "run, topic", scope.one(names.PRODUCER_TARGET))
    behind = scope.by("max", "run, name, topic", scope.one(names.PRODUCER_BEHIND))
    lag = names.PRODUCER_SCHEDULE_LAG
    return [
        lines(
            "Sent and asked for",
            "Messages whose send ended, and what the schedule asks for.",
            "mps",
            Query(sent, "sent {{run}} {{topic}}"),
            Query(target, "asked for {{run}} {{topic}}"),
            runbook="MirrortestProducerBehindSchedule",
        ),
        timeline(
            "Behind schedule",
            "While a producer does not keep up, its figures are its own limit, not the mirror's. "
            "The delay is part of the latency from the intended time.",
            [State(0, "keeps up", GREEN), State(1, "behind", RED)],
            Query(behind, "{{name}} {{topic}}"),
            span=12,
            height=8,
            runbook="MirrortestProducerBehindSchedule",
        ),
        lines(
            "Schedule debt",
            "How long the oldest message that is due has waited to be sent.",
            "s",
            Query(
                scope.by("max", "run, name, topic", scope.one(names.PRODUCER_DEBT_SECONDS)),
                "{{name}} {{topic}}",
            ),
            span=8,
            runbook="MirrortestProducerBehindSchedule",
        ),
        lines(
            "Messages due and not sent",
            "What the debt amounts to.",
            "short",
            Query(
                scope.by("sum", "run, name, topic", scope.one(names.PRODUCER_DEBT_MESSAGES)),
                "{{name}} {{topic}}",
            ),
            span=8,
        ),
        lines(
            "From the intended time to the send",
            "What the producer itself adds to the latency.",
            "s",
            *(
                Query(scope.quantile(share, "run, topic", lag), f"p{share * 100:g} {{{{topic}}}}")
                for share in (0.5, 0.99, 0.999)
            ),
            span=8,
            logarithmic=True,
        ),
    ]


def _sends() -> list[Panel]:
    scope = DASHBOARD
    ack = names.PRODUCER_ACK_LATENCY
    in_flight = scope.one(names.PRODUCER_IN_FLIGHT)
    outcomes = scope.by("sum", "run, outcome", scope.rate(names.PRODUCER_MESSAGES))
    reasons = scope.by("sum", "run, reason", scope.rate(names.PRODUCER_NOT_ACKED))
    failed = scope.by(
        "sum",
        "run",
        f"increase({scope.one(names.PRODUCER_MESSAGES, outcome='~failed|unknown')}[$__range])",
    )
    return [
        lines(
            "Outcomes",
            "Acked; failed: known not to be written; unknown: no answer, so it may or may not "
            "appear.",
            "mps",
            Query(outcomes, "{{outcome}} {{run}}"),
            span=6,
        ),
        lines(
            "Not acknowledged",
            "Failed and unknown, by why; a fixed set of reasons.",
            "mps",
            Query(reasons, "{{reason}} {{run}}"),
            span=6,
        ),
        lines(
            "Bytes",
            "Record batches as sent, compressed.",
            "Bps",
            Query(
                scope.by("sum", "run, topic", scope.rate(names.PRODUCER_BYTES)), "{{run}} {{topic}}"
            ),
            span=6,
        ),
        lines(
            "In flight",
            "Sent, outcome not known yet.",
            "short",
            Query(
                scope.by("sum", "run, name, topic", scope.one(names.PRODUCER_IN_FLIGHT)),
                "{{name}} {{topic}}",
            ),
            span=6,
        ),
        lines(
            "Acknowledgement latency",
            "From the actual send to the source broker's acknowledgement.",
            "s",
            *(
                Query(scope.quantile(share, "run", ack), f"p{share * 100:g} {{{{run}}}}")
                for share in (0.5, 0.9, 0.99, 0.999)
            ),
            logarithmic=True,
        ),
        warmth(
            "Acknowledgement latency, all messages",
            "Messages by latency.",
            Query(scope.by("sum", "le", scope.rate(ack, "_bucket")), "{{le}}"),
            span=12,
            height=8,
        ),
        number(
            "Failed or unknown",
            "Sends in the time shown that were not acknowledged: a problem of the source, never a "
            "loss by the mirror.",
            "locale",
            Query(failed, "{{run}}"),
            steps=[Step(1, AMBER)],
            span=12,
            decimals=0,
        ),
        number(
            "Topics",
            "That are produced to.",
            "none",
            Query(
                f"count by (run) ({scope.by('sum', 'run, topic', in_flight)})",
                "{{run}}",
            ),
            span=12,
        ),
    ]


def _vouching() -> list[Panel]:
    scope = DASHBOARD
    return [
        lines(
            "Since the ledger was last written",
            "Producers write it once a second while they send, and else every 20 s.",
            "s",
            Query(_of_producers(scope.one(names.LEDGER_AGE)), "{{name}}"),
            span=8,
            runbook="MirrortestLedgerSilent",
        ),
        lines(
            "Rows made durable",
            "In the sequence log, per second.",
            "wps",
            Query(_of_producers(scope.rate(names.LOG_ROWS)), "{{name}}"),
            span=8,
        ),
        lines(
            "Incarnation",
            "It rises by one each time a producer starts again within the run.",
            "none",
            Query(scope.by("max", "run, name", scope.one(names.PRODUCER_INCARNATION)), "{{name}}"),
            span=8,
        ),
    ]


def _of_producers(expression: str) -> str:
    info = DASHBOARD.info(role="producer")
    return (
        f"max by (run, name) ({expression} * on (job, instance, worker) "
        f"group_left (run, name) {info})"
    )
