"""What a lab exports to Prometheus: which parts run, and where their own metrics are."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import yaml

from docs import generated
from mirrortest.host.endings import Endings
from mirrortest.host.java import Java
from mirrortest.lab import jars, testbed
from mirrortest.lab.mirrors import MirrorSettings
from mirrortest.lab.observing import observing_table
from mirrortest.lab.process.runtime import Jvm
from mirrortest.lab.runtime import PartState
from mirrortest.lab.testbed import Lab, part_metrics
from mirrortest.report.html.observations import short_names

if TYPE_CHECKING:
    import pytest

JAVA = Java(Path("/java"), 17, "PATH")


def built(directory: Path, jvm: Jvm, **options: Any) -> Lab:
    """A lab of these Java programs, not started."""
    lab = Lab(directory, **options)
    lab.directory = directory
    lab._build(jvm)
    return lab


def test_which_parts_run_is_asked_at_each_scrape() -> None:
    """Each scrape reads the state anew; a frozen part is not up."""
    part = SimpleNamespace(state=PartState.RUNNING)
    metrics = part_metrics(cast("Lab", SimpleNamespace(parts={"B1": part})))

    def parts_up() -> dict[str, float]:
        return {
            sample.labels["part"]: sample.value
            for family in metrics.collect()
            if family.name == "mirrortest_lab_part_up"
            for sample in family.samples
        }

    seen = []
    for state in PartState:
        part.state = state
        seen.append((state, parts_up()["B1"]))
    assert seen == [(state, float(state is PartState.RUNNING)) for state in PartState]


def test_an_observed_lab_logs_its_collections_where_the_observer_reads_them(tmp_path: Path) -> None:
    """Each Java process has a log of its own, and the options for the observer are valid."""
    logs = tmp_path / "logs"
    lab = built(tmp_path, Jvm(JAVA, "a.jar", gc_logs=logs), gc_logs=True)
    parts = lab.parts
    written = [word for part in parts.values() for word in part._command if "-Xlog:gc*" in word]
    assert written == [
        f"-Xlog:gc*:file={logs}/{name}-gc.log:time,uptime,level,tags:filecount=0" for name in parts
    ]
    lab.targets["A1"] = "127.0.0.1:7001"
    table = observing_table(lab)
    assert table["gc-log"] == [f"{logs}/{name}-gc.log" for name in parts]
    assert table["scrape"] == ["A1=http://127.0.0.1:7001/metrics"]
    by_match = {
        name: next(match for match in table["match"] if match in " ".join(part._command))
        for name, part in parts.items()
    }
    assert list(short_names(by_match.values()).values()) == list(parts)
    options = [f"--{key}={each}" for key, every in table.items() for each in every]
    command = generated.program().commands["observe"]
    read = command.make_context("observe", options).params
    assert [path.name for path in read["log"]] == [f"{name}.log" for name in parts]


def test_the_parts_that_export_their_metrics_do_it_on_their_own_port(tmp_path: Path) -> None:
    """Each part with a metrics port has the agent on that port; others have no agent."""
    exported = {"A1": 7001, "mirror": 7002}
    jvm = Jvm(JAVA, "a.jar", agent=Path("/a.jar"), metrics_ports=exported)
    agents = {
        name: [word for word in part._command if word.startswith("-javaagent")]
        for name, part in built(tmp_path, jvm).parts.items()
    }
    assert agents["B1"] == []
    for part, port in exported.items():
        (option,) = agents[part]
        jar, _, rest = option.removeprefix("-javaagent:").partition("=")
        address, agent_port, config = rest.split(":", 2)
        assert (jar, address, agent_port) == ("/a.jar", "127.0.0.1", str(port))
        assert yaml.safe_load(Path(config).read_text())["rules"]


def test_prometheus_is_told_where_the_parts_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """targets.json has the form of file_sd_configs: one target per part, with its name."""
    monkeypatch.setattr(testbed, "lab_java", lambda: JAVA)
    monkeypatch.setattr(jars, "class_path", lambda _: "a.jar")
    monkeypatch.setattr(jars, "jmx_agent", lambda: Path("/a.jar"))
    lab = Lab(tmp_path, brokers=2, mirror=MirrorSettings(), metrics=True)
    lab.directory = tmp_path
    jvm = cast("Jvm", lab._find_runtime(Endings()))
    lab._write_targets()
    groups = json.loads((tmp_path / "targets.json").read_text())
    targets = {group["labels"]["part"]: group["targets"] for group in groups}
    assert targets.keys() == {"A1", "A2", "B1", "B2", "mirror"} == jvm.metrics_ports.keys()
    assert all(targets[part] == [f"127.0.0.1:{port}"] for part, port in jvm.metrics_ports.items())
    assert not cast("Jvm", Lab(tmp_path)._find_runtime(Endings())).metrics_ports
