"""A real API server checks the chart's manifests, with the operators' kinds in the cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.kubernetes.kube import Kube, until
from tests.kubernetes.operators import operators

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.timeout(300)]

CHART = Path(__file__).parents[2] / "helm" / "mirrortest"
CI = sorted((CHART / "ci").glob("*-values.yaml"))
NAMESPACE = "mirrortest-admission"


def _helm(*arguments: str) -> str:
    command = ["helm", *arguments, "--namespace", NAMESPACE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def namespace(kube: Kube) -> Iterator[str]:
    """A restricted namespace, in which the API server also warns of what is not restricted."""
    kube.restricted_namespace(NAMESPACE)
    warns = "pod-security.kubernetes.io/warn=restricted"
    kube.kubectl("label", "namespace", NAMESPACE, warns)
    with operators(kube):
        yield NAMESPACE


def test_every_example_is_accepted(kube: Kube, namespace: str) -> None:
    """A strict dry run accepts each without a warning, operators' kinds included."""
    kinds = set()
    for path in CI:
        made = _helm("template", "dc1", str(CHART), "--dry-run=server", "--values", str(path))
        manifests = [each for each in yaml.safe_load_all(made) if each]
        kinds |= {each["kind"] for each in manifests}
        # A pod is admitted only if its service account exists; all else is a dry run.
        (account,) = (each for each in manifests if each["kind"] == "ServiceAccount")
        kube.apply(account)
        assert kube.dry_run(made) == "", path.name
        kube.kubectl("delete", "serviceaccount", account["metadata"]["name"], "-n", NAMESPACE)
    assert kinds >= {"CronJob", "NetworkPolicy", "PodMonitor", "PrometheusRule", "SparkApplication"}


def test_what_is_wrong_is_refused(kube: Kube, namespace: str) -> None:
    """An unknown field is refused, in a kind of Kubernetes and in one of an operator."""
    example = str(CHART / "ci" / "operators-values.yaml")
    made = _helm("template", "dc1", str(CHART), "--dry-run=server", "--values", example)
    for kind in ("PodMonitor", "StatefulSet"):
        (wrong,) = (each for each in yaml.safe_load_all(made) if each and each["kind"] == kind)
        wrong["spec"]["seletcor"] = wrong["spec"].pop("selector")
        with pytest.raises(AssertionError, match="seletcor"):
            kube.dry_run(yaml.safe_dump(wrong))


@pytest.mark.parametrize("kind", ["podMonitor", "serviceMonitor"])
def test_monitors_find_every_pod(kube: Kube, namespace: str, kind: str) -> None:
    """The API server resolves their selectors to every pod, and each pod has the named port."""
    release = ("m", str(CHART), "--values", str(CHART / "ci" / "producers-values.yaml"))
    _helm("install", *release, "--set", f"monitoring.{kind}.enabled=true")
    wanted = {f"m-mirrortest-producer-{n}" for n in range(3)} | {"m-mirrortest-observer-1"}
    until(lambda: len(kube.items("pods", NAMESPACE)) == len(wanted), "the pods are there")
    (monitor,) = kube.items(kind.lower(), NAMESPACE)
    assert "namespaceSelector" not in monitor["spec"], "it looks where it is"
    selector = _selector(monitor["spec"]["selector"])
    if kind == "podMonitor":
        (port,) = (each["port"] for each in monitor["spec"]["podMetricsEndpoints"])
        pods = kube.items("pods", NAMESPACE, selector)
    else:
        (port,) = (each["port"] for each in monitor["spec"]["endpoints"])
        services = kube.items("services", NAMESPACE, selector)
        assert all(port in {p["name"] for p in each["spec"]["ports"]} for each in services)
        port = next(each["spec"]["ports"][0]["targetPort"] for each in services)
        chosen = [_selector({"matchLabels": each["spec"]["selector"]}) for each in services]
        pods = [pod for each in chosen for pod in kube.items("pods", NAMESPACE, each)]
    assert sorted(pod["metadata"]["name"] for pod in pods) == sorted(wanted)
    for pod in pods:
        assert port in {each["name"] for c in pod["spec"]["containers"] for each in c["ports"]}
    _helm("uninstall", "m", "--wait")


def _selector(of: dict[str, Any]) -> str:
    """A label selector as kubectl takes it."""
    words = [f"{key}={value}" for key, value in of.get("matchLabels", {}).items()]
    for each in of.get("matchExpressions", ()):
        assert each["operator"] == "In"
        words.append(f"{each['key']} in ({','.join(each['values'])})")
    return ",".join(words)
