"""The checks of both clusters and of the mirror between them, in the order of the report."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.config.run_naming import TopicMapping, alias_options, prefixes_of
from mirrortest.config.units import format_duration, number
from mirrortest.doctor.check import Check, DoctorReport, Level
from mirrortest.doctor.host import host_checks
from mirrortest.doctor.topic_checks import (
    described,
    ledger_copy_check,
    message_topic_checks,
    permission_checks,
    table_topic_check,
    timestamp_checks,
)
from mirrortest.errors import ClusterError
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.error_table import addresses
from mirrortest.kafka.ports import Operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.doctor.options import DoctorOptions
    from mirrortest.doctor.topic_checks import Topic

_REFRESH = (
    "MirrorMaker 2 creates copies when it next refreshes its topics "
    "(refresh.topics.interval.seconds, 10 minutes by default)"
)

_OR_HIDDEN = "or this principal may not Describe it"
"""Brokers list only topics that a principal may describe."""


class Cluster(NamedTuple):
    """One cluster as it was found.

    Attributes:
        names: the names of all topics that our principal can see.
        topics: the topics of the test that exist.
    """

    client: ClientConfig
    names: frozenset[str]
    topics: dict[str, Topic]
    mapping: TopicMapping


async def examine(options: DoctorOptions) -> DoctorReport:
    """Check both clusters in parallel, then this machine. A cluster's error becomes a check."""
    (source, of_source), (destination, of_destination) = await asyncio.gather(
        _examined("source", options.source, options),
        _examined("destination", options.destination, options),
    )
    checks = of_source
    if source is not None:
        checks += source_checks(source, options)
    checks += of_destination
    if destination is not None:
        checks += destination_checks(source, destination, options)
    checks += host_checks(options.log_dir, options.log_spool)
    return DoctorReport(checks)


async def _examined(
    side: str, client: ClientConfig | None, options: DoctorOptions
) -> tuple[Cluster | None, list[Check]]:
    if client is None:
        return None, []
    began = time.monotonic_ns()
    try:
        async with Admin(client) as admin:
            brokers = await admin.broker_count()
            took = format_duration(time.monotonic_ns() - began)
            names = frozenset(await admin.matching(".*"))
            mapping, checks = TopicMapping(), []
            if side == "destination":
                mapping, named = names_check(options, names)
                checks.append(named)
            wanted = (*options.topics, options.ledger_topic)
            there = {*map(mapping.destination_of, wanted)}
            there |= set() if side == "source" else {options.state_topic}
            topics = await described(admin, there & names)
    except ClusterError as error:
        why, _, action = str(error).partition("; ")
        action = action or "see that brokers run there, and that no firewall is between"
        return None, [Check(Level.ERROR, side, why, action)]
    found = f"{number(brokers, 'broker')} at {addresses(client)}, connected in {took}"
    return (
        Cluster(client, names, topics, mapping),
        [Check(Level.OK, side, found), *checks],
    )


def names_check(options: DoctorOptions, names: frozenset[str]) -> tuple[TopicMapping, Check]:
    """How the mirror names its copies: as given, or as the destination's topics show."""
    subject, ledger = "mirror's names", options.ledger_topic
    mapping, how = options.mapping, "as given"
    if mapping is None:
        prefixes = prefixes_of(ledger, names)
        wanted = options.topics or (ledger,)
        fitting = [
            (alias, separator)
            for alias, separator in prefixes
            if names.intersection(alias + separator + topic for topic in wanted)
        ]
        if not fitting and not names.intersection(wanted):
            fitting = prefixes  # the topics are not copied yet
        if len(fitting) > 1 and ledger not in names:
            choices = " or ".join(alias_options(*each) for each in fitting)
            found = f"the cluster has copies of {ledger} from several sources"
            action = f"choose the source with {choices}"
            return TopicMapping(), Check(Level.ERROR, subject, found, action)
        mapping, how = TopicMapping(), "no prefix found"
        if fitting and ledger not in names:
            alias, separator = fitting[0]
            mapping = TopicMapping(source_alias=alias, separator=separator)
            how = "found by the ledger's copy"
    if unused := mapping.explicit.keys() - names:
        return mapping, Check(
            Level.WARNING,
            subject,
            f"--topic-map names {', '.join(sorted(unused))}, which the destination does not have",
            f"correct it; the destination's topics: {_some(names)}",
        )
    example = (options.topics or (ledger,))[0]
    shown = mapping.destination_of(example)
    return mapping, Check(Level.OK, subject, f"the copy of {example} is {shown} ({how})")


def source_checks(source: Cluster, options: DoctorOptions) -> Iterator[Check]:
    """Check the topics that producers write, and the ledger."""
    if options.reads_ledger_at_source:
        yield from _own_topic_checks(
            "ledger", source, options.ledger_topic, "producer", (Operation.READ,)
        )
        return
    for name in options.topics:
        topic = source.topics.get(name)
        if topic is None and options.creates_topics:
            found = f"{name} does not exist yet, {_OR_HIDDEN}: it is created"
            yield Check(Level.OK, "source topic", found)
            continue
        if topic is None:
            yield Check(
                Level.ERROR,
                "source topic",
                f"{name} does not exist at {addresses(source.client)}, {_OR_HIDDEN}",
                "create it, or let `mirrortest produce --create-topics` do so; if it exists, grant "
                f"Describe on topic {name}",
            )
            continue
        yield from message_topic_checks("source topic", topic)
        yield from timestamp_checks("source topic", topic)
        yield from permission_checks("source topic", topic, (Operation.WRITE, Operation.DESCRIBE))
    yield from _own_topic_checks("ledger", source, options.ledger_topic, "producer")


def destination_checks(
    source: Cluster | None, destination: Cluster, options: DoctorOptions
) -> Iterator[Check]:
    """Check the copies (also against the source), the ledger's copy, and the states' topic."""
    at = addresses(destination.client)
    for name in options.topics:
        copy = destination.topics.get(destination.mapping.destination_of(name))
        original = source.topics.get(name) if source is not None else None
        if copy is None:
            yield _missing_copy(name, destination, at)
            continue
        if original is not None:
            yield from _compared(original, copy)
        yield from message_topic_checks("copy", copy)
        yield from timestamp_checks("copy", copy)
        yield from permission_checks("copy", copy, (Operation.READ,), (Operation.DESCRIBE_CONFIGS,))
    if not options.reads_ledger_at_source:
        yield from _ledger_copy_checks(source, destination, options, at)
    yield from _own_topic_checks("states", destination, options.state_topic, "consumer")


def _own_topic_checks(
    subject: str,
    cluster: Cluster,
    name: str,
    creator: str,
    needed: tuple[Operation, ...] = (Operation.READ, Operation.WRITE),
) -> Iterator[Check]:
    """Check a topic of mirrortest's own, which the first process that needs it creates."""
    topic = cluster.topics.get(name)
    if topic is None:
        found = (
            f"{name} does not exist yet, {_OR_HIDDEN}: the first {creator} creates it, if it may"
        )
        yield Check(Level.OK, subject, found)
        return
    yield table_topic_check(subject, topic)
    yield from permission_checks(subject, topic, needed)


def _missing_copy(name: str, destination: Cluster, at: str) -> Check:
    wanted = destination.mapping.destination_of(name)
    others = sorted(alias_options(*each) for each in prefixes_of(name, destination.names))
    if name in destination.names:
        others.append("--source-alias ''")
    hint = f"did you mean {' or '.join(others)}? Otherwise s" if others else "S"
    return Check(
        Level.WARNING,
        "copy",
        f"{wanted} does not exist at {at}, {_OR_HIDDEN}",
        f"{hint}ee that the mirror copies {name}; {_REFRESH}",
    )


def _compared(original: Topic, copy: Topic) -> Iterator[Check]:
    """What is wrong with a copy compared with its original."""
    if original.partitions != copy.partitions:
        yield Check(
            Level.WARNING,
            "copy",
            f"{copy.name} has {copy.partitions} partitions, {original.name} has "
            f"{original.partitions}",
            f"give --destination-partitions {copy.partitions} to produce, and to consume "
            "--expect-partition as the mirror chooses partitions",
        )
    taken, sent = copy.most_bytes, original.most_bytes
    if taken is not None and sent is not None and taken < sent:
        yield Check(
            Level.WARNING,
            "copy",
            f"{copy.name} takes messages of {taken:,} bytes at most, {original.name} of {sent:,}: "
            "the mirror stops at, or drops, larger ones",
            f"raise max.message.bytes of {copy.name}, or produce smaller messages",
        )
    if original.records and not copy.records:
        yield Check(
            Level.WARNING,
            "copy",
            f"{copy.name} is empty, {original.name} has {number(original.records, 'record')}",
            "see that the mirror runs, and from which offset on it copies",
        )


def _ledger_copy_checks(
    source: Cluster | None, destination: Cluster, options: DoctorOptions, at: str
) -> Iterator[Check]:
    ledger = options.ledger_topic
    copy = destination.topics.get(destination.mapping.destination_of(ledger))
    original = source.topics.get(ledger) if source is not None else None
    action = (
        f"add {ledger} to the mirror's topics, or give `mirrortest consume` "
        "--ledger-bootstrap-server with the source's brokers"
    )
    if copy is None:
        wanted = destination.mapping.destination_of(ledger)
        new = source is not None and original is None
        yield Check(
            Level.WARNING if new else Level.ERROR,
            "ledger's copy",
            f"{wanted} does not exist at {at}, {_OR_HIDDEN}: consumers cannot read what was "
            "acknowledged",
            f"{action}; {_REFRESH}",
        )
        return
    if original is not None and original.records and not copy.records:
        yield Check(
            Level.ERROR,
            "ledger's copy",
            f"{copy.name} is empty, {ledger} has {number(original.records, 'record')}",
            f"see that the mirror runs, and copies from the first offset on; or {action}",
        )
        return
    yield ledger_copy_check("ledger's copy", copy)
    yield from permission_checks("ledger's copy", copy, (Operation.READ,))


def _some(names: frozenset[str]) -> str:
    """A few topics' names, without the brokers' own topics."""
    shown = sorted(name for name in names if not name.startswith("__"))
    return ", ".join(shown[:10]) + (f" and {len(shown) - 10} more" if len(shown) > 10 else "")
