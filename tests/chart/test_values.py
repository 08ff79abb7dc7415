"""Values of the chart one by one: what each sets, and what its default is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

from grafana.alerts import Limits, rules
from tests.chart.rendering import (
    CHART,
    Manifest,
    of_part,
    refusal,
    rendered,
    values_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chart.conftest import Helm

pytestmark = pytest.mark.chart

DIGEST = "sha256:" + "0123456789abcdef" * 4
WORKLOADS = {
    "producers": ("StatefulSet", "producer"),
    "consumers": ("StatefulSet", "consumer"),
    "observers": ("StatefulSet", "observer"),
    "reconciliation": ("Job", "reconciliation"),
}
INIT = [{"name": "wait", "image": "wait:1"}]
RELABELING = [{"action": "replace", "sourceLabels": ["a"], "targetLabel": "b"}]
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
ABSENT = object()


class Row(NamedTuple):
    """A value, the field that it sets, and the field's content by default and when changed."""

    value: str
    field: str
    default: Any
    changed: Any


OF_PARTS = [
    Row("initContainers", "spec.template.spec.initContainers", ABSENT, INIT),
    Row("annotations", "metadata.annotations", ABSENT, {"a": "b"}),
    Row("priorityClassName", "spec.template.spec.priorityClassName", ABSENT, "high"),
    Row(
        "extraVolumes", "spec.template.spec.volumes.-1.name", ABSENT,
        [{"name": "more", "emptyDir": {}}],
    ),
]  # fmt: skip
OF_STATEFULSETS = [
    Row("updateStrategy", "spec.updateStrategy", {"type": "RollingUpdate"}, {"type": "OnDelete"}),
]
OF_PODS = [
    Row("hostAliases", "hostAliases", ABSENT, [{"ip": "10.0.0.1", "hostnames": ["broker-1"]}]),
    Row("dnsConfig", "dnsConfig", ABSENT, {"nameservers": ["10.0.0.2"]}),
    Row("imagePullSecrets", "imagePullSecrets", ABSENT, [{"name": "registry"}]),
]
OF_MONITORS = [
    Row("interval", "interval", "15s", "30s"),
    Row("scrapeTimeout", "scrapeTimeout", ABSENT, "10s"),
    Row("honorLabels", "honorLabels", ABSENT, True),
    Row("relabelings", "relabelings", ABSENT, RELABELING),
    Row("metricRelabelings", "metricRelabelings", ABSENT, RELABELING),
]
OF_MONITORS_SPECS = [
    Row("jobLabel", "spec.jobLabel", ABSENT, "app"),
    Row("podTargetLabels", "spec.podTargetLabels", ABSENT, ["team"]),
    Row("sampleLimit", "spec.sampleLimit", ABSENT, 5000),
    Row("annotations", "metadata.annotations", ABSENT, {"a": "b"}),
]


def _at(manifest: Any, path: str) -> Any:
    for step in path.split("."):
        if isinstance(manifest, list):
            manifest = manifest[int(step)]
        elif step in manifest:
            manifest = manifest[step]
        else:
            return ABSENT
    return manifest


def _pods(helm: Helm, *changes: dict[str, Any]) -> dict[str, Manifest]:
    """The pod spec of each part, and of the chart's own test."""
    manifests = rendered(helm, *values_of(*changes))
    found = {
        key: of_part(manifests, *WORKLOADS[key])["spec"]["template"]["spec"] for key in WORKLOADS
    }
    (found["test"],) = (each["spec"] for each in manifests if each["kind"] == "Pod")
    return found


def _one(helm: Helm, kind: str, *changes: dict[str, Any]) -> Manifest:
    (found,) = (each for each in rendered(helm, *values_of(*changes)) if each["kind"] == kind)
    return found


@pytest.mark.parametrize("key", WORKLOADS)
def test_values_of_a_part_reach_its_workload(helm: Helm, key: str) -> None:
    """Each field has the value that is set; before, it is absent or has the default."""
    rows = OF_PARTS + (OF_STATEFULSETS if key != "reconciliation" else [])
    unchanged = of_part(rendered(helm, *values_of()), *WORKLOADS[key])
    changed = of_part(
        rendered(helm, *values_of({key: {row.value: row.changed for row in rows}})), *WORKLOADS[key]
    )
    for row in rows:
        if row.value == "extraVolumes":
            assert row.changed[0] not in unchanged["spec"]["template"]["spec"]["volumes"]
            assert changed["spec"]["template"]["spec"]["volumes"][-1] == row.changed[0]
            continue
        assert _at(unchanged, row.field) == row.default, row.value
        assert _at(changed, row.field) == row.changed, row.value


def test_values_of_all_pods_reach_each(helm: Helm) -> None:
    """All parts' pods get these values; the test's pod gets the pull secrets only."""
    unchanged = _pods(helm)
    changed = _pods(helm, {row.value: row.changed for row in OF_PODS})
    for part, pod in unchanged.items():
        for row in OF_PODS:
            if part == "test" and row.value != "imagePullSecrets":
                continue
            assert _at(pod, row.field) == row.default, (part, row.value)
            assert _at(changed[part], row.field) == row.changed, (part, row.value)


def test_pull_secrets_of_the_release_come_first_and_once(helm: Helm) -> None:
    """Secrets are given by name or as an object, as in parent charts."""
    chosen = {
        "global": {"imagePullSecrets": ["shared", {"name": "registry"}]},
        "imagePullSecrets": [{"name": "registry"}, {"name": "own"}],
    }
    for pod in _pods(helm, chosen).values():
        assert pod["imagePullSecrets"] == [
            {"name": "shared"},
            {"name": "registry"},
            {"name": "own"},
        ]


@pytest.mark.parametrize(
    ("chosen", "image"),
    [
        ({}, "mirrortest/mirrortest:0.1.0"),
        ({"image": {"tag": "7"}}, "mirrortest/mirrortest:7"),
        ({"image": {"registry": "r.example/"}}, "r.example/mirrortest/mirrortest:0.1.0"),
        ({"image": {"tag": "7", "digest": DIGEST}}, f"mirrortest/mirrortest@{DIGEST}"),
        (
            {"global": {"imageRegistry": "g.example"}, "image": {"registry": "r.example"}},
            "g.example/mirrortest/mirrortest:0.1.0",
        ),
    ],
)
def test_images_come_from_where_the_values_say(
    helm: Helm, chosen: dict[str, Any], image: str
) -> None:
    """The global registry overrides the image's, a digest overrides a tag; the same for Spark."""
    spark = {"reconciliation": {"image": chosen.get("image", {})}}
    for part, pod in _pods(helm, chosen, spark).items():
        expected = image
        if part == "reconciliation":
            expected = image.replace("mirrortest/mirrortest", "mirrortest/mirrortest-reconcile")
        assert pod["containers"][0]["image"] == expected


def test_the_spark_application_has_the_values_of_its_pods(helm: Helm) -> None:
    """Driver and executors get the pod values of the Job; pull secrets are names there."""
    placed = {
        "initContainers": INIT,
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"a": "b"},
        "priorityClassName": "high",
    }
    chosen = {
        "reconciliation": {"kind": "SparkApplication", "podAnnotations": {"c": "d"}, **placed},
        "imagePullSecrets": [{"name": "registry"}],
        "commonAnnotations": {"c": "of all", "owner": "us"},
    }
    spec = _one(helm, "SparkApplication", chosen)["spec"]
    assert spec["imagePullSecrets"] == ["registry"]
    for pods in (spec["driver"], spec["executor"]):
        assert {name: pods[name] for name in placed} == placed
        assert pods["annotations"] == {"c": "d", "owner": "us"}


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_values_of_a_monitor_reach_it(helm: Helm, kind: str) -> None:
    """Each field has the value that is set; before, it is absent or has the default."""
    key = kind[0].lower() + kind[1:]
    endpoints = "podMetricsEndpoints" if kind == "PodMonitor" else "endpoints"
    only = {"podMonitor": {"enabled": False}, key: {"enabled": True}}
    unchanged = _one(helm, kind, {"monitoring": only})
    values = {row.value: row.changed for row in OF_MONITORS + OF_MONITORS_SPECS}
    changed = _one(helm, kind, {"monitoring": {**only, key: {"enabled": True, **values}}})
    rows = [row._replace(field=f"spec.{endpoints}.0.{row.field}") for row in OF_MONITORS]
    for row in rows + OF_MONITORS_SPECS:
        assert _at(unchanged, row.field) == row.default, row.value
        assert _at(changed, row.field) == row.changed, row.value


def test_the_chart_s_own_labels_cannot_be_changed(helm: Helm) -> None:
    """They are refused; labels of one part override common ones, and empty ones are none."""
    workload = of_part(rendered(helm, *values_of()), *WORKLOADS["consumers"])
    for label in workload["metadata"]["labels"]:
        for wrong in ({"commonLabels": {label: "x"}}, {"consumers": {"podLabels": {label: "x"}}}):
            assert re.search(rf"abels has {label}, which", refusal(helm, *values_of(wrong))), label
    labels = {"team": "of one", "app.kubernetes.io/part-of": "of one"}
    chosen = {
        "commonLabels": {"team": "of all", "site": "here"},
        "consumers": {"podLabels": {"team": "of one"}},
        "monitoring": {"podMonitor": {"labels": labels}},
    }
    manifests = rendered(helm, *values_of(chosen))
    for found in (
        of_part(manifests, *WORKLOADS["consumers"])["spec"]["template"]["metadata"]["labels"],
        _one(helm, "PodMonitor", chosen)["metadata"]["labels"],
    ):
        assert (found["team"], found["site"]) == ("of one", "here")
    assert rendered(helm, *values_of({"commonLabels": None, "consumers": {"podLabels": None}}))


def test_no_key_is_rendered_twice(helm: Helm) -> None:
    """Neither labels nor annotations, wherever users may set them."""
    both = {"team": "kafka", "kubectl.kubernetes.io/default-container": "mine"}
    keys = {"podLabels": {"team": "kafka"}, "podAnnotations": both, "annotations": both}
    chosen = {
        "commonLabels": {"team": "kafka"},
        "commonAnnotations": both,
        **dict.fromkeys(WORKLOADS, keys),
        "monitoring": {
            name: {"enabled": True, "labels": {"team": "kafka"}, "annotations": both}
            for name in ("podMonitor", "prometheusRule", "dashboards")
        },
    }
    done = helm("template", "dc1", str(CHART), *values_of(chosen))
    assert done.returncode == 0, done.stderr
    for document in done.stdout.split("\n---\n"):
        for node in _mappings(yaml.compose(document)):
            names = [key.value for key, _ in node.value]
            assert len(set(names)) == len(names), names


def _mappings(node: Any) -> Iterator[yaml.MappingNode]:
    """All mappings below a node of YAML."""
    if isinstance(node, yaml.MappingNode):
        yield node
        for _, below in node.value:
            yield from _mappings(below)
    elif isinstance(node, yaml.SequenceNode):
        for below in node.value:
            yield from _mappings(below)


def test_a_name_of_digits_is_text(helm: Helm) -> None:
    """Labels are strings also where a release or the chart is named by a number."""
    named = ("--set-string", "nameOverride=12,fullnameOverride=seven")
    done = helm("template", "7", str(CHART), *named, *values_of())
    assert done.returncode == 0, done.stderr
    for manifest in yaml.safe_load_all(done.stdout):
        labels = manifest["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "7"
        assert labels["app.kubernetes.io/name"] == "12"


@pytest.mark.parametrize(
    ("kind", "persistent", "claimed"),
    [("StatefulSet", True, True), ("StatefulSet", False, False), ("Job", True, False)],
)
def test_only_pods_of_a_statefulset_have_claims_for_unfinished_files(
    helm: Helm, kind: str, persistent: bool, claimed: bool
) -> None:
    """A Job's pod that is replaced has another name, and would not find a claim of its own."""
    logs = {"uri": "s3://b/l", "spool": {"persistent": persistent}}
    manifests = rendered(
        helm, *values_of({"logs": logs, "consumers": {"kind": kind, "group": "g"}})
    )
    spec = of_part(manifests, kind, "consumer")["spec"]
    volumes = [each["name"] for each in spec["template"]["spec"]["volumes"]]
    assert ("volumeClaimTemplates" in spec, "spool" in volumes) == (claimed, not claimed)


@pytest.mark.parametrize("kind", ["CronJob", "SparkApplication"])
def test_long_names_are_cut_to_what_kubernetes_takes(helm: Helm, kind: str) -> None:
    """A CronJob may have 52 letters; the Spark operator adds seven for the driver's service."""
    chosen = {
        "fullnameOverride": "n" * 80,
        "reconciliation": {"kind": kind},
        "nightly": {"enabled": True, "scenarios": {"a": "b"}},
    }
    names = {
        (each["kind"], each["metadata"]["labels"].get("app.kubernetes.io/component")): len(
            each["metadata"]["name"]
        )
        for each in rendered(helm, *values_of(chosen))
    }
    most = {"CronJob": 52, "SparkApplication": 63 - len("-ui-svc")}
    assert names["CronJob", "nightly"] <= most["CronJob"]
    assert names[kind, "reconciliation"] <= most[kind]


@pytest.mark.parametrize("egress", [[], [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]])
def test_a_network_policy_lets_the_releases_pods_reach_each_other(
    helm: Helm, egress: list[dict[str, Any]]
) -> None:
    """On all ports: Spark's executors reach their driver, and the chart's test reaches the pods."""
    policy = {"enabled": True, "egress": egress}
    manifests = rendered(
        helm,
        *values_of({"networkPolicy": policy, "reconciliation": {"kind": "SparkApplication"}}),
    )
    (spec,) = (each["spec"] for each in manifests if each["kind"] == "NetworkPolicy")
    assert {"from": [{"podSelector": spec["podSelector"]}]} in spec["ingress"]
    assert ("Egress" in spec["policyTypes"]) == bool(egress)
    assert ({"to": [{"podSelector": spec["podSelector"]}]} in spec.get("egress", [])) == bool(
        egress
    )
    (test,) = (each["metadata"] for each in manifests if each["kind"] == "Pod")
    (spark,) = (each["spec"] for each in manifests if each["kind"] == "SparkApplication")
    for labels in (test["labels"], spark["driver"]["labels"], spark["executor"]["labels"]):
        assert spec["podSelector"]["matchLabels"].items() <= labels.items()


def _rule(helm: Helm, **values: Any) -> Manifest:
    return _one(helm, "PrometheusRule", {"monitoring": {"prometheusRule": values}})


def test_the_alerts_limits_are_those_of_the_values(helm: Helm) -> None:
    """The rules, with descriptions, are those that the generator writes for the same limits."""
    other: dict[str, Any] = {
        "window": "5m", "patience": "90s", "absence": "10m", "duplicates": 0.05, "latency": 2.5,
        "silence": 120, "skew": 1, "fullness": 0.5,
    }  # fmt: skip
    assert _rule(helm)["spec"] == rules(Limits())
    assert _rule(helm, limits=other)["spec"] == rules(Limits(**other))
    assert _rule(helm, limits={"latency": 1e6})["spec"] == rules(Limits(latency=1e6))
    assert _rule(helm, limits={"duplicates": 2e-5})["spec"] == rules(Limits(duplicates=2e-5))


def test_without_grafanas_address_alerts_have_no_links_into_it(helm: Helm) -> None:
    """Only the links into Grafana are left out; links to runbooks elsewhere stay."""
    links = {"dashboard_url", "panel_url", "runbook_url"}
    for runbook in ("", "https://docs.example/{alert}.html"):
        monitoring = {"grafanaUrl": "", "runbookUrl": runbook}
        found = _one(helm, "PrometheusRule", {"monitoring": monitoring})["spec"]["groups"][0]
        for rule, usual in zip(found["rules"], rules()["groups"][0]["rules"], strict=True):
            expected = dict(usual["annotations"])
            for name in links:
                del expected[name]
            if runbook:
                expected["runbook_url"] = runbook.replace("{alert}", rule["alert"])
            assert rule["annotations"] == expected
            assert {**rule, "annotations": None} == {**usual, "annotations": None}


def test_alerts_are_left_out_changed_and_added(helm: Helm) -> None:
    """The values have the names that kube-prometheus-stack uses."""
    more = [{"record": "team:lag", "expr": "sum(mirrortest_consumer_lag_messages)"}]
    usual = {rule["alert"]: rule for rule in rules()["groups"][0]["rules"]}
    changed = _rule(
        helm,
        annotations={"a": "b"},
        disabled={"MirrortestClockUnbounded": True, "MirrortestLoss": False},
        customRules={"MirrortestLatencyHigh": {"for": "5m", "severity": "page"}},
        keepFiringFor="10m",
        additionalRuleLabels={"team": "kafka"},
        additionalRuleAnnotations={"channel": "ops"},
        extraRules=more,
    )
    ours, theirs = changed["spec"]["groups"]
    assert changed["metadata"]["annotations"] == {"a": "b"}
    assert theirs == {"name": "mirrortest-extra", "rules": more}
    found = {rule["alert"]: rule for rule in ours["rules"]}
    assert usual.keys() - found.keys() == {"MirrortestClockUnbounded"}
    for name, rule in found.items():
        assert rule["keep_firing_for"] == "10m"
        severity = "page" if name == "MirrortestLatencyHigh" else usual[name]["labels"]["severity"]
        assert rule["labels"] == {"severity": severity, "team": "kafka"}
        assert rule["annotations"] == {**usual[name]["annotations"], "channel": "ops"}
    assert found["MirrortestLatencyHigh"]["for"] == "5m"
    assert found["MirrortestMirrorStalled"]["for"] == "1m"
