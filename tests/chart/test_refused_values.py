"""Wrong values of the chart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.chart.rendering import CHART, refusal, rendered, values_of

if TYPE_CHECKING:
    from tests.chart.conftest import Helm

pytestmark = pytest.mark.chart


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"global": {"imageRegistry": 5}}, "global.imageRegistry: .*string"),
        (
            {"global": {"imagePullSecrets": [{"nam": "x"}]}},
            r"imagePullSecrets.0: .*\bnam\b.* not allowed",
        ),
        ({"image": {"digest": "0123"}}, "image.digest: .*not match"),
        ({"image": {"registry": "https://r.example"}}, "image.registry: .*not match"),
        ({"hostAliases": [{"ip": "10.0.0.1"}]}, "hostAliases.0: .*hostnames"),
        ({"dnsConfig": []}, "dnsConfig: .*object"),
        ({"producers": {"initContainers": {}}}, "producers.initContainers: .*array"),
        (
            {"producers": {"updateStrategy": {"type": "Recreate"}}},
            "updateStrategy.type: .*OnDelete",
        ),
        ({"producers": {"annotations": {"a": 1}}}, "producers.annotations.a: .*string"),
        ({"monitoring": {"podMonitor": {"interval": "often"}}}, "podMonitor.interval: .*not match"),
        ({"monitoring": {"podMonitor": {"scrapeTimeout": "10"}}}, "scrapeTimeout: .*not match"),
        (
            {"monitoring": {"podMonitor": {"relabelings": [{"action": "rename"}]}}},
            "relabelings.0.action: .*labelmap",
        ),
        (
            {"monitoring": {"podMonitor": {"metricRelabelings": [{"source": "a"}]}}},
            "metricRelabelings.0: .*source.* not allowed",
        ),
        ({"monitoring": {"podMonitor": {"podTargetLabels": "team"}}}, "podTargetLabels: .*array"),
        ({"monitoring": {"podMonitor": {"sampleLimit": -1}}}, "sampleLimit: .* 0"),
        ({"monitoring": {"podMonitor": {"honorLabels": "yes"}}}, "honorLabels: .*boolean"),
        ({"monitoring": {"podMonitor": {"jobLabel": 1}}}, "jobLabel: .*string"),
        (
            {"monitoring": {"prometheusRule": {"limits": {"latency": "30s"}}}},
            "limits.latency: .*number",
        ),
        (
            {"monitoring": {"prometheusRule": {"limits": {"patience": 60}}}},
            "limits.patience: .*string",
        ),
        (
            {"monitoring": {"prometheusRule": {"limits": {"loss": 1}}}},
            "limits: .*loss.* not allowed",
        ),
        (
            {"monitoring": {"prometheusRule": {"disabled": {"MirrortestLos": True}}}},
            r"(?i)property ?name.*MirrortestLos\b",
        ),
        (
            {"monitoring": {"prometheusRule": {"customRules": {"MirrortestLoss": {"fr": "1m"}}}}},
            r"customRules.MirrortestLoss: .*\bfr\b.* not allowed",
        ),
        (
            {"monitoring": {"prometheusRule": {"keepFiringFor": "long"}}},
            "keepFiringFor: .*not match",
        ),
        (
            {"monitoring": {"prometheusRule": {"additionalRuleLabels": {"a": 1}}}},
            "additionalRuleLabels.a: .*string",
        ),
        (
            {"monitoring": {"prometheusRule": {"extraRules": [{"alert": "A"}]}}},
            "extraRules.0: .*expr",
        ),
        (
            {"monitoring": {"prometheusRule": {"extraRules": [{"expr": "1"}]}}},
            "extraRules.0: .*alert",
        ),
    ],
)
def test_wrong_values_are_refused(helm: Helm, wrong: dict[str, Any], expected: str) -> None:
    """The schema rejects wrong values before anything is installed; the message names the value."""
    assert re.search(expected, refusal(helm, *values_of(wrong)))


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ("", "nothing is switched on"),
        ("producers.enabled=true,producers.topics={a}", "run is not set"),
        ("run=r,producers.enabled=true,producers.topics={a}", "source.*: producers and observers"),
        ("run=r,consumers.enabled=true,consumers.topics={a}", "destination.*: consumers need"),
        ("{p}", "producers.topics is empty"),
        ("{p},producers.topics={a},producers.duration=1h", "set producers.kind=Job"),
        ("{p},producers.topics={a},producers.kind=Job", "never ends without producers.duration"),
        ("{p},producers.topics={a},producers.drainSeconds=60", "cuts the drain off.* 135"),
        (
            "{p},producers.topics={a},producers.createTopics.partitions=3",
            "set .*createTopics.enabled",
        ),
        ("{c},consumers.group=g,consumers.shards=true", "group and consumers.shards exclude"),
        ("{c},consumers.replicas=2", "need to share the partitions"),
        ("{c},consumers.topicPattern=A", "consumers.topicPattern exclude"),
        ("{c},consumers.kind=Job,consumers.shards=true", "consumers.shards are the StatefulSet"),
        *(
            (
                f"{common},{part}.replicas=0,{part}.kind=Job",
                f"{part}.kind=Job .*{part}.enabled=false",
            )
            for common, part in (
                ("{p},producers.topics={a},producers.numRecords=1", "producers"),
                ("{c}", "consumers"),
                ("{o}", "observers"),
            )
        ),
        ("{c},consumers.ledgerFromSource=true", "source.*: consumers.ledgerFromSource"),
        ("{c},consumers.topic=b", r"consumers: .*\btopic\b.* not allowed"),
        ("{c},consumers.replicas=two", "consumers.replicas: .*integer"),
        (
            "{c},reconciliation.enabled=true,reconciliation.kind=SparkApplication",
            "needs the Spark operator",
        ),
        ("{c},monitoring.podMonitor.enabled=true", "needs the Prometheus operator"),
        ("{r},reconciliation.html=r.html", "for example /var/lib/mirrortest/logs/r.html"),
        ("{r},reconciliation.output=results/today", "output=results/today is a relative path"),
        (
            "{r},logs.uri=s3://b/l,reconciliation.html=/var/lib/mirrortest/logs/r.html",
            "html=/var/lib/mirrortest/logs/r.html .*with logs.uri there is none",
        ),
        ("{c},monitoring.grafanaUrl=grafana.example", "monitoring.grafanaUrl: .*not match"),
        ("{c},monitoring.runbookUrl=https://docs.example/", "runbookUrl: .*not match"),
        ("nightly.enabled=true,source.bootstrapServers=a:1", "nightly.scenarios is empty"),
        ("nightly.enabled=true,nightly.scenarios.a=b", "source.*: nightly needs"),
        ("{n}[lab]", r"nightly.scenarios.a has a table \[lab\]"),
        ("{n}[kubernetes.pod]", r"nightly.scenarios.a has a table .*\[kubernetes\]"),
        ("{n}b,logs.uri=s3://b/l", "the nights are kept on the volume"),
        ("{n}b,nightly.keep=1", "nightly.keep: .* 2"),
        ("{c},logs.uri=s3://b/l,logs.volume.existingClaim=c", "logs.volume.existingClaim exclude"),
        *(
            (f"{{c}},metrics.address={address}", f"metrics.address={address} .* 0.0.0.0")
            for address in ("127.0.0.1", "127.1.2.3", "localhost", "::1")
        ),
    ],
)
def test_values_that_do_not_fit_together_are_refused(helm: Helm, wrong: str, expected: str) -> None:
    """The schema rejects wrong values, or a template does, with a sentence on what to set."""
    producing = "run=r,producers.enabled=true,source.bootstrapServers=a:1"
    consuming = "run=r,consumers.enabled=true,consumers.topics={a},destination.bootstrapServers=b:1"
    nightly = "nightly.enabled=true,source.bootstrapServers=a:1,nightly.scenarios.a="
    values = wrong
    names = {"{p}": producing, "{c}": consuming, "{n}": nightly}
    names["{o}"] = "run=r,observers.enabled=true,observers.topics={a},source.bootstrapServers=a:1"
    names["{r}"] = "run=r,reconciliation.enabled=true"
    for name, common in names.items():
        values = values.replace(name, common)
    assert re.search(expected, refusal(helm, *(("--set", values) if values else ())))


@pytest.mark.parametrize(
    "value", ["logs.uri", "reconciliation.extraLogs[0]", "reconciliation.output"]
)
@pytest.mark.parametrize(
    "address",
    ["s3://k:hunter%2F2@b/l", "s3://k:hunter/2@b/l", "abfs://c@a/l?client_secret=hunter2"],
)
def test_an_address_with_credentials_is_refused(helm: Helm, value: str, address: str) -> None:
    """Arguments of pods are no secrets; the message names the way to give one, and not the secret.

    An address may name a user, as Azure's do.
    """
    path = CHART / "ci" / "bounded-values.yaml"
    why = refusal(helm, "--values", str(path), "--set", f"{value}={address}")
    assert value.removesuffix("[0]") in why
    assert "logs.credentials.existingSecret" in why
    assert "hunter" not in why
    allowed = ("--set", f"{value}=abfs://container@account.dfs.core.windows.net/l")
    assert rendered(helm, "--values", str(path), *allowed)


@pytest.mark.parametrize("release", ["20261127", "v1.0"])
def test_a_name_that_no_service_may_have_is_refused(helm: Helm, release: str) -> None:
    """Helm allows releases to be named by a date or a version; Kubernetes rejected the Services."""
    path = str(CHART / "ci" / "producers-values.yaml")
    done = helm("template", release, str(CHART), "--values", path)
    assert done.returncode != 0
    assert f"{release}-mirrortest is no name" in done.stderr
    assert "fullnameOverride" in done.stderr
    named = ("--set", "fullnameOverride=mirrortest-dc1")
    assert helm("template", release, str(CHART), "--values", path, *named).returncode == 0
