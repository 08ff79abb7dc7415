"""Mirror: MirrorMaker 2's and the brokers' own metrics beside ours.

The mirror's metrics come by Prometheus's JMX exporter with mirrortest/lab/jmx_exporter.yaml, which
tells their names; they carry no run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana.frame import framed
from grafana.judgement import SINCE
from grafana.panels import AMBER, GREEN, RED, Query, State, Step, lines, number, timeline
from grafana.promql import DASHBOARD
from mirrortest.metrics import names

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import Dashboard

    from grafana.frame import Row
    from grafana.panels import Panel

_SOURCE = "kafka_connect_mirror_source_"


def mirror() -> Dashboard:
    """The dashboard."""
    sections: list[Row] = [
        ("MirrorMaker 2 and the truth", _beside()),
        ("MirrorMaker 2", _connect()),
        ("Brokers", _brokers()),
    ]
    return framed(
        "mirror",
        "Mirror",
        "What MirrorMaker 2 reports, compared with what arrives; and the brokers' health.",
        sections,
        known_by=f"{names.RUN_INFO.full_name}|{_SOURCE}records_total|kafka_server_messages_in_total",
    )


def _jmx(name: str, *matchers: str) -> str:
    return f"{name}{{{', '.join([*DASHBOARD.instances, *matchers])}}}"


def _rate(name: str, *matchers: str) -> str:
    return f"rate({_jmx(name, *matchers)}[{DASHBOARD.window}])"


def _beside() -> list[Panel]:
    scope = DASHBOARD
    acked = scope.rate(names.PRODUCER_MESSAGES, outcome="acked")
    latency = names.CONSUMER_LATENCY
    return [
        lines(
            "Records",
            "Acknowledged by the source, copied as MirrorMaker 2 counts them (all topics, the "
            "ledger's too), and read in the destination.",
            "mps",
            Query(scope.by("sum", "run", acked), "acked {{run}}"),
            Query(f"sum by (target) ({_rate(f'{_SOURCE}records_total')})", "copied to {{target}}"),
            Query(scope.by("sum", "run", scope.rate(names.CONSUMER_MESSAGES)), "consumed {{run}}"),
            runbook="MirrortestMirrorStalled",
        ),
        lines(
            "Bytes",
            "Produced, as record batches on the wire; copied, as MirrorMaker 2 counts them; "
            "consumed, the values alone, decompressed.",
            "Bps",
            Query(scope.by("sum", "run", scope.rate(names.PRODUCER_BYTES)), "produced {{run}}"),
            Query(f"sum by (target) ({_rate(f'{_SOURCE}bytes_total')})", "copied to {{target}}"),
            Query(scope.by("sum", "run", scope.rate(names.CONSUMER_BYTES)), "consumed {{run}}"),
        ),
        lines(
            "Latency: MirrorMaker 2's and ours",
            "MirrorMaker 2's from the record's timestamp to the destination's acknowledgement, "
            "average and worst of its partitions. Ours from the intended time to the arrival at a "
            "consumer.",
            "s",
            Query(
                # Of a partition without traffic its word is NaN, which would be the average of all.
                f"avg({_jmx(f'{_SOURCE}replication_latency_ms_avg')} >= 0) / 1000",
                "MirrorMaker 2 avg",
            ),
            Query(
                f"max({_jmx(f'{_SOURCE}replication_latency_ms_max')} >= 0) / 1000",
                "MirrorMaker 2 max",
            ),
            *(
                Query(
                    scope.quantile(share, "run", latency, since=SINCE),
                    f"ours p{share * 100:g} {{{{run}}}}",
                )
                for share in (0.5, 0.99)
            ),
            logarithmic=True,
            runbook="MirrortestLatencyHigh",
        ),
        lines(
            "Behind the source",
            "Records that the mirror's own consumers have not fetched, by topic. Kafka reports a "
            "dotted topic twice, once with underscores.",
            "short",
            Query(f"sum by (topic) ({_jmx('kafka_consumer_records_lag')})", "{{topic}}"),
            runbook="MirrortestMirrorStalled",
        ),
    ]


def _connect() -> list[Panel]:
    by_topic = "sum by (target, topic)"
    running = _jmx("kafka_connect_task_status", 'status="running"')
    status = _jmx("kafka_connect_task_status", 'status!="running"')
    # Without a series a panel shows the newest value of before.
    none = f"0 * sum({_jmx('kafka_connect_task_status')})"
    return [
        number(
            "Tasks running",
            "Of Kafka Connect's, over all connectors.",
            "none",
            Query(f"sum({running}) or {none}", "running"),
            span=6,
        ),
        number(
            "Tasks not running",
            "Paused, failed or unassigned. A connector may be reported as running while its "
            "task has failed and nothing is copied.",
            "none",
            Query(f"sum({status}) or {none}", "not running"),
            steps=[Step(1, RED)],
            span=6,
            runbook="MirrortestMirrorStalled",
        ),
        number(
            "Record failures",
            "Of all tasks, in the time shown.",
            "locale",
            Query(
                f"sum(increase({_jmx('kafka_connect_task_record_failures_total')}[$__range]))", ""
            ),
            steps=[Step(1, AMBER)],
            span=6,
            decimals=0,
        ),
        timeline(
            "Reachable",
            "Whether Prometheus can scrape mirror, brokers and testers.",
            [State(0, "down", RED), State(1, "up", GREEN)],
            Query(
                f"max by (job, instance) (up{{{', '.join(DASHBOARD.instances)}}})",
                "{{job}} {{instance}}",
            ),
            span=6,
            height=4,
            runbook="MirrortestTargetDown",
        ),
        lines(
            "Copied, by topic",
            "Records per second.",
            "mps",
            Query(f"{by_topic} ({_rate(f'{_SOURCE}records_total')})", "{{topic}}"),
            span=8,
        ),
        lines(
            "Age of what is copied",
            "From the record's timestamp to when the mirror has fetched it, average by topic.",
            "s",
            Query(f"max by (topic) ({_jmx(f'{_SOURCE}record_age_ms_avg')}) / 1000", "{{topic}}"),
            span=8,
        ),
        lines(
            "Between fetched and written",
            "Records that each task has polled and not yet written.",
            "short",
            Query(
                f"sum by (connector, task) ({_jmx('kafka_connect_source_record_active_count')})",
                "{{connector}}-{{task}}",
            ),
            span=8,
        ),
        lines(
            "Task throughput",
            "Polled from the source and written to the destination.",
            "mps",
            Query(
                f"sum by (connector) ({_jmx('kafka_connect_source_record_poll_rate')})",
                "polled {{connector}}",
            ),
            Query(
                f"sum by (connector) ({_jmx('kafka_connect_source_record_write_rate')})",
                "written {{connector}}",
            ),
            span=8,
        ),
        lines(
            "Mirror's producers: trouble",
            "Records retried and given up per second.",
            "mps",
            Query(f"sum({_jmx('kafka_producer_record_retry_rate')})", "retried"),
            Query(f"sum({_jmx('kafka_producer_record_error_rate')})", "given up"),
            span=8,
        ),
        lines(
            "Mirror's producers: request latency",
            "Average, by client.",
            "ms",
            Query(
                f"max by (client_id) ({_jmx('kafka_producer_request_latency_avg')})",
                "{{client_id}}",
            ),
            span=8,
        ),
    ]


def _brokers() -> list[Panel]:
    return [
        lines(
            "Bytes in",
            "Of each broker.",
            "Bps",
            Query(
                f"sum by (job, instance) ({_rate('kafka_server_bytes_in_total')})", "{{instance}}"
            ),
            span=6,
        ),
        lines(
            "Bytes out",
            "Of each broker.",
            "Bps",
            Query(
                f"sum by (job, instance) ({_rate('kafka_server_bytes_out_total')})", "{{instance}}"
            ),
            span=6,
        ),
        lines(
            "Partitions in trouble",
            "Under-replicated, and without a leader.",
            "short",
            Query(
                f"sum by (job, instance) ({_jmx('kafka_server_under_replicated_partitions')})",
                "under-replicated {{instance}}",
            ),
            Query(
                f"max by (job, instance) ({_jmx('kafka_controller_offline_partitions')})",
                "offline {{instance}}",
            ),
            span=6,
        ),
        lines(
            "Request handlers idle",
            "A broker whose handlers are hardly ever idle is the bottleneck, not the mirror.",
            "percentunit",
            Query(
                f"min by (job, instance) ({_jmx('kafka_server_request_handler_idle_ratio')})",
                "{{instance}}",
            ),
            span=6,
        ),
    ]
