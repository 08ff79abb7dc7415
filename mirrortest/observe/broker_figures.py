"""The figures of brokers and of MirrorMaker 2, of two scrapes of an endpoint."""

from __future__ import annotations

from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.model.observed import BROKER, MIRROR, PARTITION, REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mirrortest.model.observed import Observed
    from mirrortest.observe.scraped_metrics import Series

_MS = 1e-3


class How(Enum):
    """How series become a figure."""

    RATE = "the rise of their sum, each second"
    SUM = "their sum"
    MAX = "the highest"
    MEAN = "the mean of what was measured between the scrapes, of milliseconds"
    P99 = "the highest 99th percentile, of milliseconds"
    MAX_MS = "the highest, of milliseconds"


class Source(NamedTuple):
    """Where a figure comes from: the first of these keys that the endpoint has."""

    how: How
    keys: tuple[str, ...]
    only: Mapping[str, str] = {}
    """Labels that a series must have."""


def _of(how: How, *keys: str, **only: str) -> Source:
    return Source(how, keys, only)


_TOPIC = "kafka_server_brokertopicmetrics_"
_REPLICAS = "kafka_server_replicamanager_"
_PURGATORY = "kafka_server_delayedoperationpurgatory_purgatorysize"
_FLUSH = "kafka_log_logflushstats_logflushrateandtimems"
_ELECTIONS = "kafka_controller_controllerstats_leaderelectionrateandtimems"
_LAG = "kafka_server_fetcherlagmetrics_consumerlag"

_BROKER: dict[str, Source] = {
    "messages_in_per_second": _of(How.RATE, _TOPIC + "messagesin", "kafka_server_messages_in"),
    "bytes_in_per_second": _of(How.RATE, _TOPIC + "bytesin", "kafka_server_bytes_in"),
    "bytes_out_per_second": _of(How.RATE, _TOPIC + "bytesout", "kafka_server_bytes_out"),
    "replication_bytes_in_per_second": _of(How.RATE, _TOPIC + "replicationbytesin"),
    "replication_bytes_out_per_second": _of(How.RATE, _TOPIC + "replicationbytesout"),
    "failed_produce_requests_per_second": _of(How.RATE, _TOPIC + "failedproducerequests"),
    "failed_fetch_requests_per_second": _of(How.RATE, _TOPIC + "failedfetchrequests"),
    "handler_idle_ratio": _of(
        How.MAX,
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "kafka_server_request_handler_idle_ratio",
    ),
    "network_idle_ratio": _of(
        How.MAX,
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "kafka_network_socketserver_networkprocessoravgidle_percent",
    ),
    "isr_shrinks_per_second": _of(How.RATE, _REPLICAS + "isrshrinks"),
    "isr_expands_per_second": _of(How.RATE, _REPLICAS + "isrexpands"),
    "under_replicated_partitions": _of(
        How.SUM, _REPLICAS + "underreplicatedpartitions", "kafka_server_under_replicated_partitions"
    ),
    "offline_partitions": _of(
        How.SUM,
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "kafka_controller_offline_partitions",
    ),
    "under_min_isr_partitions": _of(How.SUM, _REPLICAS + "underminisrpartitioncount"),
    "leaders": _of(How.SUM, _REPLICAS + "leadercount"),
    "produce_purgatory": _of(How.SUM, _PURGATORY, delayedoperation="Produce"),
    "fetch_purgatory": _of(How.SUM, _PURGATORY, delayedoperation="Fetch"),
    "purgatory_expirations_per_second": _of(How.RATE, "kafka_server_delayedfetchmetrics_expires"),
    "unclean_elections_per_second": _of(
        How.RATE, "kafka_controller_controllerstats_uncleanleaderelections"
    ),
    "elections_per_second": _of(How.RATE, _ELECTIONS),
    "election_seconds": _of(How.MEAN, _ELECTIONS),
    "eligible_elections_per_second": _of(
        How.RATE, "kafka_controller_controllerstats_electionfromeligibleleaderreplicas"
    ),
    "quorum_election_seconds": _of(How.MAX_MS, "kafka_server_raft_metrics_election_latency_avg"),
    "quorum_high_watermark_per_second": _of(How.RATE, "kafka_server_raft_metrics_high_watermark"),
    "replica_max_lag": _of(How.MAX, "kafka_server_replicafetchermanager_maxlag"),
    "replica_lag": _of(How.SUM, _LAG),
    "flushes_per_second": _of(How.RATE, _FLUSH),
    "flush_seconds": _of(How.MEAN, _FLUSH),
    "flush_p99_seconds": _of(How.P99, _FLUSH),
}
_STAGES = {
    "total": "totaltimems", "request_queue": "requestqueuetimems", "local": "localtimems",
    "remote": "remotetimems", "response_queue": "responsequeuetimems",
    "send": "responsesendtimems", "throttle": "throttletimems",
}  # fmt: skip
_REQUESTS = "kafka_network_requestmetrics_"
_REQUEST = {
    "requests_per_second": _of(How.RATE, _REQUESTS + "requests"),
    "total_p99_seconds": _of(How.P99, _REQUESTS + "totaltimems"),
    **{f"{stage}_seconds": _of(How.MEAN, _REQUESTS + name) for stage, name in _STAGES.items()},
}
_KINDS = frozenset({"Produce", "FetchConsumer", "FetchFollower", "Metadata"})
_PARTITIONS = {
    "end_offset_per_second": _of(How.RATE, "kafka_log_log_logendoffset"),
    "under_replicated": _of(How.MAX, "kafka_cluster_partition_underreplicated"),
    "replica_lag": _of(How.SUM, _LAG),
}
_MM2 = "kafka_connect_mirror_source_"
_MM2_DEFAULT = "kafka_connect_mirror_mirrorsourceconnector_"
_MIRROR = {
    "records_per_second": _of(How.RATE, _MM2 + "records", _MM2_DEFAULT + "record"),
    "bytes_per_second": _of(How.RATE, _MM2 + "bytes", _MM2_DEFAULT + "byte"),
    **{
        f"{figure}{suffix}_seconds": _of(
            How.MAX_MS, f"{_MM2}{name}_{which}", f"{_MM2_DEFAULT}{name}_{which}"
        )
        for figure, name in (
            ("replication_latency", "replication_latency_ms"),
            ("record_age", "record_age_ms"),
        )
        for suffix, which in (("", "avg"), ("_max", "max"))
    },
}

_Group = tuple[str, ...]


def rows(
    endpoint: str,
    before: Iterable[Series],
    now: Iterable[Series],
    seconds: float,
    *,
    by_partition: bool,
) -> dict[Observed, list[dict[str, object]]]:
    """The rows of an endpoint by table, without their times."""

    def request(labels: Mapping[str, str]) -> _Group | None:
        kind = labels.get("request", "")
        return (kind,) if kind in _KINDS else None

    def partition(labels: Mapping[str, str]) -> _Group | None:
        topic, number = labels.get("topic"), labels.get("partition")
        return None if topic is None or number is None else (topic, number)

    def copied(labels: Mapping[str, str]) -> _Group | None:
        found = partition(labels)
        return found if found is None or by_partition else (found[0], "")

    wanted: list[tuple[Observed, dict[str, Source], Callable[[Mapping[str, str]], _Group | None]]]
    wanted = [(BROKER, _BROKER, lambda _: ()), (REQUEST, _REQUEST, request)]
    wanted += [(MIRROR, _MIRROR, copied)]
    if by_partition:
        wanted.append((PARTITION, _PARTITIONS, partition))
    first, second = _by_key(before), _by_key(now)
    found: dict[Observed, list[dict[str, object]]] = {}
    for table, sources, group in wanted:
        figures: dict[_Group, dict[str, object]] = defaultdict(dict)
        for name, source in sources.items():
            for key, value in _figures(source, first, second, seconds, group).items():
                figures[key][name] = value
        names = [each.name for each in table.keys]
        found[table] = [
            dict(zip(names, (endpoint, *key), strict=True)) | row
            for key, row in sorted(figures.items())
            if any(value is not None for value in row.values())
        ]
    return found


_ByKey = dict[tuple[str, str], list["Series"]]


def _by_key(series: Iterable[Series]) -> _ByKey:
    found: _ByKey = defaultdict(list)
    for each in series:
        found[each.key, each.attribute].append(each)
    return found


def _figures(
    source: Source,
    before: _ByKey,
    now: _ByKey,
    seconds: float,
    group: Callable[[Mapping[str, str]], _Group | None],
) -> dict[_Group, float | None]:
    """A figure by group; None where a counter fell or is new."""

    def of(scrape: _ByKey, *attributes: str) -> dict[_Group, list[Series]]:
        for key in source.keys:
            for attribute in attributes:
                if found := _grouped(scrape.get((key, attribute), ()), source.only, group):
                    return found
        return {}

    def each(
        reduce: Callable[[Iterable[float]], float], scrape: _ByKey, *attributes: str
    ) -> dict[_Group, float]:
        return {
            key: reduce(one.value for one in found)
            for key, found in of(scrape, *attributes).items()
        }

    if source.how is How.RATE:
        attributes = "count", "value"
        return _rises(each(sum, before, *attributes), each(sum, now, *attributes), seconds)
    if source.how is How.MEAN:
        counts = _rises(each(sum, before, "count"), each(sum, now, "count"), 1)
        # The broker's mean is that of all it ever measured.
        totals = _rises(_totals(of, before), _totals(of, now), 1)
        return {
            key: total * _MS / count
            for key, count in counts.items()
            if count and (total := totals.get(key)) is not None
        }
    if source.how is How.SUM:
        return dict(each(sum, now, "value"))
    highest = each(max, now, *(("p99",) if source.how is How.P99 else ("value",)))
    factor = 1 if source.how is How.MAX else _MS
    return {key: value * factor for key, value in highest.items()}


def _grouped(
    series: Iterable[Series],
    only: Mapping[str, str],
    group: Callable[[Mapping[str, str]], _Group | None],
) -> dict[_Group, list[Series]]:
    found: dict[_Group, list[Series]] = defaultdict(list)
    for each in series:
        key = group(each.labels)
        if key is not None and only.items() <= each.labels.items():
            found[key].append(each)
    # Of a broker in all, the series of all topics together, where there is one.
    if () in found and (whole := [each for each in found[()] if "topic" not in each.labels]):
        found[()] = whole
    return found


def _totals(of: Callable[..., dict[_Group, list[Series]]], scrape: _ByKey) -> dict[_Group, float]:
    means, counts = of(scrape, "mean"), of(scrape, "count")
    return {
        key: means[key][0].value * counts[key][0].value
        for key in means
        if len(means[key]) == len(counts.get(key, ())) == 1
    }


def _rises(
    before: Mapping[_Group, float], now: Mapping[_Group, float], seconds: float
) -> dict[_Group, float | None]:
    """By how much each rose in a second; a fallen one was reset, a new one has no rise yet."""
    return {
        key: (value - before[key]) / seconds if key in before and value >= before[key] else None
        for key, value in now.items()
    }
