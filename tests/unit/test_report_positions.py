"""Ids with their offsets in the destination, and the commands that show them and repeat the run."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirrortest.config.run_naming import TopicMapping
from mirrortest.consume.options import Shard
from mirrortest.report.html.breakdown import Range
from mirrortest.report.html.commands import repeat_commands, show_commands
from mirrortest.report.html.page import page
from mirrortest.report.html.positions import Position, positions
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Topic
from mirrortest.verify.placement import ExpectPartition
from mirrortest.workers.consumers import split
from tests.made_result import RUN
from tests.short_run import seen, sent, short_run
from tests.unit.consuming import consume_options
from tests.unit.test_commands import check, program  # noqa: F401  # a fixture

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from mirrortest.report.result import Result
    from mirrortest.seqlog.files import SessionFiles


def changed(found: SessionFiles, **update: Any) -> SessionFiles:
    """A log whose session has other values."""
    return replace(found, session=found.session.model_copy(update=update))


def of_role(result: Result, role: Role) -> SessionFiles:
    return next(each for each in result.sessions if each.session.role is role)


def of(lo: int, hi: int, *, lane: int = 0, kind: str = "duplicated") -> Range:
    return Range(kind, "orders", "ann", 1, lane, lo, hi)


@pytest.fixture
def result(tmp_path: Path) -> Result:
    """Seqs 0 to 99 at offsets 0 to 99, then 110 to 199, then 20 to 39 once more."""
    return short_run(
        tmp_path,
        producer=[sent(0, 200, 0.0, 1.99)],
        consumer=[
            seen(0, 100, 0.0, 0.99, 3000),
            seen(110, 200, 1.1, 1.99, 3000, offset=100),
            seen(20, 40, 0.2, 0.39, 3000, offset=190),
        ],
        found=[("lost", 0, 100, 110), ("duplicated", 0, 20, 40)],
    )


def test_what_was_seen_is_at_its_offsets_and_what_is_missing_between_two(result: Result) -> None:
    """Each copy has its own offsets; adjacent rows are one position; bounds are the stream's."""
    twice, missing, across, last, strange = positions(
        result, [of(20, 40), of(100, 110), of(90, 120), of(200, 210), of(0, 5, lane=7)]
    )
    assert twice == [Position(0, 20, 40), Position(0, 190, 210)]
    assert missing == [Position(0, 99, 101, missing=True)]
    assert str(missing[0]) == "after 99, before 100"
    assert across == [Position(0, 90, 110)]
    assert [str(each) for each in last] == ["after 189"]
    assert strange == []


def test_a_stream_between_others_is_one_place_for_each_copy(tmp_path: Path) -> None:
    """Rows of a busy partition are short: each one's seqs continue those of the one before."""
    rows = [seen(at, at + 5, 0.0, 0.1, 3000, offset=3 * at) for at in range(0, 50, 5)]
    again = [seen(at, at + 5, 0.0, 0.1, 3000, offset=1000 + 3 * at) for at in range(0, 50, 5)]
    result = short_run(tmp_path, producer=[sent(0, 50, 0.0, 0.5)], consumer=[*rows, *again])
    (places,) = positions(result, [of(0, 50)])
    assert [str(each) for each in places] == [
        "0 to 139, others between",
        "1000 to 1139, others between",
    ]


def test_offsets_of_a_log_that_was_replaced_are_not_shown(tmp_path: Path) -> None:
    """The commands printed other messages, which have these offsets in the topic's new log."""
    result = short_run(
        tmp_path,
        producer=[sent(0, 300, 0.0, 2.99)],
        consumer=[
            seen(0, 100, 0.0, 0.99, 3000),
            seen(100, 200, 1.0, 1.99, 3000),
            seen(150, 180, 1.5, 1.79, 3000, offset=100)._replace(topic_identity="10"),
            seen(210, 300, 2.1, 2.99, 3000, offset=130)._replace(topic_identity="10"),
        ],
    )
    kept, replaced, copied, missing = positions(
        result, [of(0, 10), of(110, 120), of(150, 160), of(200, 210)]
    )
    assert kept == [Position(0, 0, 10)]
    assert replaced == []
    assert copied == [Position(0, 100, 110)]
    assert [str(each) for each in missing] == ["after 129, before 130"]


def test_the_commands_start_there_and_read_as_many(result: Result) -> None:
    """For missing messages, the ones on both sides; never more than fit on a screen."""
    (place,), (missing,), (many,) = positions(result, [of(0, 5), of(100, 110), of(40, 100)])
    kcat, console = show_commands("dc2:9092", "A.orders", place)
    assert "-t A.orders -p 0 -o 0 -c 5 " in kcat
    assert "--topic A.orders --partition 0 --offset 0 --max-messages 5 " in console
    assert " --timeout-ms " in console  # the topic may have fewer
    assert " -o 99 -c 2 " in show_commands("dc2:9092", "A.orders", missing)[0]
    assert " -c 20 " in show_commands("dc2:9092", "A.orders", many)[0]


def test_the_page_shows_them_with_the_ids(result: Result) -> None:
    """In the order of the ids."""
    shown = page(result)
    texts = [[place.text for place in places] for places in shown["places"]]
    assert texts == [
        ["partition 0, missing after 99, before 100"],
        ["partition 0, 20 to 39", "partition 0, 190 to 209"],
    ]


def test_without_the_logs_there_are_no_offsets(tmp_path: Path) -> None:
    """If the producers' logs are missing, nothing is shown: a guess would be worse."""
    result = short_run(tmp_path, consumer=[seen(0, 100, 0.0, 0.99, 3000)])
    assert positions(result, [of(0, 5)]) == [[]]
    assert page(result)["places"] == []


def test_the_commands_that_repeat_a_run_are_read_by_the_program(
    result: Result,
    program: Any,  # noqa: F811  # the fixture
) -> None:
    """The program accepts their options, which come from the logs."""
    commands = repeat_commands(result)
    assert [shlex.split(each)[1] for each in commands] == ["consume", "produce", "reconcile"]
    for each in commands:
        name, *words = shlex.split(each.replace("NEW-RUN", RUN))
        assert name == "mirrortest"
        check(program, words)


def test_a_log_without_its_topics_gives_a_command_that_names_some(
    result: Result,
    program: Any,  # noqa: F811  # the fixture
) -> None:
    """The topics that it read, or a placeholder; it had the pattern '', which matches nothing."""
    consume, _, _ = repeat_commands(result)
    assert "--topics orders" in consume
    sessions = tuple(changed(found, topics={}) for found in result.sessions)
    commands = repeat_commands(replace(result, sessions=sessions))
    for each in commands[:2]:
        assert "--topics TOPICS" in each
        check(program, shlex.split(each.replace("NEW-RUN", RUN))[1:])


SETTINGS = {
    Role.PRODUCER: {
        "bootstrap servers": "dc1:9092", "client library": "public API only", "ledger": "book",
    },
    Role.CONSUMER: {
        "bootstrap servers": "dc2:9092", "topics": "A.orders", "shard": "1/2",
        "expected producers": "ann,bob", "isolation level": "read_committed",
        "idle timeout": "30 s", "latencies": "with the backlog", "records": "12,000",
        "topic names": "--source-alias A", "state topic": "states",
        "beginning": "from the partitions' ends on", "client library": "public API only",
        "ledger": "book at dc1:9092,dc1b:9092",
    },
}  # fmt: skip
WORKLOAD = {
    "throughput": -1, "num-records": 1000, "duration": "25s", "warmup-records": 100,
    "message-size": "choice(100:0.9, 10kB:0.1)", "start-at": "2026-01-31T08:00:00Z",
    "form": "headers", "create-topics": True, "topic-config": ["a=1", "b=2"],
    "acks": "1", "compression": "zstd", "linger-ms": 7, "command-property": ["batch.size=9"],
}  # fmt: skip


def test_settings_become_options(result: Result, program: Any) -> None:  # noqa: F811
    """Each of them, in the form that the option takes."""
    sessions = []
    for found in result.sessions:
        update: dict[str, Any] = {
            "settings": SETTINGS[found.session.role],
            "deadline_ns": 90 * 10**9,
        }
        if found.session.role is Role.PRODUCER:
            update["workload"] = WORKLOAD
        topics = {
            name: topic.model_copy(update={"destination": f"A.{name}"})
            for name, topic in found.session.topics.items()
        }
        sessions.append(changed(found, **update, topics=topics))
    consume, produce, _ = repeat_commands(replace(result, sessions=tuple(sessions)))
    assert "--topics A.orders --source-alias A --deadline 90s" in consume
    assert "--expect-producers ann,bob" in consume
    assert "--shard 1/2 --state-topic states" in consume
    assert "--ledger-topic book --ledger-bootstrap-server dc1:9092,dc1b:9092" in consume
    assert "--num-records 12000 --from-latest --idle-timeout 30s" in consume
    assert "--include-backlog" in consume
    for each in (consume, produce):
        assert "--portable --ledger-topic book" in each
    assert "--throughput=-1 --num-records 1000 --duration 25s --warmup-records 100" in produce
    assert "--message-size 'choice(100:0.9, 10kB:0.1)' --form headers --create-topics" in produce
    assert "--topic-config a=1 --topic-config b=2 --acks 1 --compression zstd" in produce
    assert "--linger-ms 7 --command-property batch.size=9" in produce
    assert "--start-at" not in produce
    for each in (consume, produce):
        check(program, shlex.split(each.replace("NEW-RUN", RUN))[1:])


@pytest.mark.parametrize(
    ("mapping", "topics"),
    [
        ({"source_alias": "A"}, ("A.orders",)),
        ({"source_alias": "A", "separator": "-"}, ("A-orders",)),
        ({"source_alias": "A", "topic_map": ["clicks=clicks"]}, ("A.orders", "clicks")),
        ({"topic_map": ["renamed=orders"]}, ("renamed",)),
        ({"topic_map": ["A.orders=orders", "c2=clicks"]}, ("A.orders", "c2")),
        ({}, ("A.orders",)),
    ],
)
def test_a_repeated_consumer_judges_the_same_copies(
    result: Result,
    program: Any,  # noqa: F811  # the fixture
    mapping: dict[str, Any],
    topics: tuple[str, ...],
) -> None:
    """Also the ledger has the same name as before."""
    given = TopicMapping.parse(**mapping)
    values = _repeated(result, program, topics=topics, mapping=given)
    assert values["topics"] == topics
    assert values["source_alias"] is not None or values["topic_map"]  # else the alias is looked up
    again = TopicMapping.parse(
        source_alias=values["source_alias"] or "",
        separator=values["separator"],
        topic_map=values["topic_map"] or (),
    )
    assert again == given


@pytest.mark.parametrize("seconds", [0.000001, 1.001, 90.0, 14 * 86400.0, 1234567.891])
def test_a_repeated_consumer_takes_as_long(
    result: Result,
    program: Any,  # noqa: F811  # the fixture
    seconds: float,
) -> None:
    values = _repeated(result, program, duration=seconds, deadline=seconds, idle_timeout=seconds)
    assert [values[each] for each in ("duration", "deadline", "idle_timeout")] == [seconds] * 3


@pytest.mark.parametrize("policy", ExpectPartition)
def test_a_repeated_consumer_expects_the_same_partitions(
    result: Result,
    program: Any,  # noqa: F811  # the fixture
    policy: ExpectPartition,
) -> None:
    assert _repeated(result, program, expect_partition=policy)["expect_partition"] is policy


def test_a_repeated_observer_of_the_source_has_no_options_about_copies(
    result: Result,
    program: Any,  # noqa: F811  # the fixture
) -> None:
    values = _repeated(result, program, role=Role.SOURCE)
    assert values["source_alias"] is None
    assert not values["topic_map"]


@pytest.mark.parametrize("asked", [{}, {"shard": Shard(2, 3)}, {"group": "g"}])
def test_workers_of_a_consumer_are_repeated_as_they_were_asked_for(
    result: Result,
    program: Any,  # noqa: F811  # the fixture
    asked: dict[str, Any],
) -> None:
    """By one command, also if the first worker's log is missing."""
    ends = {"duration": 60.0, "idle_timeout": 5.0, "num_records": 12_000}
    options = consume_options(topics=("orders",), until_complete=False, **ends, **asked)
    found = of_role(result, Role.CONSUMER)
    sessions = tuple(
        changed(found, name=worker.name, settings=worker.settings)
        for worker in split(options, 4)[1:]
    )
    consume, _ = repeat_commands(replace(result, sessions=sessions))
    values = _parsed(program, consume)
    assert (values["name"], values["workers"]) == (options.name, 4)
    assert not values["until_complete"]
    assert {each: values[each] for each in ends} == ends
    assert values["shard"] == (None if options.group else options.shard or Shard(1, 1))
    assert values["group"] == options.group


def _repeated(result: Result, program: Any, **changes: Any) -> dict[str, Any]:  # noqa: F811
    """The values that the program reads in the command that repeats a consumer."""
    options = consume_options(**{"topics": ("orders",)} | changes)
    sources = options.mapping.sources_of(options.topics)
    repeated = changed(
        of_role(result, Role.CONSUMER),
        role=options.role,
        settings=options.settings,
        topics={name: Topic(destination=copy) for copy, name in sources.items()},
        expect_partition=options.expect_partition.value,
        deadline_ns=round(options.deadline * 1e9),
    )
    consume, _ = repeat_commands(replace(result, sessions=(repeated,)))
    return _parsed(program, consume)


def _parsed(program: Any, command: str) -> dict[str, Any]:  # noqa: F811  # the fixture
    _, verb, *words = shlex.split(command.replace("NEW-RUN", RUN))
    values: dict[str, Any] = program.commands[verb].make_context(verb, words).params
    return values


def test_workers_are_repeated_by_one_command(result: Result, program: Any) -> None:  # noqa: F811
    """It has the name that they share, the shape and its seed; other workers add no command."""
    workers = tuple(
        changed(
            of_role(result, Role.PRODUCER),
            settings={"worker": f"{number} of 2"},
            workload={"throughput": "gaussian(500, 50)", "seed": 7},
            name=f"ann.{number}",
        )
        for number in (1, 2)
    )
    produce, _ = repeat_commands(replace(result, sessions=workers))
    assert "--id ann --workers 2" in produce
    assert "--throughput 'gaussian(500, 50)' --seed 7" in produce
    check(program, shlex.split(produce.replace("NEW-RUN", RUN))[1:])
