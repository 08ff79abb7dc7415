"""The doctor's checks: each mistake that can be found before a test has a line and a remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from mirrortest.config.client_config import ClientConfig
from mirrortest.config.run_naming import TopicMapping
from mirrortest.doctor.check import Check, DoctorReport, Level
from mirrortest.doctor.examination import Cluster, destination_checks, names_check, source_checks
from mirrortest.doctor.host import clock_check, disk_check
from mirrortest.doctor.options import DoctorOptions
from mirrortest.doctor.topic_checks import Topic, message_topic_checks
from mirrortest.errors import UsageError
from mirrortest.kafka.ports import Operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

CLIENT = ClientConfig(bootstrap_servers=("dc:9092",))
ALL = frozenset(Operation)
DAY = {"retention.ms": "86400000", "cleanup.policy": "delete"}
TABLE = {"cleanup.policy": "compact"}


def _topic(
    name: str,
    config: Mapping[str, str] | None = DAY,
    *,
    partitions: int = 4,
    records: int = 0,
    operations: frozenset[Operation] | None = ALL,
) -> Topic:
    return Topic(
        name, partitions, records, dict(config) if config is not None else None, operations
    )


def _table(name: str, **changes: Any) -> Topic:
    return _topic(name, TABLE, partitions=1)._replace(**changes)


def _cluster(*topics: Topic, alias: str = "", others: tuple[str, ...] = ()) -> Cluster:
    return Cluster(
        CLIENT,
        frozenset({*(topic.name for topic in topics), *others}),
        {topic.name: topic for topic in topics},
        TopicMapping(source_alias=alias),
    )


def _options(*topics: str, **changes: object) -> DoctorOptions:
    return DoctorOptions(source=CLIENT, destination=CLIENT, topics=topics, **changes)  # type: ignore[arg-type]


LEDGER = _table("mirrortest.ledger")
STATES = _table("mirrortest.state")
COPY_OF_LEDGER = _table("A.mirrortest.ledger")


def _wrong(checks: Iterable[Check]) -> list[Check]:
    return [check for check in checks if check.level is not Level.OK]


def test_a_sound_pair_of_clusters_has_nothing_wrong() -> None:
    """Topics, ledger, copies and states as they must be: every line is OK."""
    source = _cluster(_topic("orders"), LEDGER)
    destination = _cluster(_topic("A.orders"), COPY_OF_LEDGER, STATES, alias="A")
    checks = [
        *source_checks(source, _options("orders")),
        *destination_checks(source, destination, _options("orders")),
    ]
    assert _wrong(checks) == []
    assert len(checks) == 5


@pytest.mark.parametrize(
    ("topics", "level", "found", "action"),
    [
        ((), Level.ERROR, "orders does not exist at dc:9092", "--create-topics"),
        ((_topic("orders", TABLE),), Level.WARNING, "compacted", "cleanup.policy=delete"),
        (
            (_topic("orders", {"retention.ms": "60000"}),),
            Level.WARNING,
            "keeps records for 1 min",
            "raise retention.ms",
        ),
        (
            (_topic("orders", {**DAY, "retention.bytes": "1048576"}),),
            Level.WARNING,
            "keeps records for 1 d, up to 1,048,576 bytes a partition: ",
            "raise retention.bytes",
        ),
        (
            (_topic("orders", {"message.timestamp.type": "LogAppendTime"}),),
            Level.WARNING,
            "orders has message.timestamp.type=LogAppendTime",
            "set message.timestamp.type=CreateTime on orders",
        ),
        (
            (_topic("orders", {"message.timestamp.before.max.ms": "60000"}),),
            Level.WARNING,
            "takes no records older than 1 min",
            "raise it above the longest outage",
        ),
        (
            (_topic("orders", operations=frozenset({Operation.DESCRIBE})),),
            Level.ERROR,
            "this principal may not Write orders",
            "grant Write on topic orders",
        ),
    ],
    ids=["missing", "compacted", "short", "small", "stamped", "old", "forbidden"],
)
def test_a_source_topic_that_does_not_fit(
    topics: tuple[Topic, ...], level: Level, found: str, action: str
) -> None:
    """Each mistake has one line that names it, and what to do."""
    (wrong,) = _wrong(source_checks(_cluster(*topics, LEDGER), _options("orders")))
    assert wrong.level is level
    assert found in wrong.found
    assert action in wrong.action


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ({}, "for ever"),
        ({"retention.ms": "-1", "retention.bytes": "-1"}, "for ever"),
        ({"retention.ms": "-1", "retention.bytes": "1073741824"}, "up to 1,073,741,824 bytes"),
        ({**DAY, "retention.bytes": "1073741824"}, "for 1 d, up to 1,073,741,824 bytes"),
    ],
)
def test_a_topics_line_has_its_retention_by_time_and_by_size(
    limits: dict[str, str], kept: str
) -> None:
    """A topic that keeps 1 MiB was said to keep records for ever."""
    (check,) = message_topic_checks("copy", _topic("orders", limits))
    assert check.level is Level.OK
    assert f"keeps records {kept}" in check.found


def test_a_topic_that_is_compacted_and_deleted_has_both_lines() -> None:
    """Its short retention matters, too; one that is only compacted has no retention."""
    short = {"retention.ms": "60000", "cleanup.policy": "compact,delete"}
    found = [check.found for check in message_topic_checks("copy", _topic("orders", short))]
    assert ["compacted" in found[0], "for 1 min" in found[1]] == [True, True]
    (only,) = message_topic_checks("copy", _topic("orders", {**short, **TABLE}))
    assert "compacted" in only.found


def test_a_topic_that_produce_creates_may_be_missing() -> None:
    """With --create-topics a missing topic is no mistake."""
    checks = source_checks(_cluster(LEDGER), _options("orders", creates_topics=True))
    assert _wrong(checks) == []


@pytest.mark.parametrize(
    ("ledger", "found"),
    [
        (_table("mirrortest.ledger", partitions=3), "has 3 partitions and must have one"),
        (_table("mirrortest.ledger", config=DAY), "cleanup.policy=delete"),
        (
            _table("mirrortest.ledger", operations=frozenset({Operation.READ})),
            "may not Write mirrortest.ledger",
        ),
    ],
    ids=["partitions", "deleted", "forbidden"],
)
def test_a_ledger_that_would_not_hold(ledger: Topic, found: str) -> None:
    """A ledger that could lose records, or cannot be written, is an error."""
    (wrong,) = _wrong(source_checks(_cluster(_topic("orders"), ledger), _options("orders")))
    assert wrong.level is Level.ERROR
    assert found in wrong.found


@pytest.mark.parametrize(
    ("copy", "others", "level", "found", "action"),
    [
        (None, ("B.orders",), Level.WARNING, "A.orders does not exist", "--source-alias B"),
        (None, ("A-orders",), Level.WARNING, "A.orders does not exist", "--separator -"),
        (None, ("orders",), Level.WARNING, "A.orders does not exist", "--source-alias ''"),
        (None, (), Level.WARNING, "A.orders does not exist", "See that the mirror copies orders"),
        (
            _topic("A.orders", records=7, partitions=6),
            (),
            Level.WARNING,
            "A.orders has 6 partitions, orders has 4",
            "--destination-partitions 6",
        ),
        (
            _topic("A.orders", {**DAY, "max.message.bytes": "1000"}, records=7),
            (),
            Level.WARNING,
            "takes messages of 1,000 bytes at most",
            "raise max.message.bytes",
        ),
        (_topic("A.orders"), (), Level.WARNING, "A.orders is empty", "see that the mirror runs"),
        (
            _topic("A.orders", records=7, operations=frozenset({Operation.READ})),
            (),
            Level.WARNING,
            "may not DescribeConfigs A.orders",
            "grant DescribeConfigs",
        ),
        (
            _topic("A.orders", records=7, operations=frozenset({Operation.DESCRIBE_CONFIGS})),
            (),
            Level.ERROR,
            "may not Read A.orders",
            "grant Read",
        ),
    ],
    ids=["alias", "separator", "same", "none", "count", "bytes", "empty", "configs", "forbidden"],
)
def test_a_copy_that_does_not_fit(
    copy: Topic | None, others: tuple[str, ...], level: Level, found: str, action: str
) -> None:
    """Each mistake has one line; if another name was meant, with its option."""
    source = _cluster(_topic("orders", records=7), LEDGER)
    there = [COPY_OF_LEDGER, STATES] + ([copy] if copy is not None else [])
    destination = _cluster(*there, alias="A", others=others)
    (wrong,) = _wrong(destination_checks(source, destination, _options("orders")))
    assert wrong.level is level
    assert found in wrong.found
    assert action in wrong.action


@pytest.mark.parametrize("known", ["orders", "A.orders"])
def test_limits_of_messages_are_compared_only_where_both_are_known(known: str) -> None:
    """Without DescribeConfigs, Kafka's default was taken for the topic's own limit."""
    limits = {"orders": {"max.message.bytes": "5000000"}, "A.orders": {"max.message.bytes": "1000"}}
    original, copy = (
        _topic(name, config if name == known else None, records=7)
        for name, config in limits.items()
    )
    source = _cluster(original, LEDGER)
    destination = _cluster(copy, COPY_OF_LEDGER, STATES, alias="A")
    assert not _wrong(destination_checks(source, destination, _options("orders")))


def test_a_topic_that_is_not_listed_may_be_hidden() -> None:
    """Brokers list no topic that a principal may not describe: to create it would not help."""
    nothing = _cluster(alias="A")
    checks = [
        *source_checks(nothing, _options("orders")),
        *destination_checks(nothing, nothing, _options("orders")),
    ]
    assert len(checks) == 5
    for check in checks:
        assert "or this principal may not Describe it" in check.found
    assert "grant Describe on topic orders" in checks[0].action


def test_all_that_is_wrong_with_a_copy_is_reported() -> None:
    """Once, a different number of partitions hid everything else."""
    source = _cluster(_topic("orders", records=7), LEDGER)
    config = {
        "retention.ms": "60000", "cleanup.policy": "compact,delete", "max.message.bytes": "1000"
    }  # fmt: skip
    copy = _topic("A.orders", config, partitions=6)
    destination = _cluster(copy, COPY_OF_LEDGER, STATES, alias="A")
    found = [
        check.found for check in _wrong(destination_checks(source, destination, _options("orders")))
    ]
    expected = ["has 6 partitions", "1,000 bytes at most", "is empty", "compacted", "for 1 min"]
    assert [text in line for text, line in zip(expected, found, strict=True)] == [True] * 5


@pytest.mark.parametrize(
    ("original", "copy", "level"),
    [
        (LEDGER._replace(records=3), None, Level.ERROR),
        (None, None, Level.WARNING),
        (LEDGER._replace(records=3), COPY_OF_LEDGER, Level.ERROR),
        (LEDGER._replace(records=3), COPY_OF_LEDGER._replace(records=2), Level.OK),
        (None, COPY_OF_LEDGER._replace(partitions=3), Level.ERROR),
        (None, COPY_OF_LEDGER._replace(config=DAY), Level.WARNING),
        (None, COPY_OF_LEDGER._replace(config={**DAY, "retention.ms": "-1"}), Level.OK),
        (None, COPY_OF_LEDGER._replace(config=None), Level.OK),
    ],
    ids=[
        "left out",
        "no ledger yet",
        "empty",
        "there",
        "several partitions",
        "deleted by age",
        "kept for ever",
        "unknown",
    ],
)
def test_the_ledger_must_ride_the_mirror(
    original: Topic | None, copy: Topic | None, level: Level
) -> None:
    """The doctor finds a copy that is left out, or loses records, before a consumer misses them."""
    source = _cluster(*([original] if original is not None else []))
    destination = _cluster(STATES, *([copy] if copy is not None else []), alias="A")
    checks = list(destination_checks(source, destination, _options()))
    assert [check.level for check in checks if check.subject == "ledger's copy"] == [level]
    at_source = _options(reads_ledger_at_source=True)
    assert not _wrong(destination_checks(source, destination, at_source))


@pytest.mark.parametrize(
    ("operations", "wrong"),
    [
        ({Operation.READ, Operation.DESCRIBE}, []),
        ({Operation.DESCRIBE}, ["this principal may not Read mirrortest.ledger"]),
    ],
)
def test_a_consumer_that_reads_the_ledger_in_the_source_needs_nothing_else_there(
    operations: set[Operation], wrong: list[str]
) -> None:
    """Neither to write to the ledger, nor the topics."""
    source = _cluster(LEDGER._replace(operations=frozenset(operations)))
    checks = source_checks(source, _options("orders", reads_ledger_at_source=True))
    assert [check.found for check in _wrong(checks)] == wrong


@pytest.mark.parametrize(
    ("names", "found", "level"),
    [
        ({"A.orders", "A.mirrortest.ledger"}, "the copy of orders is A.orders", Level.OK),
        ({"A.mirrortest.ledger"}, "the copy of orders is A.orders (found by the", Level.OK),
        ({"orders", "A.mirrortest.ledger"}, "the copy of orders is orders (no pre", Level.OK),
        ({"orders", "mirrortest.ledger"}, "the copy of orders is orders", Level.OK),
        (
            {"A.mirrortest.ledger", "B.mirrortest.ledger"},
            "from several sources",
            Level.ERROR,
        ),
    ],
    ids=["prefix", "not copied yet", "another mirror's", "same names", "several"],
)
def test_the_mirrors_names_are_found(names: set[str], found: str, level: Level) -> None:
    """By the ledger's copy, as a consumer finds them; several sources are an error."""
    topics = ("orders",) if "several" not in found else ()
    _, check = names_check(_options(*topics), frozenset(names))
    assert check.level is level
    assert found in check.found


def test_an_unused_topic_map_is_told() -> None:
    """A mapping of a topic that does not exist is most likely a spelling mistake."""
    mapping = TopicMapping.parse(topic_map=("ordres=orders",))
    _, check = names_check(_options("orders", mapping=mapping), frozenset({"orders", "__x"}))
    assert check.level is Level.WARNING
    assert "ordres" in check.found
    assert check.action.endswith("the destination's topics: orders")


def test_a_clock_without_a_bound_is_a_warning() -> None:
    """Latencies between machines then have no error bar."""
    assert clock_check(None).level is Level.WARNING
    assert clock_check(500_000_000).level is Level.WARNING
    assert clock_check(2_000_000).level is Level.OK


def test_a_log_directory_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    """A file in its place is found before any broker is asked."""
    file = tmp_path / "logs"
    file.touch()
    assert disk_check(file).level is Level.ERROR
    assert disk_check(tmp_path / "new" / "logs").level is not Level.ERROR


def test_the_exit_code_is_that_of_the_worst_check() -> None:
    """Warnings do not fail a pipeline; errors do."""
    ok, warning = Check(Level.OK, "a", "fine"), Check(Level.WARNING, "b", "[red]odd[/]", "look")
    assert DoctorReport([ok, warning]).exit_code == 0
    report = DoctorReport([ok, Check(Level.ERROR, "c", "bad", "mend it")])
    assert report.exit_code == 1
    assert report.to_json()["checks"] == [
        {"level": "ok", "subject": "a", "found": "fine", "action": ""},
        {"level": "error", "subject": "c", "found": "bad", "action": "mend it"},
    ]


def test_nothing_to_check_is_a_mistake() -> None:
    """Without any brokers, the error names the options."""
    with pytest.raises(UsageError, match="--source-bootstrap-server"):
        DoctorOptions()


def test_a_long_path_is_folded_and_not_cut() -> None:
    """It can be copied from a narrow terminal, too."""
    path = f"/opt/{'deep' * 30}/bin/java"
    console = Console(width=60)
    with console.capture() as captured:
        console.print(DoctorReport([Check(Level.OK, "Java", f"Java 25: {path}")]).table())
    assert path in "".join(captured.get().split())
