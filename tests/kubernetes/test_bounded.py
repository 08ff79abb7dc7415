"""Runs that end by themselves: Jobs on both sides, logs in an object store, a verdict as a status.

A nightly run of scenarios does, too. Each pod of the Jobs has two workers. The clusters
authenticate pods, which get their credentials from secrets. A CronJob reconciles. Helm 3 installs
all of it, if it is available: the walk uses Helm 4.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import boto3
import pytest
import yaml
from moto.server import ThreadedMotoServer

from tests.chart.tools import helm as helm_program
from tests.kubernetes.kube import LOGS_CLASS, SMALL, Kube, image, summary, until
from tests.tools import ToolMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.kubernetes.outside import Outside

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.timeout(900)]

CHART = Path(__file__).parents[2] / "helm" / "mirrortest"
KEY = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
DC1, DC2 = "mirrortest-bounded-dc1", "mirrortest-bounded-dc2"
NIGHTLY = "mirrortest-nightly"
SCENARIO = """
timeout = "2m"
[[produce]]
topics = "clicks.eu"
throughput = 200
duration = "5s"
[[consume]]
"""
PARTS = (2, 2)
"""Pods, and workers in each."""
RATE, SECONDS = 300, 25
KINDS = "statefulsets,jobs,cronjobs,pods,services,configmaps,pvc,networkpolicies,serviceaccounts"


@pytest.fixture
def store(host: str) -> Iterator[str]:
    """The URI of a bucket that pods reach."""
    server = ThreadedMotoServer(ip_address=host, port=0, verbose=False)
    server.start()
    address = f"http://{host}:{server.get_host_and_port()[1]}"
    boto3.client(
        "s3",
        endpoint_url=address,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    ).create_bucket(Bucket="logs")
    yield f"s3://logs/sequence?region=us-east-1&endpoint_override={quote(address, safe='')}"
    server.stop()


@pytest.fixture
def helm(tmp_path: Path) -> Callable[..., str]:
    """Runs Helm 3, else the one in PATH; values are a mapping."""
    try:
        program = str(helm_program(3))
    except ToolMissingError:
        program = str(shutil.which("helm"))

    def run(verb: str, release: str, namespace: str, values: dict[str, Any] | None = None) -> str:
        file = tmp_path / f"{release}.yaml"
        file.write_text(yaml.safe_dump(values))
        given = () if values is None else (str(CHART), "--values", str(file))
        done = subprocess.run(
            [program, verb, release, "--namespace", namespace, *given],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def _finished(kube: Kube, namespace: str, part: str) -> None:
    selector = f"app.kubernetes.io/component={part}"
    at = ("--namespace", namespace, "--selector", selector)
    kube.kubectl("wait", "job", *at, "--for=condition=Complete", "--timeout=170s")


def _secret(name: str, namespace: str, content: Mapping[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": content}


def _side(outside: Outside, side: str) -> dict[str, Any]:
    """The values of a cluster: its address, and the secrets with a client's credentials."""
    return {
        "bootstrapServers": getattr(outside, f"{side}_for_pods"),
        "clientProperties": {"existingSecret": f"{side}-properties", "key": "kafka"},
        "files": {"existingSecret": f"{side}-files"},
    }


def _keys(outside: Outside, namespace: str) -> list[dict[str, Any]]:
    """The secrets that `_side` names."""
    return [
        secret
        for name, door in outside.doors.items()
        for secret in (
            _secret(f"{name}-files", namespace, door.files),
            _secret(f"{name}-properties", namespace, {"kafka": door.client}),
        )
    ]


def test_jobs_end_with_the_verdict(
    kube: Kube,
    images: tuple[str, str],
    secured: Outside,
    store: str,
    helm: Callable[..., str],
    host: str,
) -> None:
    """The consumers' Job completes once the run has passed, though one of its pods is evicted."""
    pods, workers = PARTS
    for namespace in (DC1, DC2):
        kube.restricted_namespace(namespace)
        kube.apply(
            _secret("store", namespace, KEY),
            *_keys(secured, namespace),
        )
    shared = {
        "run": "bounded",
        "image": image(images[0]),
        "logs": {"uri": store, "credentials": {"existingSecret": "store"}},
        "source": _side(secured, "source"),
        # Not every cluster enforces network policies; on one that does, this policy is enough.
        "networkPolicy": {
            "enabled": True,
            "egress": [{"to": [{"ipBlock": {"cidr": f"{host}/32"}}]}],
        },
    }
    producing = {
        **shared,
        "producers": {
            **SMALL,
            "enabled": True,
            "kind": "Job",
            "replicas": pods,
            "workers": workers,
            "topics": ["orders"],
            "throughput": RATE,
            "duration": f"{SECONDS}s",
            "createTopics": {"enabled": True, "partitions": 4},
        },
    }
    judging: dict[str, Any] = {
        **shared,
        "destination": _side(secured, "destination"),
        "consumers": {
            **SMALL,
            "enabled": True,
            "kind": "Job",
            "replicas": pods,
            "workers": workers,
            "group": "judges",
            "topics": ["A.orders"],
            "sourceAlias": "A",
            "ledgerFromSource": True,
            "expectProducers": [
                f"dc1-mirrortest-producer-{pod}.{worker + 1}"
                for pod in range(pods)
                for worker in range(workers)
            ],
        },
        "reconciliation": {
            **SMALL,
            "kind": "CronJob",
            "schedule": "0 0 30 2 *",  # never: 30 February
            "image": image(images[1]),
            "json": True,
            "lookUp": True,
        },
    }
    assert "STATUS: deployed" in helm("install", "dc1", DC1, producing)
    notes = helm("install", "dc2", DC2, judging)
    assert "get jobs" in notes
    kube.wait_ready(DC2, "consumer", pods)
    until(lambda: bool(secured.destination.partitions("A.orders")), "the copy is there")
    kube.evict(DC2, next(iter(kube.pods(DC2, "consumer"))))
    _finished(kube, DC1, "producer")
    _finished(kube, DC2, "consumer")
    (job,) = kube.items("jobs", DC2)

    judging["reconciliation"]["enabled"] = True
    helm("upgrade", "dc2", DC2, judging)
    cron = "dc2-mirrortest-reconciliation"
    kube.kubectl("create", "job", "verdict", f"--from=cronjob/{cron}", "--namespace", DC2)
    _finished(kube, DC2, "reconciliation")
    jobs = {each["metadata"]["uid"] for each in kube.items("jobs", DC2)}
    assert job["metadata"]["uid"] in jobs, "what did not change is not run again"
    component = "app.kubernetes.io/component=reconciliation"
    answer = summary(kube.kubectl("logs", "-n", DC2, "-l", component, "--tail=-1"))
    assert answer["verdict"] == "passed"
    assert answer["counts"]["acked"] == answer["counts"]["delivered"] == pods * RATE * SECONDS
    assert answer["online"] == {"partitions": 4, "disagreements": []}

    for release, namespace in (("dc1", DC1), ("dc2", DC2)):
        helm("uninstall", release, namespace)
        until(
            lambda n=namespace: (
                {each["metadata"]["name"] for each in kube.items(KINDS, n)}
                == {"default", "kube-root-ca.crt"}
            ),
            "nothing is left",
        )


def test_a_night_runs_a_scenario_and_keeps_it(
    kube: Kube, images: tuple[str, str], secured: Outside, helm: Callable[..., str]
) -> None:
    """Its Job succeeds if nothing got worse; the volume claim outlives the release."""
    kube.restricted_namespace(NIGHTLY)
    kube.shared_volume(images[0], (NIGHTLY,))
    kube.apply(*_keys(secured, NIGHTLY))
    values = {
        "source": _side(secured, "source"),
        "destination": _side(secured, "destination"),
        "logs": {
            "volume": {
                "storageClassName": LOGS_CLASS,
                "selector": {"matchLabels": {"logs": NIGHTLY}},
            }
        },
        "reconciliation": {"image": image(images[1])},
        "nightly": {
            **SMALL,
            "enabled": True,
            "schedule": "0 0 30 2 *",  # never: 30 February
            "sourceAlias": "A",
            "scenarios": {"small": SCENARIO},
        },
    }
    notes = helm("install", "nights", NIGHTLY, values)
    command = "create job tonight --from=cronjob/nights-mirrortest-nightly"
    assert command in notes
    kube.kubectl(*command.split(), "--namespace", NIGHTLY)
    _finished(kube, NIGHTLY, "nightly")
    printed = kube.kubectl("logs", "job/tonight", "--namespace", NIGHTLY)
    assert "passed. All 1,000 acknowledged messages arrived" in printed
    assert printed.endswith("small: 1 of 1 as expected; the first of its history\n")
    helm("uninstall", "nights", NIGHTLY)
    (claim,) = kube.items("pvc", NIGHTLY)
    assert claim["metadata"]["name"] == "nights-mirrortest-logs"
