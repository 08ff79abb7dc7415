"""Trogdor's specifications as workloads: its own examples, and fields without a counterpart."""

from __future__ import annotations

import json
import sys
import tomllib
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirrortest.cli import main
from mirrortest.config.option_file import value_of
from mirrortest.errors import UsageError
from mirrortest.produce.trogdor import Imported, import_trogdor
from mirrortest.produce.workload import WholeWorkload

if TYPE_CHECKING:
    from pathlib import Path

NOW_NS = 1_700_000_000_000_000_000
PACKAGE = "org.apache.kafka.trogdor.workload."
TOPICS = {"foo[1-3]": {"numPartitions": 10, "replicationFactor": 1}}
PRODUCE_BENCH = {
    "class": f"{PACKAGE}ProduceBenchSpec",
    "durationMs": 10000000,
    "producerNode": "node0",
    "bootstrapServers": "localhost:9092",
    "targetMessagesPerSec": 10000,
    "maxMessages": 50000,
    "activeTopics": TOPICS,
    "inactiveTopics": {"foo[4-5]": {"numPartitions": 10, "replicationFactor": 1}},
}
CONFIGURABLE = {
    "class": f"{PACKAGE}ConfigurableProducerSpec",
    "startMs": 1606949497662,
    "durationMs": 3600000,
    "producerNode": "trogdor-agent-0",
    "bootstrapServers": "some.example.kafka.server:9091",
    "flushGenerator": {
        "type": "gaussian",
        "messagesPerFlushAverage": 16,
        "messagesPerFlushDeviation": 4,
    },
    "throughputGenerator": {
        "type": "gaussian",
        "messagesPerSecondAverage": 500,
        "messagesPerSecondDeviation": 50,
        "windowsUntilRateChange": 100,
        "windowSizeMs": 100,
    },
    "keyGenerator": {"type": "constant", "size": 8},
    "valueGenerator": {
        "type": "gaussianTimestampRandom",
        "messageSizeAverage": 512,
        "messageSizeDeviation": 100,
        "messagesUntilSizeChange": 100,
    },
    "producerConf": {"acks": "all"},
    "commonClientConf": {},
    "adminClientConf": {},
    "activeTopic": {
        "topic0": {
            "numPartitions": 100,
            "replicationFactor": 3,
            "configs": {"retention.ms": "1800000"},
        }
    },
    "activePartition": 5,
}
ROUND_TRIP = {
    "class": f"{PACKAGE}RoundTripWorkloadSpec",
    "durationMs": 10000000,
    "clientNode": "node0",
    "bootstrapServers": "localhost:9092",
    "targetMessagesPerSec": 1000,
    "maxMessages": 100,
    "activeTopics": {"round_trip_topic[0-1]": {"numPartitions": 2, "replicationFactor": 1}},
}
CONSUME_BENCH = {
    "class": f"{PACKAGE}ConsumeBenchSpec",
    "durationMs": 10000000,
    "consumerNode": "node0",
    "bootstrapServers": "localhost:9092",
    "targetMessagesPerSec": 1000,
    "threadsPerWorker": 5,
    "consumerGroup": "cg",
    "maxMessages": 10000,
    "activeTopics": ["foo[1-3]"],
}


def read(spec: Any, **changes: Any) -> Imported:
    found = import_trogdor(json.dumps(spec | changes), where="S", now_ns=NOW_NS)
    value_of(found.document, WholeWorkload, "S")
    return found


def remarked(found: Imported) -> set[str]:
    return {each.partition(":")[0] for each in found.remarks}


def test_a_produce_bench_shares_its_rate_among_its_topics() -> None:
    """Trogdor's rate and number of messages are for all topics, mirrortest's for each topic."""
    found = read(PRODUCE_BENCH)
    rate = found.document.pop("throughput")
    assert rate == pytest.approx(10000 / 3)
    assert found.document == {
        "topics": "foo[1-3]",
        "create-topics": True,
        "partitions": 10,
        "replication-factor": 1,
        "num-records": 16667,
        "message-size": 512,
        "payload-compressibility": 1.0,
        "duration": "10000s",
    }
    assert remarked(found) == {
        "bootstrapServers", "producerNode", "inactiveTopics", "maxMessages"
    }  # fmt: skip
    assert "maxMessages: 50,001, so that all topics get as many" in found.remarks


def test_a_configurable_producer_is_read_whole() -> None:
    """Shapes, exact batches, one partition and the topic's settings, but not the key."""
    found = read(CONFIGURABLE)
    assert found.document == {
        "topics": "topic0",
        "create-topics": True,
        "partitions": 100,
        "replication-factor": 3,
        "topic-config": ["retention.ms=1800000"],
        "batch-messages": "gaussian(16, 4)",
        "throughput": "gaussian(500, 50, every=10s)",
        "message-size": "gaussian(512, 100, every=100)",
        "only-partition": 5,
        "acks": "all",
        "duration": "1h",
    }
    assert remarked(found) == {"bootstrapServers", "producerNode", "keyGenerator", "startMs"}
    assert read(CONFIGURABLE, startMs=1800000000000).document["start-at"] == (
        "2027-01-15T08:00:00.000+00:00"
    )
    assert "only-partition" not in read(CONFIGURABLE, activePartition=-1).document


def test_a_round_trip_is_what_is_sent() -> None:
    """The workload is the sending half; a remark names `mirrortest consume` for the other half."""
    found = read(ROUND_TRIP)
    assert found.document["topics"] == "round_trip_topic[0-1]"
    assert (found.document["throughput"], found.document["num-records"]) == (500.0, 50)
    assert (found.document["message-size"], found.document["payload-compressibility"]) == (32, 0.31)
    assert any("mirrortest consume" in each for each in found.remarks)
    assert found.document["form"] == "headers"
    assert any("32 bytes are too few for a message's id" in each for each in found.remarks)


def test_a_consume_bench_is_a_command_of_the_consumer() -> None:
    """Its number of messages is for each thread, the command's for all workers."""
    found = read(CONSUME_BENCH)
    assert found.document == {"topics": "foo[1-3]", "duration": "10000s"}
    command = (
        "mirrortest consume --topics foo[1-3] --num-records 50000 --workers 5 --consumer-group cg"
    )
    assert any(command in each for each in found.remarks)
    assert "targetMessagesPerSec" in remarked(found)


@pytest.mark.parametrize(
    ("generator", "expected"),
    [
        ({"type": "constant", "size": 900}, (900, 1.0)),
        ({"type": "sequential", "size": 900}, (900, 1.0)),
        ({"type": "uniformRandom", "size": 1000, "padding": 300}, (1000, 0.3)),
        ({"type": "timestampRandom", "size": 700, "seed": 4}, (700, None)),
        (
            {
                "type": "randomComponent",
                "components": [
                    {"percent": 90, "component": {"type": "constant", "size": 100}},
                    {"percent": 10, "component": {"type": "timestampRandom", "size": 10000}},
                ],
            },
            ("choice(100:90, 10000:10)", None),
        ),
        ({"type": "null"}, (None, None)),
    ],
)
def test_generators_of_values_are_sizes_and_compressibility(
    generator: Any, expected: tuple[Any, Any]
) -> None:
    """The share that a generator repeats is what codecs compress away."""
    found = read(PRODUCE_BENCH, valueGenerator=generator).document
    assert (found.get("message-size"), found.get("payload-compressibility")) == expected


@pytest.mark.parametrize(
    ("generator", "expected"),
    [
        ({"type": "constant", "messagesPerWindow": 50, "windowSizeMs": 200}, 250.0),
        ({"type": "constant", "messagesPerWindow": 50}, 500.0),
        ({"type": "constant", "messagesPerWindow": 0}, -1),
        (
            {
                "type": "gaussian",
                "messagesPerWindowAverage": 50,
                "messagesPerWindowDeviation": 5,
                "windowsUntilRateChange": 100,
                "windowSizeMs": 100,
            },
            "gaussian(500, 50, every=10s)",
        ),
    ],
)
def test_messages_of_a_window_are_a_rate(generator: Any, expected: Any) -> None:
    """Messages per window become messages per second."""
    assert read(CONFIGURABLE, throughputGenerator=generator).document["throughput"] == expected


def test_client_properties_of_a_load_are_taken_and_no_secret_is_repeated() -> None:
    """Remarks name the properties of connections and of the admin client, without their values.

    Admin client properties that a load could also have were left out without a remark.
    """
    found = read(
        PRODUCE_BENCH,
        commonClientConf={"security.protocol": "SASL_SSL", "sasl.jaas.config": "hush"},
        producerConf={"acks": "-1", "linger.ms": 20, "batch.size": 4096, "compression.type": "lz4"},
        adminClientConf={"retries": "hush", "request.timeout.ms": 5, "batch.size": 1},
    )
    assert (found.document["acks"], found.document["linger-ms"]) == ("all", 20)
    assert found.document["compression"] == "lz4"
    assert found.document["command-property"] == ["batch.size=4096"]
    remarks = {each for each in found.remarks if each.startswith("client property")}
    assert {each.split(":")[0].split()[-1] for each in remarks} == {
        "security.protocol", "sasl.jaas.config", "retries", "request.timeout.ms", "batch.size"
    }  # fmt: skip
    assert "hush" not in str(found)


def test_what_has_no_counterpart_is_told() -> None:
    """Remarks name transactions, chosen brokers, topics that differ, and unknown fields."""
    found = read(
        PRODUCE_BENCH,
        transactionGenerator={"type": "uniform", "messagesPerTransaction": 50},
        activeTopics={
            "a": {"partitionAssignments": {"0": [1, 2], "1": [2, 3]}, "numPartitons": 4},
            "b": {"numPartitions": 3},
        },
        unheardOf=1,
    )
    assert found.document["partitions"] == 2
    text = "\n".join(found.remarks)
    for field in (
        "transactionGenerator: producers send outside of transactions",
        "activeTopics: a: partitionAssignments: brokers are chosen by Kafka",
        "activeTopics: b: all topics are created with the first one's settings",
        "unheardOf: this field is not supported for this class",
        "activeTopics.a.numPartitons: this field is not supported for this class",
    ):
        assert field in text


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"class": f"{PACKAGE}ProduceBenchSpek"}, "did you mean ProduceBenchSpec?"),
        ({"class": "NoOpTaskSpec"}, "no workloads of producers or consumers"),
        ({"maxMessages": "many"}, "S: maxMessages: must be a number"),
        ({"maxMessages": 0}, "S: maxMessages: must be at least 1"),
        ({"activeTopics": {}}, "S: activeTopics: must name at least one topic"),
        ({"activeTopics": {"": {}}}, "S: activeTopics: must name at least one topic"),
        ({"activeTopics": []}, "S: activeTopics: must name at least one topic"),
        ({"activeTopics": 5}, "S: activeTopics: must be an object"),
        ({"valueGenerator": {"type": "lorem"}}, "S: valueGenerator: type 'lorem'"),
    ],
)
def test_a_mistake_is_named(changes: Any, answer: str) -> None:
    """The error names the field."""
    with pytest.raises(UsageError) as error:
        read(PRODUCE_BENCH, **changes)
    assert answer in str(error.value)


RANDOM = {
    "type": "randomComponent",
    "components": [{"percent": 90, "component": {"type": "constant", "size": 100}}],
}
SPECS: list[dict[str, Any]] = [
    PRODUCE_BENCH | {"valueGenerator": {"type": "uniformRandom", "size": 900, "padding": 5}},
    CONFIGURABLE,
    CONFIGURABLE | {"throughputGenerator": {"type": "constant", "messagesPerWindow": 50}},
    ROUND_TRIP | {"valueGenerator": RANDOM},
    CONSUME_BENCH,
]
NUMBERS = st.one_of(
    st.integers(-5, 5),
    st.integers(),
    st.floats(),
    st.sampled_from([10**18, 10**18 + 0.5, 2**63, 10**400, 5e-324]),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=3,
)


def paths(table: Any) -> list[tuple[Any, ...]]:
    """The path of each value in a document."""
    if isinstance(table, dict):
        inner = [(key, *path) for key, value in table.items() for path in paths(value)]
    elif isinstance(table, list):
        inner = [(key, *path) for key, value in enumerate(table) for path in paths(value)]
    else:
        inner = []
    return [(), *inner]


PLACES = [(spec, path) for spec in SPECS for path in paths(spec | {"startMs": 1})]


@given(st.sampled_from(PLACES), VALUES)
@example((PRODUCE_BENCH, ("targetMessagesPerSec",)), float("inf"))
@example((PRODUCE_BENCH, ("targetMessagesPerSec",)), float("nan"))
@example((PRODUCE_BENCH, ("startMs",)), 10**18)
@example((SPECS[3], ("valueGenerator", "components")), 5)
def test_any_value_is_imported_or_refused_in_a_line(
    place: tuple[dict[str, Any], tuple[Any, ...]], value: Any
) -> None:
    """NaN, an infinite or huge number, or a number for a list caused an internal error."""
    document: dict[Any, Any] = {"whole": deepcopy(place[0])}
    at, path = document, ("whole", *place[1])
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    try:
        found = import_trogdor(json.dumps(document["whole"]), where="S", now_ns=NOW_NS)
    except UsageError as error:
        refusal = str(error)
    else:
        refusal = ""
        value_of(found.document, WholeWorkload, "S")
    assert "\n" not in refusal


def test_the_command_writes_a_file_for_produce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The input is a request as Trogdor's scripts post it, with comments; remarks go to stderr."""
    spec, out = tmp_path / "spec.json", tmp_path / "out.toml"
    spec.write_text(
        f"// An example.\n{json.dumps({'id': 'produce_bench_1', 'spec': PRODUCE_BENCH})}"
    )
    for output in ((), ("--output", str(out))):
        arguments = ["mirrortest", "import", "trogdor", str(spec), *output]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as ended:
            main.run()
        assert ended.value.code == 0
        shown = capsys.readouterr()
        assert "not in the workload: inactiveTopics: " in shown.err
        text = out.read_text() if output else shown.out
        assert tomllib.loads(text)["topics"] == "foo[1-3]"


def test_properties_are_written_as_kafka_reads_them() -> None:
    """A number with a fraction of 0 was refused by produce, and null became None."""
    configs = {"retention.ms": None, "segment.ms": 6e5, "unclean.leader.election.enable": True}
    found = read(
        PRODUCE_BENCH,
        activeTopics={"a": {"configs": configs}},
        producerConf={"enable.idempotence": False, "batch.size": 16384.0, "acks": None},
    ).document
    assert found["topic-config"] == ["segment.ms=600000", "unclean.leader.election.enable=true"]
    assert found["command-property"] == ["enable.idempotence=false", "batch.size=16384"]
    assert "acks" not in found
    with pytest.raises(UsageError, match=r"producerConf: acks: must be a text or a number"):
        read(PRODUCE_BENCH, producerConf={"acks": [1]})
