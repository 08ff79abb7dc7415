"""A real Prometheus scrapes real runs: each panel has data, and only caused alerts fire."""

from __future__ import annotations

import json
import math
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from grafana.alerts import Limits, rules
from mirrortest.lab import control
from mirrortest.lab.cluster_client import ClusterClient
from mirrortest.lab.free_ports import ADDRESS, free_ports
from mirrortest.metrics import names
from mirrortest.metrics.kernel_clock import clock_error_bound
from mirrortest.model.observed import MIRROR
from tests.lab.harness import GATHER_MS, Command, until, write
from tests.prometheus.server import Firing, Prometheus
from tests.unit.dashboard_queries import DASHBOARDS, filled_in, panels_of, queries_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.prometheus, pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(900)]

LIMITS = Limits(window="8s", patience="5s", latency=12, silence=10, duplicates=0.001)
"""The same rules with shorter times: a test cannot wait for minutes.

Latencies are published in buckets of 5, 10 and 20 s. A mirror stop that is reported after
`silence` and `patience` fills the last one; a clean run on a busy machine may fill the first.
"""
HURT, CLEAN = "hurt", "clean"
SPEC = """
seed = 7
[[acts]]
kind = "drop"
topic = "orders"
rate = 0.01
[[acts]]
kind = "duplicate"
topic = "orders"
rate = 0.02
"""
CAUSED = (
    "MirrortestLoss",
    "MirrortestDuplicates",
    "MirrortestMirrorStalled",
    "MirrortestLedgerSilent",
    "MirrortestLatencyHigh",
    "MirrortestProducerBehindSchedule",
    "MirrortestConsumerStalled",
)
"""The alerts that the hurt run must trigger, and no others."""
LASTING = ("MirrortestLoss", "MirrortestDuplicates")
"""Those of them that fire until the run ends."""


@dataclass
class Seen:
    """The results: Prometheus with its data, each run's times, and the resolved alerts."""

    prometheus: Prometheus
    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    resolved: list[str] = field(default_factory=list)


@dataclass
class Stage:
    """A running lab and the commands of one run on it."""

    folder: Path
    run: str
    ports: dict[str, int]
    stack: ExitStack
    lab_options: tuple[str, ...] = ()
    source: str = ""
    destination: str = ""

    @property
    def name(self) -> str:
        return f"prometheus-{self.run}-{self.ports['lab']}"

    @property
    def directory(self) -> Path:
        return self.folder / f"lab-{self.run}"

    def start(self, label: str, *arguments: str) -> Command:
        command = Command(list(arguments), self.folder, f"{self.run}-{label}")
        return self.stack.enter_context(command)

    def call(self, *arguments: str) -> str:
        """Run a command to its end."""
        command = Command([*arguments], self.folder, f"{self.run}-call")
        with command:
            assert command.wait() == 0, command.stderr
        return command.stdout

    def up(self) -> Command:
        lab = self.start(
            "lab",
            *("lab", "up", "--name", self.name, "--directory", str(self.directory)),
            *("--metrics-port", str(self.ports["lab"])),
            *("--observe", str(self.folder / "observations")),
            *self.lab_options,
        )

        def is_up() -> bool:
            assert lab.process.poll() is None, lab.stderr
            return control.is_up(control.socket_path(self.name))

        until(is_up, seconds=150, what="the lab is up")
        status = json.loads(self.call("lab", "status", "--name", self.name, "--json"))
        self.source = status["source"]["bootstrap_servers"]
        self.destination = status["destination"]["bootstrap_servers"]
        self.call("lab", "create-topic", "orders", "--partitions", "3", "--name", self.name)
        # The mirror pauses when it starts on a new topic, so none is created during the run.
        ledger = {"cleanup.policy": "compact"}
        ClusterClient(self.source).create_topic("mirrortest.ledger", 1, ledger)
        write(self.source, "mirrortest.ledger", [{"key": b"nobody's", "value": None}])
        probe = ClusterClient(self.destination)
        until(lambda: probe.partitions("A.orders") == 3, what="the topic is mirrored")
        copied = "A.mirrortest.ledger"
        until(lambda: sum(probe.end_offsets(copied).values()), what="the newest topic is copied")
        return lab

    def fault(self, verb: str, part: str) -> None:
        self.call("lab", "fault", verb, part, "--name", self.name)

    def produce(self) -> Command:
        return self.start(
            "produce",
            *("produce", "--bootstrap-server", self.source, "--run", self.run, "--id", "ann"),
            *("--topics", "orders", "--throughput", "300", "--duration", "600s"),
            *("--linger-ms", GATHER_MS),
            *("--log-dir", "logs", "--metrics-port", str(self.ports["producer"])),
        )

    def consume(self, role: str) -> Command:
        if role == "consumer":
            place: tuple[str, ...] = ("--topics", "A.orders", "--source-alias", "A")
            place += ("--bootstrap-server", self.destination, "--expect-producers", "ann")
        else:
            place = ("--role", "source", "--topics", "orders", "--bootstrap-server", self.source)
        return self.start(
            role,
            *("consume", *place, "--run", self.run, "--id", f"carl-{role}"),
            *("--deadline", "3s" if self.run == HURT else "30s"),
            *("--log-dir", "logs", "--metrics-port", str(self.ports[role])),
            *("--command-property", "request.timeout.ms=5000"),  # reports an outage soon
        )


@pytest.fixture(scope="module")
def seen(prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """Two runs: one on the faulty mirror with faults, one clean on MirrorMaker 2."""
    folder = tmp_path_factory.mktemp("prometheus")
    folder.joinpath("spec.toml").write_text(SPEC)
    roles = ("lab", "producer", "consumer", "source")
    ports = dict(zip(roles, free_ports(len(roles)), strict=True))
    with ExitStack() as stack:
        faulty_mirror = ("--mirror", "saboteur", "--spec", str(folder / "spec.toml"))
        hurt = Stage(folder, HURT, ports, stack, faulty_mirror)
        clean = Stage(folder, CLEAN, ports, stack)
        server = Prometheus(
            prometheus_binary,
            folder / "prometheus",
            rules=rules(LIMITS),
            targets={"mirrortest": [f"{ADDRESS}:{port}" for port in ports.values()]},
            discovered={"kafka": [stage.directory / "targets.json" for stage in (hurt, clean)]},
        )
        seen = Seen(stack.enter_context(server))
        _play(seen, hurt, _hurt)
        _play(seen, clean, _leave_alone)
        yield seen


def _play(seen: Seen, stage: Stage, course: Any) -> None:
    """Play one run, from the lab's start until all alerts are resolved."""
    lab = stage.up()
    began = time.time()
    consumers = [stage.consume(role) for role in ("consumer", "source")]
    producer = stage.produce()
    course(seen, stage)
    producer.signal(signal.SIGTERM)
    producer.wait()
    for command in consumers:
        command.wait()
    lab.signal(signal.SIGTERM)
    lab.wait()
    until(lambda: not seen.prometheus.firing(), what=f"all alerts of {stage.run} are resolved")
    seen.times[stage.run] = (began, time.time())


def _hurt(seen: Seen, stage: Stage) -> None:
    """Trigger one alert after the other; all but the lasting ones end with their causes."""
    watch = seen.prometheus

    def comes(*names: str) -> None:
        for name in names:
            until(watch.fires(name), seconds=90, what=f"{name} fires: {watch.firing()}")

    def goes(*names: str) -> None:
        for name in names:
            until(watch.is_quiet_about(name), seconds=90, what=f"{name} ends: {watch.firing()}")
            seen.resolved.append(name)

    comes("MirrortestLoss", "MirrortestDuplicates")
    stage.fault("stop", "mirror")
    comes("MirrortestMirrorStalled", "MirrortestLedgerSilent")
    stage.fault("continue", "mirror")
    comes("MirrortestLatencyHigh")
    goes("MirrortestMirrorStalled", "MirrortestLedgerSilent", "MirrortestLatencyHigh")
    stage.fault("stop", "A1")
    comes("MirrortestProducerBehindSchedule")
    stage.fault("continue", "A1")
    goes("MirrortestProducerBehindSchedule")
    stage.fault("kill", "B1")
    comes("MirrortestConsumerStalled")
    away = "mirrortest_consumer_unreachable == 1"
    until(lambda: watch.now(away), seconds=120, what="the outage is told")
    stage.fault("start", "B1")
    goes("MirrortestConsumerStalled", "MirrortestLatencyHigh", "MirrortestLedgerSilent")
    for name in LASTING:
        assert watch.fires(name)(), f"{name}: what was found stays found while the run goes on"


def _leave_alone(seen: Seen, stage: Stage) -> None:
    """Wait until messages are mirrored, and MirrorMaker 2 and its latency are scraped."""
    probe = ClusterClient(stage.destination)
    until(
        lambda: sum(probe.end_offsets("A.orders").values()) > 5000, what="enough has been mirrored"
    )
    until(
        lambda: seen.prometheus.now("kafka_connect_mirror_source_records_total"),
        what="MirrorMaker 2 was scraped",
    )
    latency = names.OBSERVED[MIRROR]["replication_latency_seconds"].full_name
    until(lambda: seen.prometheus.now(latency), what="the observer has seen the mirror's latency")


def _always(run: str) -> set[Firing]:
    """The alerts that this machine triggers in each run: only its clock can."""
    bound = clock_error_bound()
    unbounded = bound is not None and 2 * bound > LIMITS.skew
    return {Firing("MirrortestClockUnbounded", run)} if unbounded else set()


def test_every_alert_that_should_fires_and_no_other(seen: Seen) -> None:
    """In the hurt run exactly the alerts that it causes fire."""
    fired = seen.prometheus.fired(*seen.times[HURT])
    assert fired == {Firing(name, HURT) for name in CAUSED} | _always(HURT)


def test_every_alert_that_fired_was_resolved(seen: Seen) -> None:
    """Alerts with a temporary cause end with it, the others at the end of the run."""
    fired = seen.prometheus.fired(*seen.times[HURT]) - _always(HURT)
    assert {*seen.resolved} == {alert.name for alert in fired}.difference(LASTING)
    assert seen.prometheus.firing() == set()


def test_a_clean_run_sets_nothing_off(seen: Seen) -> None:
    """MirrorMaker 2 without faults triggers no alert."""
    assert seen.prometheus.fired(*seen.times[CLEAN]) == _always(CLEAN)


@pytest.mark.parametrize("dashboard", sorted(DASHBOARDS))
def test_every_query_of_every_panel_has_data(seen: Seen, dashboard: str) -> None:
    """Each query, with every variable at All, has finite values in the time of both runs."""
    begin, end = seen.times[HURT][0], seen.times[CLEAN][1]
    empty = []
    for title, query in queries_of(DASHBOARDS[dashboard]):
        asked = filled_in(query, window="8s", over=f"{math.ceil(end - begin)}s", step="2s")
        answer = seen.prometheus.over(asked, begin, end)
        values = [float(value) for series in answer for _, value in series["values"]]
        if not any(map(math.isfinite, values)):
            empty.append((title, asked))
    assert empty == []


def test_a_dashboard_of_one_run_shows_that_run_alone(seen: Seen) -> None:
    """With the variable Run at one run, each query returns only series of that run."""
    begin, end = seen.times[HURT][0], seen.times[CLEAN][1]
    shown = [
        target["expr"]
        for panel in panels_of(DASHBOARDS["comparison"])
        for target in panel["targets"]
    ]
    for query in shown:
        asked = filled_in(
            query, window="8s", over=f"{math.ceil(end - begin)}s", step="2s", run=HURT
        )
        runs = {series["metric"]["run"] for series in seen.prometheus.over(asked, begin, end)}
        assert runs == {HURT}, asked
