"""The workload: options and a file are two ways to write it."""

from __future__ import annotations

import json
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.cli import main
from mirrortest.config.client_config import ClientConfig, Compression
from mirrortest.config.option_file import document_of, schema_of, toml_of, value_of
from mirrortest.config.shape import BATCH_FORMS, RATE_FORMS, SIZE_FORMS, parse_shape
from mirrortest.errors import UsageError
from mirrortest.produce.options import PRODUCER_DEFAULTS, ProduceOptions
from mirrortest.produce.workload import StartTime, WholeWorkload
from mirrortest.wire.form import Form

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = "org.apache.kafka.Login required password='hush';"
FILE = """
topics = ["load[1-3]", "more"]
throughput = "ramp(0, 5k, 10m)"
message-size = "64KiB"
duration = "90m"
start-at = 2026-01-31T08:00:00Z
acks = 1
create-topics = true
partitions = 8
topic-config = ["cleanup.policy=delete"]
command-property = ["batch.size=1000"]
"""
SCHEMA = jsonschema.Draft202012Validator(schema_of(WholeWorkload))


def _shapes(forms: Any, *texts: str) -> st.SearchStrategy[Any]:
    return st.sampled_from(texts).map(lambda text: parse_shape(text, forms, option="--x"))


_COUNTS = st.integers(1, 1 << 62)
_DURATIONS = st.integers(1, (1 << 63) - 1)
_TOPICS = st.sampled_from(["orders", "a.b_c-d", "007", "nan", "1e3", "true"])
_START_TIMES = st.builds(
    lambda after: StartTime(f"+{after}ns", after_ns=after), st.integers(0, 10**15)
)
WORKLOADS = st.builds(
    WholeWorkload,
    topics=st.lists(_TOPICS, min_size=1, max_size=4, unique=True).map(tuple),
    throughput=st.one_of(
        st.none(),
        st.floats(1e-6, 1e9),
        _shapes(RATE_FORMS, "steps(1 for 1s, 2)", "replay(a 'b' \"c\" \\ \x7f é)"),
    ),
    seed=st.integers(0, (1 << 63) - 1),
    num_records=st.none() | _COUNTS,
    duration_ns=st.none() | _DURATIONS,
    message_size=st.integers(0, 1 << 20) | _shapes(SIZE_FORMS, "uniform(1, 1kB)", "file(sizes)"),
    payload_compressibility=st.integers(0, 100),
    batch_messages=st.none() | st.integers(1, 10**6) | _shapes(BATCH_FORMS, "gaussian(16, 4)"),
    start_at=st.none() | _START_TIMES,
    form=st.sampled_from(Form),
    destination_partitions=st.none() | st.integers(1, 1000),
    only_partition=st.none() | st.integers(0, 9),
    create_topics=st.booleans(),
    partitions=st.none() | st.integers(1, 1000),
    replication_factor=st.none() | st.integers(1, 9),
    retention_ms=st.none() | st.integers(0, 10**12),
    topic_config=st.none() | st.just(["a=b", "c=d"]),
    acks=st.sampled_from(["all", "1", "0"]),
    compression=st.sampled_from(Compression),
    linger_ms=st.integers(0, 10**6),
    command_property=st.none() | st.just(["batch.size=1", "max.request.size=5"]),
)


@given(WORKLOADS)
@settings(deadline=None)
def test_what_is_written_reads_back(workload: WholeWorkload) -> None:
    """As TOML and as JSON; the schema accepts the document."""
    document = document_of(workload)
    assert value_of(tomllib.loads(toml_of(document)), WholeWorkload, "x") == workload
    assert value_of(json.loads(json.dumps(document)), WholeWorkload, "x") == workload
    SCHEMA.validate(document)


@pytest.fixture
def produce(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[str, str]]:
    def run(text: str, *options: str, environment: str = "") -> tuple[str, str]:
        file = tmp_path / "file"
        file.write_text(text)
        name, _, value = environment.partition("=")
        if name:
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(
            sys, "argv", ["mirrortest", "produce", "--workload", str(file), *options]
        )
        with pytest.raises(SystemExit):
            main.run()
        shown = capsys.readouterr()
        return shown.out, shown.err.replace(str(file), "FILE")

    return run


def test_a_file_gives_the_options_their_values(produce: Callable[..., tuple[str, str]]) -> None:
    """Values have TOML's types; the printed workload is a file with the same meaning."""
    printed, _ = produce(FILE, "--print-workload")
    found = tomllib.loads(printed)
    assert found["topics"] == "load1,load2,load3,more"
    assert (found["throughput"], found["duration"]) == ("ramp(0, 5k, 10m)", "90m")
    assert (found["message-size"], found["acks"], found["partitions"]) == (65536, "1", 8)
    assert found["start-at"] == "2026-01-31T08:00:00+00:00"
    assert found["topic-config"] == ["cleanup.policy=delete"]
    assert found["command-property"] == ["batch.size=1000"]
    assert produce(printed, "--print-workload")[0] == printed
    assert produce(json.dumps(found), "--print-workload")[0] == printed


def test_the_command_line_and_the_environment_beat_the_file(
    produce: Callable[..., tuple[str, str]],
) -> None:
    """A client property on the command line does not hide those in the file."""
    printed, _ = produce(
        FILE,
        *("--print-workload", "--throughput", "500", "--command-property", "max.request.size=9"),
        environment="MIRRORTEST_SEED=4",
    )
    found = tomllib.loads(printed)
    assert (found["throughput"], found["seed"]) == (500, 4)
    assert found["command-property"] == ["batch.size=1000", "max.request.size=9"]
    assert found["message-size"] == 65536


@pytest.mark.parametrize(
    ("options", "environment", "sent"),
    [
        ((), "", ("1", "lz4", 1000)),
        (
            [
                *("--command-property", "acks=all", "--command-property", "linger.ms=50"),
                *("--command-property", "compression.type=zstd"),
            ],
            "",
            ("all", "zstd", 50),
        ),
        (("--acks", "all", "--command-property", "acks=0"), "", ("all", "lz4", 1000)),
        ((), "MIRRORTEST_LINGER_MS=7", ("1", "lz4", 7)),
    ],
)
def test_client_properties_on_the_command_line_beat_what_the_file_sends_with(
    produce: Callable[..., tuple[str, str]],
    options: tuple[str, ...],
    environment: str,
    sent: tuple[str, str, int],
) -> None:
    printed, _ = produce(
        'topics = "t"\nacks = 1\ncompression = "lz4"\nlinger-ms = "1k"',
        *("--print-workload", *options),
        environment=environment,
    )
    found = tomllib.loads(printed)
    assert (found["acks"], found["compression"], found["linger-ms"]) == sent


def test_the_file_of_client_properties_beats_the_file_of_the_workload(
    produce: Callable[..., tuple[str, str]], tmp_path: Path
) -> None:
    client = tmp_path / "client.properties"
    client.write_text("linger.ms=50\nbatch.size=9")
    printed, _ = produce(FILE, "--print-workload", "--command-config", str(client))
    found = tomllib.loads(printed)
    assert (found["acks"], found["linger-ms"]) == ("1", 50)
    assert found["command-property"] == ["batch.size=9"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("thrughput = 5", "--workload FILE: there is no key 'thrughput': did you mean throughput?"),
        ("throughput = 'fast'", "--workload FILE: throughput 'fast': must be a number"),
        ("throughput = true", "--workload FILE: throughput: must be a text or a number"),
        ("throughput = [5]", "--workload FILE: throughput: must be a text or a number"),
        ("create-topics = 1", "--workload FILE: create-topics: must be true or false"),
        ("topics = [{}]", "--workload FILE: topics: must be a text or a number"),
        ("seed = -1", "--workload FILE: seed '-1': cannot be negative"),
        ("form = 'bdy'", "--workload FILE: form 'bdy': did you mean body?"),
        ("start-at = 2026-01-31", "--workload FILE: start-at: must be a text or a number"),
        ("topics", "--workload FILE is not TOML at its end"),
        ('{"seed": 1', "--workload FILE is not JSON at line 1"),
        ("bootstrap-server = 'h:1'", "--workload FILE: there is no key 'bootstrap-server'"),
        (f'command-property = ["sasl.jaas.config={SECRET}"]', "is not a load property"),
        ("command-property = ['hush']", "command-property: write it as KEY=VALUE"),
        ("", "no cluster is given: use --bootstrap-server"),
    ],
)
def test_a_mistake_in_the_file_is_named(
    produce: Callable[..., tuple[str, str]], text: str, answer: str
) -> None:
    """The error names file and key, and does not repeat what may be a secret."""
    printed, error = produce(text, "--topics", "t")
    message = " ".join(error.split())
    assert message.startswith("error: ")
    assert answer in message
    assert "hush" not in message
    assert printed == ""


def test_a_workload_has_nothing_of_a_connection() -> None:
    """No addresses, names or secrets; of client properties, only a load's that are not defaults."""
    client = ClientConfig.from_properties(
        {
            "bootstrap.servers": "secret-host:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "hush",
            "acks": "1",
            "buffer.memory": "70000",
        },
        defaults=PRODUCER_DEFAULTS,
    )
    options = ProduceOptions(run="r", name="ann", client=client, topics=("t",))
    found = document_of(options.workload)
    assert found["command-property"] == ["buffer.memory=70000"]
    text = json.dumps(found)
    assert [hidden for hidden in ("hush", "ann", "secret-host") if hidden in text] == []


@pytest.mark.parametrize(
    "given",
    [
        {"payload_file": "s3://ann:hush/hush@bucket/orders?token=hush", "form": Form.HEADERS},
        {
            "message_size": parse_shape(
                "file(s3://ann:hush@bucket/orders?token=hush)", SIZE_FORMS, option="--message-size"
            )
        },
        {
            "throughput": parse_shape(
                "replay(s3://ann:hush@bucket/orders?token=hush)", RATE_FORMS, option="--throughput"
            )
        },
    ],
)
def test_an_address_of_a_file_is_kept_without_its_credentials(given: dict[str, Any]) -> None:
    """Users who repeat the run have their own; the run itself uses the ones it was given."""
    client = ClientConfig(bootstrap_servers=("h:1",))
    options = ProduceOptions(run="r", name="p", client=client, topics=("t",), **given)
    document = document_of(options.workload)
    written = json.dumps([document, options.settings])
    assert "s3://bucket/orders" in written
    assert "hush" not in written
    value_of(document, WholeWorkload, "file")
    assert "hush" in str(vars(options))


def test_times_from_now_on_stay_text_until_the_command_begins() -> None:
    """A workload can be repeated: `+30s` means 30 s after each start."""
    relative = value_of({"topics": "t", "start-at": "+30s"}, WholeWorkload, "x")
    assert relative.start_at == StartTime("+30s", after_ns=30 * 10**9)
    client = ClientConfig(bootstrap_servers=("h:1",))
    options = ProduceOptions(
        run="r", name="p", client=client, topics=("t",), start_at=relative.start_at
    ).resolved()
    assert options.start_at is not None
    assert options.start_at.at_ns is not None
    assert document_of(options.workload)["start-at"] == "+30s"
    assert options.settings["start"].startswith("20")


def test_a_document_that_lacks_what_is_required_is_refused() -> None:
    with pytest.raises(UsageError, match="x: topics is missing"):
        value_of({}, WholeWorkload, "x")
