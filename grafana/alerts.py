"""The alerts: each one's expression, severity, texts and links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from grafana.catalogue import panel_of
from grafana.judgement import WRONG
from grafana.links import Addresses
from grafana.promql import PROCESS, Scope
from mirrortest.metrics import names

_COUNT = '{{ $value | printf "%.0f" }}'
"""An alert's value as a whole number: by itself Prometheus writes a million as 1e+06."""


@dataclass(frozen=True)
class Limits:
    """From where on an alert fires.

    Attributes:
        window: over which rates are taken; at least four scrapes.
        patience: how long a condition must last before its alert fires. Alerts on messages that
            are lost, wrong or duplicated and on clocks fire at once, the one on targets waits for
            `absence`.
        absence: how long a target may be down: a pod that is replaced comes back within it.
        duplicates: share of the acknowledged messages that may be duplicated.
        latency: the 99th percentile from the intended time, seconds.
        silence: of the ledger, seconds.
        skew: of the clocks, seconds.
        fullness: of the checker, a share of its memory bound.
    """

    window: str = "2m"
    patience: str = "1m"
    absence: str = "2m"
    duplicates: float = 0.001
    latency: float = 30
    silence: float = 60
    skew: float = 0.1
    fullness: float = 0.8


class Alert(NamedTuple):
    """One alerting rule, and the panel that shows what it is about."""

    name: str
    severity: str
    expression: str
    patience: str
    summary: str
    description: str
    dashboard: str
    panel: str

    def rule(self, addresses: Addresses) -> dict[str, Any]:
        """As Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expression,
            **({"for": self.patience} if self.patience else {}),
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": addresses.runbook_url(self.name),
                "dashboard_url": addresses.dashboard_url(self.dashboard),
                "panel_url": addresses.dashboard_url(
                    self.dashboard, panel_of(self.dashboard, self.panel)
                ),
            },
        }


def alerts(limits: Limits | None = None) -> list[Alert]:
    """All of them."""
    limits = limits or Limits()
    scope = Scope(window=limits.window)
    return [*_correctness(scope, limits), *_progress(scope, limits), *_trust(scope, limits)]


def _correctness(scope: Scope, limits: Limits) -> list[Alert]:
    def found(finding: str, labels: str = "run, topic") -> str:
        return scope.by("max", labels, scope.one(names.CONSUMER_FINDINGS, finding=finding))

    acked = scope.by("max", "run, topic", scope.one(names.CONSUMER_ACKED, outcome="acked"))
    latency = scope.quantile(0.99, "run, topic", names.CONSUMER_LATENCY, since="intended")
    return [
        Alert(
            "MirrortestLoss",
            "critical",
            f"{found('lost')} > 0",
            "",
            "Run {{ $labels.run }}: messages of {{ $labels.topic }} are lost",
            f"{_COUNT} messages were acknowledged by the source and are not in the destination, "
            "although it was read to its end after the deadline.",
            "overview",
            "Lost and wrong",
        ),
        Alert(
            "MirrortestWrongMessages",
            "critical",
            f"{found(WRONG, 'run, topic, finding')} > 0",
            "",
            "Run {{ $labels.run }}: {{ $labels.finding }} messages in {{ $labels.topic }}",
            f"{_COUNT} messages arrived {{{{ $labels.finding }}}}.",
            "overview",
            "Lost and wrong",
        ),
        Alert(
            "MirrortestDuplicates",
            "warning",
            f"{found('duplicated')} / ({acked} > 0) > {limits.duplicates:g}",
            "",
            "Run {{ $labels.run }}: duplicates in {{ $labels.topic }}",
            "{{ $value | humanizePercentage }} of the acknowledged messages are at more than one "
            "offset of the destination. "
            f"The limit is {{{{ {limits.duplicates:g} | humanizePercentage }}}}.",
            "overview",
            "Duplicated and reordered",
        ),
        Alert(
            "MirrortestInconclusive",
            "warning",
            f"{found('inconclusive')} > 0",
            limits.patience,
            "Run {{ $labels.run }}: messages of {{ $labels.topic }} cannot be judged",
            f"{_COUNT} acknowledged messages are missing, and may have been in offsets that no "
            "consumer read. The run cannot pass.",
            "overview",
            "Inconclusive",
        ),
        Alert(
            "MirrortestLatencyHigh",
            "warning",
            f"{latency} > {limits.latency:g}",
            limits.patience,
            "Run {{ $labels.run }}: {{ $labels.topic }} arrives late",
            "The 99th percentile from the intended time is {{ $value | humanizeDuration }}. "
            f"The limit is {limits.latency:g} s.",
            "overview",
            "Mirror latency by topic",
        ),
    ]


def _progress(scope: Scope, limits: Limits) -> list[Alert]:
    by_topic = "run, topic"
    produced = scope.by("sum", by_topic, scope.rate(names.PRODUCER_MESSAGES, outcome="acked"))
    arriving, lagging = _arriving(scope, by_topic), _lagging(scope, by_topic)
    begun = f"{scope.by('max', 'run', scope.one(names.CONSUMER_DELIVERED))} > 0"
    judged = f"max by (run) ({scope.info(role='consumer')})"
    producing = f"max by (run) ({scope.info(role='producer')})"
    away = scope.by("max", "run", scope.one(names.CONSUMER_UNREACHABLE))
    incomplete = f"{scope.by('max', 'run', scope.one(names.CONSUMER_COMPLETE))} == 0"
    # Where producers are scraped, too: they are acknowledged, and nothing of it arrives.
    seen_from_both = (
        f"(({produced} > 0) unless on ({by_topic}) ({arriving}) unless on ({by_topic}) ({lagging}) "
        f"unless on (run) ({away} == 1) and on (run) {judged})"
    )
    age, here = scope.one(names.LEDGER_AGE), scope.info(role="consumer")
    of_consumer = f"* on ({PROCESS}) group_left (run, name) {here}"
    going_on = f"and on ({PROCESS}) ({scope.one(names.CONSUMER_LEDGER_ENDED)} == 0)"
    fell_silent = f"max by (run) ((({age} {going_on}) {of_consumer}) > {limits.silence:g})"
    # From the destination alone: what the ledger vouches for does not arrive; or the run is not
    # over, and neither messages of it nor records of the ledger arrive any more.
    in_flight = scope.by("max", by_topic, scope.one(names.CONSUMER_FINDINGS, finding="in_flight"))
    seen_from_destination = (
        f"((({in_flight} > 0) unless on ({by_topic}) ({arriving}) "
        f"unless on ({by_topic}) ({lagging}) or on (run) (({incomplete}) "
        f"unless on (run) ({_arriving(scope, 'run')}) unless on (run) ({_lagging(scope, 'run')}) "
        f"and on (run) ({begun}) and on (run) {fell_silent})) "
        f"unless on (run) {producing} unless on (run) ({away} == 1))"
    )
    silent = (
        f"{fell_silent} "
        f"or max by (run) (time() - process_start_time_seconds * on ({PROCESS}) "
        f"group_left (run, name) ({here} unless on ({PROCESS}) {age}) > {limits.silence:g})"
    )
    waiting = scope.by("sum", "run, name", scope.one(names.CONSUMER_LAG))
    reads = scope.by("sum", "run, name", scope.rate(names.CONSUMER_MESSAGES))
    stalled = (
        f"(({waiting} > 0) unless on (run, name) ({reads} > 0)) "
        f"or ({scope.by('max', 'run, name', scope.one(names.CONSUMER_UNREACHABLE))} == 1)"
    )
    behind = scope.by("max", "run, name, topic", scope.one(names.PRODUCER_BEHIND))
    return [
        Alert(
            "MirrortestTargetDown",
            "warning",
            _down(scope),
            limits.absence,
            "Run {{ $labels.run }}: {{ $labels.name }} cannot be scraped",
            "It took part in the run within the last hour, and its target {{ $labels.instance }} "
            "does not answer. Its metrics are missing, and alerts that rest on them are silent.",
            "mirror",
            "Reachable",
        ),
        Alert(
            "MirrortestMirrorStalled",
            "critical",
            f"{seen_from_both} or {seen_from_destination}",
            limits.patience,
            "Run {{ $labels.run }}: the mirror copies nothing",
            "{{ with $labels.topic }}{{ . }}: the source acknowledges messages, and none of them "
            "arrives{{ else }}The run has not ended, consumers wait at the destination's end, "
            "and no message of the run arrives{{ end }}.",
            "mirror",
            "Records",
        ),
        Alert(
            "MirrortestLedgerSilent",
            "warning",
            silent,
            limits.patience,
            "Run {{ $labels.run }}: the ledger is silent",
            "Consumers have read nothing from the ledger for {{ $value | humanizeDuration }}. "
            "Until they do, no loss can be proven.",
            "consumer",
            "Since the ledger was last read",
        ),
        Alert(
            "MirrortestConsumerStalled",
            "warning",
            stalled,
            limits.patience,
            "Run {{ $labels.run }}: consumer {{ $labels.name }} reads nothing",
            "Its partitions have messages that it has not judged, and it reads none; or its "
            "cluster does not answer.",
            "consumer",
            "Lag",
        ),
        Alert(
            "MirrortestProducerBehindSchedule",
            "warning",
            f"{behind} == 1",
            limits.patience,
            "Run {{ $labels.run }}: producer {{ $labels.name }} is behind its schedule",
            "It does not send to {{ $labels.topic }} at the scheduled rate. Latencies from the "
            "intended time include its own delay.",
            "producer",
            "Behind schedule",
        ),
    ]


def _arriving(scope: Scope, labels: str) -> str:
    """Where first copies of the run's messages arrive; others do not show that it is mirrored."""
    rates = (
        scope.rate(names.CONSUMER_LATENCY, "_count", since="intended"),
        scope.rate(names.CONSUMER_NEGATIVE, since="intended"),
        scope.rate(names.CONSUMER_BACKLOG),
    )
    return " or ".join(f"{scope.by('sum', labels, each)} > 0" for each in rates)


def _lagging(scope: Scope, labels: str) -> str:
    """Where consumers have more to read than they read in 10 s: it may contain the run's."""
    lag = scope.by("sum", labels, scope.one(names.CONSUMER_LAG))
    return f"{lag} > 10 * {scope.by('sum', labels, scope.rate(names.CONSUMER_MESSAGES))}"


def _down(scope: Scope) -> str:
    """Targets that took part in a run within the hour and do not answer, though it goes on.

    A process that has ended as it should looks the same where its target stays listed, as by
    static_configs. So its run must still have a process that answers. Kubernetes's discovery drops
    pods that have ended: there a target that is down is in trouble whoever else answers.
    """
    # No verdict depends on an observer of machines, and it may outlast the run.
    taking_part = f'{names.RUN_INFO.full_name}{{role!="observer"}}'
    was_there = f"max by (job, instance, run, name) (max_over_time({taking_part}[1h]))"
    down = f"({was_there} and on (job, instance) (up == 0))"
    # One complete consumer proves that all producers have ended, and nothing about the other
    # consumers: they may read other topics.
    complete = scope.one(names.CONSUMER_COMPLETE, role="~.+")
    producers = f"max_over_time({scope.info(role='producer')}[1h])"
    ended_producers = f"({producers} and on (run) ({scope.by('max', 'run', complete)} == 1))"
    ended = f"(min by (job, instance) (last_over_time({complete}[1h])) == 1)"
    return (
        f'(({down} and on (job, instance) up{{pod!=""}}) '
        f"or ({down} and on (run) max by (run) ({taking_part}))) "
        f"unless on (job, instance, run) {ended_producers} unless on (job, instance) {ended}"
    )


def _trust(scope: Scope, limits: Limits) -> list[Alert]:
    least = scope.by("min", "run", scope.one(names.CONSUMER_LEAST_LATENCY))
    early = scope.by("sum", "run", scope.rate(names.CONSUMER_NEGATIVE))
    stepped = f"increase({scope.one(names.CLOCK_STEPPED)}[{limits.window}])"
    steps = scope.by("max", "run", stepped)
    bounds = " + ".join(
        f"max by (run) ({scope.one(names.CLOCK_ERROR)} * on ({PROCESS}) group_left (run) "
        f"{scope.info(role=role)})"
        for role in ("producer", "consumer")
    )
    fullness = scope.by("max", "run, topic", scope.one(names.CONSUMER_FULLNESS))
    return [
        Alert(
            "MirrortestClockSkew",
            "warning",
            f"(-({least}) > {limits.skew:g} and on (run) ({early} > 0)) "
            f"or {steps} > {limits.skew:g}",
            "",
            "Run {{ $labels.run }}: clocks disagree",
            "Messages arrive before they were sent, or a wall clock was set, by "
            "{{ $value | humanizeDuration }}. Latencies are off by as much. Verdicts are not "
            "affected.",
            "overview",
            "Clock skew: least latency",
        ),
        Alert(
            "MirrortestClockUnbounded",
            "info",
            f"{bounds} > {limits.skew:g}",
            limits.patience,
            "Run {{ $labels.run }}: the clocks are not synchronized",
            "The two sides' kernels report that their clocks may be "
            "{{ $value | humanizeDuration }} apart. Every latency may be off by as much.",
            "overview",
            "Clock skew: kernels' bound",
        ),
        Alert(
            "MirrortestCheckerNearBound",
            "warning",
            f"{fullness} > {limits.fullness:g}",
            limits.patience,
            "Run {{ $labels.run }}: the checker of {{ $labels.topic }} is nearly full",
            "It uses {{ $value | humanizePercentage }} of its memory bound. Above the bound it "
            "drops ids, and their streams become inconclusive online.",
            "consumer",
            "Checker's fullness",
        ),
    ]


def rules(limits: Limits | None = None, addresses: Addresses | None = None) -> dict[str, Any]:
    """A rules file of Prometheus."""
    written = [each.rule(addresses or Addresses()) for each in alerts(limits)]
    return {"groups": [{"name": "mirrortest", "rules": written}]}


def prometheus_rule(addresses: Addresses | None = None) -> dict[str, Any]:
    """The same for the Prometheus operator."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "mirrortest", "labels": {"app.kubernetes.io/name": "mirrortest"}},
        "spec": rules(addresses=addresses),
    }
