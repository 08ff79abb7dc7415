"""Which settings of two sides differ: options, and all of Kafka's properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirrortest.compare.settings import OPTIONS, RecordedConfigurations, differing, settings_of
from mirrortest.config.client_config import ClientConfig
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrortest.compare.settings import Settings


def _session(role: Role = Role.PRODUCER, **more: Any) -> Session:
    return Session(run="r", role=role, name="a", session="s", started_ns=1, **more)


def _client(*properties: str) -> dict[str, str]:
    return ClientConfig.load(bootstrap_server="a:1", command_properties=properties).recorded


def _changed(base: Settings, new: Settings) -> dict[str, tuple[list[str], list[str]]]:
    return {each.name: (each.base, each.new) for each in differing([base], [new])}


def test_options_of_a_process_without_a_log_on_one_side_do_not_differ() -> None:
    """They were shown as not set there."""
    base, new = ({OPTIONS: {"producer: linger-ms": frozenset({text})}} for text in "12")
    new[OPTIONS]["consumer: topics"] = frozenset({"A.orders"})
    assert [each.name for each in differing([base], [new])] == ["producer: linger-ms"]


def test_client_properties_that_differ_are_named_as_kafka_names_them() -> None:
    """Defaults are compared, too; an option of the same meaning is not listed again."""
    base = _session(client=_client(), settings={"linger": "5 ms", "form": "body"})
    new = _session(
        client=_client("linger.ms=200", "sasl.jaas.config=password"),
        settings={"linger": "200 ms", "form": "headers"},
    )
    assert _changed(settings_of([base], [], []), settings_of([new], [], [])) == {
        "producer: form": (["body"], ["headers"]),
        "producer: linger.ms": (["5"], ["200"]),
        "producer: sasl.jaas.config": ([], ["(hidden)"]),
    }


def test_logs_of_older_versions_have_only_options() -> None:
    """Unknown properties are no difference."""
    older = _session(settings={"linger": "5 ms"})
    newer = _session(settings={"linger": "200 ms"}, client=_client("linger.ms=200"))
    assert _changed(settings_of([older], [], []), settings_of([newer], [], [])) == {
        "producer: linger": (["5 ms"], ["200 ms"])
    }


def test_what_a_workload_has_besides_is_compared() -> None:
    """These are its topics and how they are created; the rest is listed as options."""
    base = _session(workload={"topics": "load", "throughput": 5, "partitions": 4})
    new = _session(workload={"topics": "load[1-4]", "throughput": 6})
    assert _changed(settings_of([base], [], []), settings_of([new], [], [])) == {
        "workload: topics": (["load"], ["load[1-4]"]),
        "workload: partitions": (["4"], []),
    }


def _recorded(
    port: int, lab: str, broker: Mapping[str, str], **topics: Mapping[str, str]
) -> Settings:
    """A lab with one cluster and a mirror, as an observer records it."""
    here = {
        "node.id": str(port),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": f"/tmp/mirrortest-lab-{lab}/data/A1,/tmp/mirrortest-lab-{lab}/data/A2",
    }
    cluster = {"cluster_id": lab, "brokers": {"1": here | dict(broker)}, "topics": topics}
    mirror = {"A.bootstrap.servers": f"127.0.0.1:{port}", "tasks.max": broker["num.io.threads"]}
    profile = {
        "clusters": {f"127.0.0.1:{port}": cluster},
        "configurations": {
            f"/tmp/mirrortest-lab-{lab}/config/A1.properties": here | dict(broker),
            f"/tmp/mirrortest-lab-{lab}/config/mirror.properties": mirror,
        },
        "kernel": {"release": "6"},
    }
    return settings_of(
        [_session(clusters={"source": lab})], [], [RecordedConfigurations.model_validate(profile)]
    )


def test_what_brokers_topics_and_mirrors_are_configured_with_is_compared() -> None:
    """It is listed by the cluster's side; a lab's ports, ids and directories are not compared."""
    base = _recorded(17, "1-ab", {"num.io.threads": "4"}, load={"retention.ms": "1"})
    new = _recorded(
        19, "2-cd", {"num.io.threads": "8"}, load={"retention.ms": "2"}, more={"a": "b"}
    )
    assert _changed(base, new) == {
        "source brokers: num.io.threads": (["4"], ["8"]),
        "source topic load: retention.ms": (["1"], ["2"]),
        "mirror.properties: tasks.max": (["4"], ["8"]),
    }


def test_a_run_that_nobody_observed_has_no_configurations_to_differ_in() -> None:
    """The configurations of its brokers are unknown."""
    observed = _recorded(17, "1-ab", {"num.io.threads": "4"})
    assert not _changed(settings_of([_session()], [], []), observed)


def test_without_logs_a_producers_summary_says_what_was_asked_for() -> None:
    """Ports of this machine are not compared: each lab has other ones."""
    sides = [
        settings_of([], [{"bootstrap servers": text, "worker": text}], [])
        for text in ("127.0.0.1:20041,localhost:9092,dc1:9092", "127.0.0.1:7,localhost:7,dc1:7")
    ]
    assert _changed(*sides) == {
        "producer: bootstrap servers": (
            ["127.0.0.1,localhost,dc1:9092"],
            ["127.0.0.1,localhost,dc1:7"],
        )
    }
