"""The figures of brokers and of MirrorMaker 2, from two scrapes of an endpoint."""

from __future__ import annotations

from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from mirrortest.model.observed import BROKER, MIRROR, PARTITION, REQUEST, STAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mirrortest.model.observed import Observed
    from mirrortest.observe.scraped_metrics import Series

_MS = 1e-3


class How(Enum):
    """How series are reduced to a figure."""

    RATE = "the sum of their rises, each second"
    SUM = "their sum"
    MAX = "the highest"
    MEAN = "the mean of what was measured between the scrapes, of milliseconds"
    P99 = "the highest 99th percentile, of milliseconds"
    MAX_MS = "the highest, of milliseconds"


class Source(NamedTuple):
    """The series of a figure: those of the first of `keys` that the endpoint has."""

    how: How
    keys: tuple[str, ...]
    only: Mapping[str, str]
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
        # Strimzi's ..._percent is the mean since the broker's start.
        How.MAX,
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
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
_REQUESTS = "kafka_network_requestmetrics_"


def _bean(stage: str) -> str:
    return f"{'responsesend' if stage == 'send' else stage.replace('_', '')}timems"


_REQUEST = {
    "requests_per_second": _of(How.RATE, _REQUESTS + "requests"),
    "total_p99_seconds": _of(How.P99, _REQUESTS + "totaltimems"),
    "total_seconds": _of(How.MEAN, _REQUESTS + "totaltimems"),
    **{f"{each.name}_seconds": _of(How.MEAN, _REQUESTS + _bean(each.name)) for each in STAGES},
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
_Counts = dict[tuple[tuple[str, str], ...], float]
_Raw = float | tuple[float, float] | _Counts
"""A figure's value in one scrape.

For a mean, the number of measurements and their sum; for a rate, each counter by its labels.
"""
Reading = dict["Observed", dict[_Group, dict[str, _Raw]]]
"""The values of all figures in one scrape, by table, subject and name."""


def keys(*, by_partition: bool) -> frozenset[str]:
    """The keys of the series from which the figures are computed."""
    tables = _tables(by_partition=by_partition)
    return frozenset(key for _, of, _ in tables for source in of.values() for key in source.keys)


def read(series: Iterable[Series], *, by_partition: bool) -> Reading:
    """Reduce the series of one scrape to the values of the figures."""
    found: _ByKey = defaultdict(list)
    for each in series:
        found[each.key, each.attribute].append(each)
    reading: Reading = {}
    for table, sources, group in _tables(by_partition=by_partition):
        of_table = reading[table] = defaultdict(dict)
        for name, source in sources.items():
            for key, value in _raw(source, found, group).items():
                of_table[key][name] = value
    return reading


def rows(
    endpoint: str, before: Reading, now: Reading, seconds: float
) -> dict[Observed, list[dict[str, object]]]:
    """The rows of an endpoint by table, without times, from two scrapes `seconds` apart."""
    found: dict[Observed, list[dict[str, object]]] = {}
    for table, groups in now.items():
        names = [each.name for each in table.keys]
        found[table] = []
        for key, raw in sorted(groups.items()):
            earlier = before[table].get(key, {})
            row: dict[str, object] = {
                name: _figure(_SOURCES[table][name].how, earlier.get(name), value, seconds)
                for name, value in raw.items()
            }
            if any(value is not None for value in row.values()):
                found[table].append({**dict(zip(names, (endpoint, *key), strict=True)), **row})
    return found


_ByKey = dict[tuple[str, str], list["Series"]]
_Grouping: TypeAlias = "Callable[[Mapping[str, str]], _Group | None]"
_SOURCES = {BROKER: _BROKER, REQUEST: _REQUEST, MIRROR: _MIRROR, PARTITION: _PARTITIONS}


def _request(labels: Mapping[str, str]) -> _Group | None:
    kind = labels.get("request", "")
    return (kind,) if kind in _KINDS else None


def _partition(labels: Mapping[str, str]) -> _Group | None:
    topic, number = labels.get("topic"), labels.get("partition")
    return None if topic is None or number is None else (topic, number)


def _topic(labels: Mapping[str, str]) -> _Group | None:
    found = _partition(labels)
    return found if found is None else (found[0], "")


def _broker(_: Mapping[str, str]) -> _Group:
    return ()


def _tables(*, by_partition: bool) -> list[tuple[Observed, dict[str, Source], _Grouping]]:
    """An endpoint's tables, with their sources and the function that groups series by subject."""
    grouping: dict[Observed, _Grouping] = {BROKER: _broker, REQUEST: _request}
    grouping[MIRROR] = _partition if by_partition else _topic
    if by_partition:
        grouping[PARTITION] = _partition
    return [(table, _SOURCES[table], group) for table, group in grouping.items()]


def _raw(source: Source, scrape: _ByKey, group: _Grouping) -> dict[_Group, _Raw]:
    """A figure's value for each group."""

    def of(*attributes: str) -> dict[_Group, list[Series]]:
        for key in source.keys:
            for attribute in attributes:
                if (series := scrape.get((key, attribute))) and (
                    found := _grouped(series, source.only, group)
                ):
                    return found
        return {}

    def each(reduce: Callable[[Iterable[float]], float], *attributes: str) -> dict[_Group, _Raw]:
        return {key: reduce(one.value for one in found) for key, found in of(*attributes).items()}

    match source.how:
        case How.RATE:
            return {
                key: {tuple(one.labels.items()): one.value for one in found}
                for key, found in of("count", "value").items()
            }
        case How.MEAN:
            # The broker's mean is over all measurements since its start.
            means, counts = of("mean"), of("count")
            return {
                key: (count[0].value, mean[0].value * count[0].value)
                for key, count in counts.items()
                if len(mean := means.get(key, [])) == len(count) == 1
            }
        case How.SUM:
            return each(sum, "value")
        case How.P99:
            return each(max, "p99")
        case How.MAX:
            return each(max, "value", "rate")
    return each(max, "value")


def _figure(how: How, before: _Raw | None, now: _Raw, seconds: float) -> float | None:
    """A figure of an interval; None if a counter fell, if all are new, or nothing was measured."""
    if isinstance(now, tuple):
        if not isinstance(before, tuple):
            return None
        count, total = (after - earlier for earlier, after in zip(before, now, strict=True))
        # Kafka sums integer milliseconds; smaller digits are rounding errors of the mean.
        total = round(total, 3)
        return total * _MS / count if count > 0 and total >= 0 else None
    if isinstance(now, dict):
        if not isinstance(before, dict):
            return None
        rises = [value - before.get(labels, 0.0) for labels, value in now.items()]
        return None if min(rises) < 0 else sum(rises) / seconds
    return now * _MS if how in {How.P99, How.MAX_MS} else now


def _grouped(
    series: Iterable[Series],
    only: Mapping[str, str],
    group: Callable[[Mapping[str, str]], _Group | None],
) -> dict[_Group, list[Series]]:
    found: dict[_Group, list[Series]] = defaultdict(list)
    for each in series:
        key = group(each.labels)
        if key is not None and (not only or only.items() <= each.labels.items()):
            found[key].append(each)
    # For the broker itself, the series of all topics together, if there is one.
    if () in found and (all_topics := [each for each in found[()] if "topic" not in each.labels]):
        found[()] = all_topics
    return found
