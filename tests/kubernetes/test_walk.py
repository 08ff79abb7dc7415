"""docs/how-to/kubernetes.md, run on a real Kubernetes: from `helm install` to the verdict.

Meanwhile pods are deleted by force and gracefully, rolled, evicted and stalled. No message may be
lost, no false finding reported, and the reconciliation must agree with the consumers.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.kubernetes.kube import LOGS_CLASS, SMALL, Kube, image, summary, until
from tests.kubernetes.walk import Walk

if TYPE_CHECKING:
    from tests.kubernetes.outside import Outside

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
DC1, DC2 = "mirrortest-dc1", "mirrortest-dc2"
"""The document's names of the namespaces."""
PRODUCERS = [f"dc1-mirrortest-producer-{number}" for number in range(3)]
CONSUMERS = [f"dc2-mirrortest-consumer-{number}" for number in (1, 2)]
FINE = {"acked", "delivered", "duplicated", "unknown", "surplus", "seen", "sent"}
"""Counts that a clean run may have: a killed producer leaves unknown outcomes, and a resumed mirror
may repeat messages."""


def _overrides(
    outside: Outside, images: tuple[str, str], namespace: str, *, part: str
) -> dict[str, object]:
    """The values for this cluster; all others are the document's."""
    return {
        "image": image(images[0]),
        part: {"bootstrapServers": getattr(outside, f"{part}_for_pods")},
        "logs": {
            "volume": {
                "storageClassName": LOGS_CLASS,
                "selector": {"matchLabels": {"logs": namespace}},
            }
        },
        "producers": SMALL,
        "observers": SMALL,
        # A stalled pod is found sooner than is reasonable in production.
        "consumers": {
            **SMALL,
            "probes": {
                "liveness": {
                    "periodSeconds": 2,
                    "timeoutSeconds": 2,
                    "failureThreshold": 3,
                    "terminationGracePeriodSeconds": 1,
                }
            },
        },
        "reconciliation": {"image": image(images[1]), **SMALL},
    }


@pytest.fixture
def walk(tmp_path: Path, kube: Kube, images: tuple[str, str], outside: Outside) -> Walk:
    """The document, with a helm that adds these values to each installation and upgrade."""
    for release, namespace, part in (("dc1", DC1, "source"), ("dc2", DC2, "destination")):
        special = _overrides(outside, images, namespace, part=part)
        (tmp_path / f"special-{release}.yaml").write_text(yaml.safe_dump(special))
    (tmp_path / "helm").symlink_to(ROOT / "helm")
    programs = tmp_path / "bin"
    programs.mkdir()
    shim = programs / "helm"
    shim.write_text(
        "#!/bin/sh\n"
        'case "$1" in install|upgrade)'
        f' set -- "$@" --values "{tmp_path}/special-$2.yaml";; esac\n'
        f'exec {shutil.which("helm")} "$@"\n'
    )
    shim.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    return Walk(ROOT / "docs" / "how-to" / "kubernetes.md", tmp_path, {**os.environ, "PATH": path})


def _restricted(kube: Kube) -> None:
    """The namespace refuses a pod that is not restricted, so all pods that run are."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "loose", "namespace": DC1},
        "spec": {"containers": [{"name": "c", "image": "c"}]},
    }
    with pytest.raises(AssertionError, match="violates PodSecurity"):
        kube.apply(pod)


def _judged(kube: Kube) -> bool:
    """Whether both consumers have a complete ledger, no lag and no message in flight."""
    for pod in CONSUMERS:
        metrics = kube.metrics(DC2, pod)
        complete = [v for (name, _), v in metrics.items() if name.endswith("ledger_complete")]
        lags = [v for (name, _), v in metrics.items() if name.endswith("lag_messages")]
        in_flight = [
            v
            for (name, labels), v in metrics.items()
            if name.endswith("consumer_findings") and "in_flight" in labels
        ]
        if complete != [1] or not lags or any(lags) or any(in_flight):
            return False
    return True


def _online_counts(kube: Kube) -> dict[str, int]:
    """The run's counts by finding: for each topic the highest that a consumer reports, added up."""
    highest: dict[str, dict[str, int]] = {}
    for pod in CONSUMERS:
        for (name, labels), value in kube.metrics(DC2, pod).items():
            if name.endswith(("consumer_findings", "delivered_messages")):
                topic, *finding = (label for label in labels if label != "consumer")
                each = highest.setdefault(finding[0] if finding else "delivered", {})
                each[topic] = max(each.get(topic, 0), int(value))
    return {finding: sum(by_topic.values()) for finding, by_topic in highest.items()}


def _arrivals(kube: Kube) -> float:
    found = kube.metrics(DC2, CONSUMERS[1])
    return sum(v for (name, _), v in found.items() if name.endswith("consumer_messages_total"))


def _goes_on(kube: Kube) -> None:
    """Wait until new messages arrive."""
    before = _arrivals(kube)
    until(lambda: _arrivals(kube) > before, "messages arrive")


def _restarts(kube: Kube, pod: str) -> int:
    statuses = kube.pods(DC2, "consumer")[pod]["status"].get("containerStatuses", [])
    return sum(status["restartCount"] for status in statuses)


def _uid(kube: Kube, namespace: str, part: str, pod: str) -> str:
    found = kube.pods(namespace, part).get(pod)
    return found["metadata"]["uid"] if found else ""


def test_from_installation_to_verdict(
    kube: Kube, walk: Walk, outside: Outside, images: tuple[str, str]
) -> None:
    """Every block of the document runs; the run passes, with the same counts online and offline."""
    kube.will_have(DC1, DC2)
    kube.shared_volume(images[0], (DC1, DC2))
    walk.run("namespaces")
    _restricted(kube)
    walk.run("install-dc1")
    walk.run("install-dc2")
    kube.wait_ready(DC1, "producer", 3)
    kube.wait_ready(DC2, "consumer", 2)
    walk.run("test")
    _goes_on(kube)
    assert "mirrortest_consumer_delivered_messages" in walk.run("watch")

    before = _uid(kube, DC2, "consumer", CONSUMERS[0])
    walk.run("kill-consumer")
    until(lambda: _uid(kube, DC2, "consumer", CONSUMERS[0]) not in {"", before}, "another pod")
    kube.wait_ready(DC2, "consumer", 2)
    walk.run("delete-producer")
    kube.wait_ready(DC1, "producer", 3)
    walk.run("roll")
    kube.wait_ready(DC1, "producer", 3)
    kube.wait_ready(DC2, "consumer", 2)
    for namespace, part, pod in (
        (DC1, "producer", PRODUCERS[2]),
        (DC2, "consumer", CONSUMERS[1]),
    ):
        before = _uid(kube, namespace, part, pod)
        kube.evict(namespace, pod)
        until(
            lambda n=namespace, p=part, was=before, name=pod: (
                _uid(kube, n, p, name) not in {"", was}
            ),
            f"{pod} comes again",
        )
        kube.wait_ready(namespace, part, 3 if part == "producer" else 2)
    restarts = _restarts(kube, CONSUMERS[1])
    kube.stall(images[0], CONSUMERS[1])
    until(lambda: _restarts(kube, CONSUMERS[1]) > restarts, "the stalled consumer is restarted")
    kube.wait_ready(DC2, "consumer", 2)
    _goes_on(kube)

    walk.run("end-producers")
    until(lambda: _judged(kube), "the consumers have judged everything")
    assert walk.run("judged").count("ledger_complete") >= len(CONSUMERS)
    online = _online_counts(kube)
    walk.run("end-consumers")
    answer = summary(walk.run("reconcile"))
    assert answer["verdict"] == "passed"
    assert answer["exit_code"] == 0
    assert {name for name, count in answer["counts"].items() if count} <= FINE
    assert answer["counts"]["acked"] > 0
    assert answer["counts"]["delivered"] == answer["counts"]["acked"]
    assert answer["online"] == {"partitions": 8, "disagreements": []}
    assert answer["inconclusive"] == []
    assert {name: n for name, n in online.items() if n} == {
        name: answer["counts"][name] for name in online if answer["counts"].get(name)
    }
    assert "exit code 99" in walk.run("refused")

    walk.run("uninstall")
    kinds = "statefulsets,jobs,pods,services,serviceaccounts,configmaps,pdb,pvc"
    left = {
        (item["kind"], item["metadata"]["name"])
        for namespace in (DC1, DC2)
        for item in kube.items(kinds, namespace)
    }
    mine = {(kind, name) for kind, name in left if name not in {"default", "kube-root-ca.crt"}}
    claim = "PersistentVolumeClaim"
    assert mine == {(claim, "dc1-mirrortest-logs"), (claim, "dc2-mirrortest-logs")}
    assert walk.left == set()
