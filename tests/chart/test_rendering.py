"""The chart's manifests are valid for every supported Kubernetes, and safe."""

from __future__ import annotations

import functools
import importlib
import json
import re
from typing import TYPE_CHECKING

import kubernetes_validate.utils
import pytest
import typer
from pydantic import ValidationError
from typer.main import get_command

from grafana.alerts import rules
from grafana.links import Addresses
from mirrortest.config.option_file import parse_table
from mirrortest.scenario.matrix import Document
from tests.chart.rendering import CHART, OPERATORS, Manifest, of_part, refusal, rendered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.chart.conftest import Helm

pytestmark = pytest.mark.chart

# Cached: megabytes that would be read again for each manifest and version.
kubernetes_validate.utils.schema_contents = functools.cache(
    kubernetes_validate.utils.schema_contents
)

CI = sorted((CHART / "ci").glob("*-values.yaml"))
KUBERNETES = sorted(
    version
    for version in set(kubernetes_validate.utils.all_versions())
    if tuple(map(int, version.split(".")[:2])) >= (1, 29)
)
CUSTOM = {"PodMonitor", "ServiceMonitor", "PrometheusRule", "SparkApplication"}
"""Kinds that are not in Kubernetes' own schemas."""


def _examples(helm: Helm, path: Path) -> list[Manifest]:
    return rendered(helm, "--values", str(path), *OPERATORS)


def _pods(manifests: list[Manifest]) -> Iterator[Manifest]:
    """The pod specs in all these manifests."""
    for manifest in manifests:
        spec = manifest.get("spec", {})
        if manifest["kind"] == "Pod":
            yield spec
        elif manifest["kind"] == "CronJob":
            yield spec["jobTemplate"]["spec"]["template"]["spec"]
        elif "template" in spec:
            yield spec["template"]["spec"]


@functools.cache
def _validate(manifest: str) -> None:
    """Validate a manifest, once: both Helms render mostly the same. Raises ValidationError."""
    for version in KUBERNETES:
        kubernetes_validate.validate(json.loads(manifest), version, strict=True)


def test_lint(helm: Helm) -> None:
    """`helm lint --strict` passes with each of the examples."""
    for path in CI:
        done = helm("lint", "--strict", str(CHART), "--values", str(path))
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", CI, ids=lambda path: path.stem)
def test_manifests_are_valid_for_every_kubernetes(helm: Helm, path: Path) -> None:
    """No manifest has a field that an API server from 1.29 to the newest would drop or reject."""
    manifests = _examples(helm, path)
    assert KUBERNETES[0].startswith("1.29")
    names = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests]
    assert len(set(names)) == len(names)
    for manifest in manifests:
        if manifest["kind"] not in CUSTOM:
            _validate(json.dumps(manifest, sort_keys=True))


@pytest.mark.parametrize("path", CI, ids=lambda path: path.stem)
def test_pods_are_restricted(helm: Helm, path: Path) -> None:
    """Pods meet the Restricted standard with a read-only root; no variable is set twice."""
    pods = list(_pods(_examples(helm, path)))
    assert pods or "operators" in path.name
    for spec in pods:
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (ours,) = (c for c in spec["containers"] if c["name"] in {"mirrortest", "health"})
        assert ours["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        names = [each["name"] for each in ours.get("env", ())]
        assert len(set(names)) == len(names)
        mounts = {each["name"] for each in ours.get("volumeMounts", ())}
        claimed = {"spool"}
        assert mounts <= {each["name"] for each in spec.get("volumes", ())} | claimed


def test_the_spark_application_is_one(helm: Helm) -> None:
    """The operator's own model, which rejects unknown fields, accepts the SparkApplication."""
    from kubeflow_spark_api.models.spark_v1beta2_spark_application import (  # noqa: PLC0415  # slow
        SparkV1beta2SparkApplication,
    )

    for path in CI:
        for each in _examples(helm, path):
            if each["kind"] == "SparkApplication":
                SparkV1beta2SparkApplication.model_validate(each, extra="forbid")
                each["spec"]["driver"]["imagined"] = 1
                with pytest.raises(ValidationError, match=r"imagined\s+Extra inputs"):
                    SparkV1beta2SparkApplication.model_validate(each, extra="forbid")
                return
    pytest.fail("no example has one")


def _words(workload: Manifest) -> list[str]:
    words: list[str] = workload["spec"]["template"]["spec"]["containers"][0]["args"]
    return words


def test_shards_are_numbered_as_the_option_wants_them(helm: Helm) -> None:
    """Pods are numbered from 1, as shards are, and each pod's name is its consumer's id."""
    manifests = _examples(helm, CHART / "ci" / "consumers-values.yaml")
    consumers = of_part(manifests, "StatefulSet", "consumer")
    assert consumers["spec"]["ordinals"] == {"start": 1}
    words = _words(consumers)
    assert words[words.index("--shard") + 1] == "$(INDEX)/2"
    assert words[words.index("--id") + 1] == "dc1-mirrortest-consumer-$(INDEX)"
    (index,) = (
        each
        for each in consumers["spec"]["template"]["spec"]["containers"][0]["env"]
        if each["name"] == "INDEX"
    )
    assert "apps.kubernetes.io/pod-index" in index["valueFrom"]["fieldRef"]["fieldPath"]


@functools.cache
def _options(verb: str) -> set[str]:
    """Every option of a command."""
    app = typer.Typer()
    app.command(verb)(getattr(importlib.import_module(f"mirrortest.cli.{verb}"), verb))
    return {option for parameter in get_command(app).params for option in parameter.opts}


def test_options_are_mirrortest_s_own(helm: Helm) -> None:
    """Every option in every pod's arguments is one that the command has."""
    for path in CI:
        for spec in _pods(_examples(helm, path)):
            (ours,) = (c for c in spec["containers"] if c["name"] in {"mirrortest", "health"})
            if ours["name"] == "health":
                continue
            verb, *words = ours["args"]
            known = _options(verb)
            used = {word for word in words if word.startswith("--")}
            assert used <= known, path.name


def test_a_changed_job_is_another_job(helm: Helm) -> None:
    """Jobs are immutable, so a changed one gets a new name; an unchanged one keeps its name."""
    path = CHART / "ci" / "bounded-values.yaml"

    def name(*arguments: str) -> str:
        manifests = rendered(helm, "--values", str(path), *arguments)
        found: str = of_part(manifests, "Job", "producer")["metadata"]["name"]
        return found

    assert name() == name("--set", "consumers.replicas=5")
    assert name() != name("--set", "producers.throughput=7")


def test_alerts_and_dashboards_are_shipped_unchanged(helm: Helm) -> None:
    """Helm does not expand templates in them: Prometheus and Grafana get what was tested."""
    manifests = _examples(helm, CHART / "ci" / "operators-values.yaml")
    (rule,) = (each for each in manifests if each["kind"] == "PrometheusRule")
    assert rule["spec"] == rules()
    shown = {
        name: json.loads(text)
        for each in _examples(helm, CHART / "ci" / "everything-values.yaml")
        if each["kind"] == "ConfigMap"
        and each["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
        for name, text in each["data"].items()
    }
    assert shown == {
        path.name: json.loads(path.read_text())
        for path in (CHART / "files" / "dashboards").glob("*.json")
    }


@pytest.mark.parametrize("address", ["https://grafana.example/sub", "http://grafana:3000/"])
@pytest.mark.parametrize("runbook", ["", "https://docs.example/{alert}.html"])
def test_alerts_lead_to_where_the_values_say(helm: Helm, address: str, runbook: str) -> None:
    """The rules are exactly those that the generator writes for the same addresses."""
    path = CHART / "ci" / "operators-values.yaml"
    values = {"grafanaUrl": address, **({"runbookUrl": runbook} if runbook else {})}
    chosen = [
        word
        for name, value in values.items()
        for word in ("--set-json", f"monitoring.{name}={json.dumps(value)}")
    ]
    (rule,) = (
        each
        for each in rendered(helm, "--values", str(path), *chosen, *OPERATORS)
        if each["kind"] == "PrometheusRule"
    )
    assert rule["spec"] == rules(addresses=Addresses(address, runbook))


# Helm 3 contacts a cluster before it prints the notes.
@pytest.mark.parametrize("helm", [4], indirect=True)
@pytest.mark.parametrize(
    ("workers", "names"), [(1, ["producer-0", "producer-1"]), (2, ["producer-0.1", "producer-0.2"])]
)
def test_notes_tell_the_producers_names(helm: Helm, workers: int, names: list[str]) -> None:
    """The notes print the producers' ids for the other side's `expectProducers`."""
    path = CHART / "ci" / "bounded-values.yaml"
    replicas = len(names) // workers
    changed = f"producers.workers={workers},producers.replicas={replicas}"
    done = helm(
        *("install", "dc1", str(CHART), "--dry-run=client"),
        *("--values", str(path), "--set", changed),
    )
    assert done.returncode == 0, done.stderr
    expected = "{" + ",".join(f"dc1-mirrortest-{name}" for name in names) + "}"
    assert f"--set 'consumers.expectProducers={expected}'" in done.stdout


@pytest.mark.parametrize("helm", [4], indirect=True)
def test_notes_do_not_tell_to_expect_nobody(helm: Helm) -> None:
    """Once producers are scaled to 0; a run with no expected producer may pass without them."""
    done = helm(
        *("install", "dc1", str(CHART), "--dry-run=client"),
        *("--values", str(CHART / "ci" / "producers-values.yaml")),
        *("--set", "producers.replicas=0"),
    )
    assert done.returncode == 0, done.stderr
    assert "logs -l app.kubernetes.io/instance=dc1,app.kubernetes.io/component=producer" in (
        done.stdout
    )
    assert "expectProducers" not in done.stdout


def test_a_cron_job_s_jobs_are_found_as_any_other_s(helm: Helm) -> None:
    """A CronJob's Jobs have the CronJob's labels, which the notes select by."""
    manifests = _examples(helm, CHART / "ci" / "bounded-values.yaml")
    cron = of_part(manifests, "CronJob", "reconciliation")
    labels = cron["spec"]["jobTemplate"]["metadata"]["labels"]
    assert labels == cron["metadata"]["labels"]


def test_nights_are_scenarios_against_the_release_s_clusters(helm: Helm) -> None:
    """`mirrortest run` accepts the scenarios of the pod, and the history outlives the pod."""
    manifests = _examples(helm, CHART / "ci" / "consumers-values.yaml")
    files = of_part(manifests, "ConfigMap", "nightly")["data"]
    assert sorted(files) == ["burst.toml", "steady.toml"]
    for name, text in files.items():
        clusters = Document(name, name, CHART, parse_table(text, name)).scenario().clusters
        assert clusters is not None
        assert clusters.source_bootstrap_server == "dc1-kafka:9092"
        assert clusters.destination_bootstrap_server == "dc2-kafka:9092"
        assert clusters.source_alias == "A"
        properties = clusters.source_command_config
    job = of_part(manifests, "CronJob", "nightly")["spec"]["jobTemplate"]["spec"]
    pod = job["template"]["spec"]
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    words = pod["containers"][0]["args"]
    assert words[1:3] == [f"{mounts['scenarios']}/{name}" for name in sorted(files)]
    assert words[words.index("--history") + 1].startswith(mounts["logs"])
    assert str(properties).startswith(mounts["source-properties"])
    assert mounts["payloads"] == "/payloads"
    assert job["backoffLimit"] == 0  # a failed night is not retried


def test_verdicts_are_not_tried_again(helm: Helm) -> None:
    """Exit codes 2, 3 and 99 end the Job; an eviction does not count as a failure."""
    manifests = _examples(helm, CHART / "ci" / "consumers-values.yaml")
    job = of_part(manifests, "Job", "reconciliation")
    ignored, ends = job["spec"]["podFailurePolicy"]["rules"]
    assert ignored["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert (ends["action"], ends["onExitCodes"]["values"]) == ("FailJob", [2, 3, 99])


@pytest.mark.parametrize("monitor", ["podMonitor", "serviceMonitor"])
@pytest.mark.parametrize(
    ("interval", "window"), [("", "2m"), ("0s", "2m"), ("31s", "2m"), ("2m", "7m59s999ms")]
)
def test_alerts_need_four_scrapes_within_their_window(
    helm: Helm, monitor: str, interval: str, window: str
) -> None:
    """With alerts an interval must be set: Prometheus' own is often too long for their windows."""
    path = CHART / "ci" / "operators-values.yaml"
    chosen = [f"--set=monitoring.podMonitor.enabled=false,monitoring.{monitor}.enabled=true"]
    chosen += [f"--set=monitoring.{monitor}.interval={interval}"]
    chosen += [f"--set=monitoring.prometheusRule.limits.window={window}"]
    why = refusal(helm, "--values", str(path), *chosen, *OPERATORS)
    assert re.search(rf'{monitor}.interval="{interval}" .*limits.window=.*at most a quarter', why)
    chosen += ["--set", "monitoring.prometheusRule.enabled=false"]
    assert rendered(helm, "--values", str(path), *chosen, *OPERATORS)


@pytest.mark.parametrize(("interval", "window"), [("30s", "2m"), ("1d6h", "5d"), ("08s", "32s")])
def test_a_quarter_of_the_alerts_window_is_an_interval(
    helm: Helm, interval: str, window: str
) -> None:
    """Both are durations as Prometheus reads them."""
    path = CHART / "ci" / "operators-values.yaml"
    chosen = (
        f"monitoring.podMonitor.interval={interval},"
        f"monitoring.prometheusRule.limits.window={window}"
    )
    assert rendered(helm, "--values", str(path), "--set", chosen, *OPERATORS)


@pytest.mark.parametrize(
    ("size", "expected"), [("1048576", "1048576"), ('"64KiB"', "64KiB"), ("900", "900")]
)
def test_a_message_size_may_be_a_number(
    helm: Helm, tmp_path: Path, size: str, expected: str
) -> None:
    """In a file, Helm reads numbers as floats: a MiB was 1.048576e+06, which the pod refused."""
    (tmp_path / "size.yaml").write_text(f"producers: {{messageSize: {size}}}\n")
    path = str(CHART / "ci" / "producers-values.yaml")
    manifests = rendered(helm, "--values", path, "--values", str(tmp_path / "size.yaml"))
    words = _words(of_part(manifests, "StatefulSet", "producer"))
    assert words[words.index("--message-size") + 1] == expected


def test_topics_may_be_a_range(helm: Helm) -> None:
    """The chart passes a range on as the command line takes it."""
    manifests = rendered(
        helm, "--values", str(CHART / "ci" / "producers-values.yaml"),
        "--set-json", 'producers.topics=["load[1-8].eu","orders"]',
    )  # fmt: skip
    words = _words(of_part(manifests, "StatefulSet", "producer"))
    assert words[words.index("--topics") + 1] == "load[1-8].eu,orders"


def test_a_field_that_does_not_exist_would_be_told(helm: Helm) -> None:
    """The schemas of the rendered kinds are the strict ones: an unknown field is an error."""
    manifests = _examples(helm, CHART / "ci" / "consumers-values.yaml")
    consumers = of_part(manifests, "StatefulSet", "consumer")
    consumers["spec"]["template"]["spec"]["containers"][0]["arguments"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="'arguments' was unexpected"):
        _validate(json.dumps(consumers))
