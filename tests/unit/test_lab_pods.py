"""Programs in pods: manifests, life cycle, and the files that return, without Kubernetes."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
import yaml

from mirrortest.errors import LabError
from mirrortest.lab.kubernetes.manifest import (
    CLIENT,
    IMAGE,
    KEEPER,
    OWNER,
    RUN,
    PodSettings,
    client_pod,
    files_secret,
)
from mirrortest.lab.kubernetes.pod_status import PodStatus
from mirrortest.lab.kubernetes.pods import LogLine, Pods
from mirrortest.lab.kubernetes.program import PodProgram
from mirrortest.lab.part import Part
from mirrortest.lab.runtime import PartState
from tests.lab.harness import until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


ROOT = Path(__file__).parents[2]
SETTINGS = PodSettings(
    labels={RUN: "r1", OWNER: "o1"},
    directories=("logs", "clients"),
    seconds=60,
    files={"source.properties": b"sasl.jaas.config=... password=hunter2", "tls/ca.pem": b"PEM"},
    overlay={
        "nodeSelector": {"disk": "fast"},
        "securityContext": {"runAsUser": 20000},
        "containers": [{"name": "client", "resources": {"requests": {"cpu": "2"}}}],
        "volumes": [{"name": "more", "emptyDir": {}}],
    },
)
STATUS = "/point/clients/p1.status.json"
RUNNING = PodStatus(started=True)


def manifest(settings: PodSettings = SETTINGS) -> dict[str, Any]:
    return client_pod(settings, "P.1", ["mirrortest", "produce"], {"A": "b"}, ["keep"])


def test_a_pod_is_as_restricted_as_the_chart_s() -> None:
    """This holds for both containers; Kubernetes itself ends the pod after a time."""
    values = yaml.safe_load((ROOT / "helm/mirrortest/values.yaml").read_text())
    spec = manifest(PodSettings(labels={RUN: "r1"}, directories=(), seconds=60))["spec"]
    assert spec["securityContext"] == values["podSecurityContext"]
    assert [each["securityContext"] for each in spec["containers"]] == [
        values["securityContext"]
    ] * 2
    assert spec["restartPolicy"] == "Never"
    assert spec["activeDeadlineSeconds"] == 60
    chart = yaml.safe_load((ROOT / "helm/mirrortest/Chart.yaml").read_text())
    assert f"{values['image']['repository']}:{chart['appVersion']}" == IMAGE


def test_fields_of_the_users_are_put_over_those_of_the_pod() -> None:
    """Containers and volumes are merged by name; their other fields stay."""
    pod = manifest()
    spec = pod["spec"]
    client, keeper = spec["containers"]
    assert client["resources"] == {
        "requests": {"cpu": "2", "memory": "512Mi"},
        "limits": {"memory": "2Gi"},
    }
    assert keeper["resources"]["requests"]["cpu"] == "10m"
    assert spec["nodeSelector"] == {"disk": "fast"}
    assert spec["securityContext"]["runAsUser"] == 20000
    assert spec["securityContext"]["runAsNonRoot"] is True
    names = [volume["name"] for volume in spec["volumes"]]
    assert names == ["logs", "clients", "tmp", "scenario", "more"]
    assert pod["metadata"]["generateName"] == "mirrortest-r1-p-1-"
    assert {"name": "A", "value": "b"} in client["env"]


def test_files_are_in_a_secret_that_the_client_alone_sees() -> None:
    """They are mounted under their own names; the pod does not contain their content."""
    secret = files_secret(SETTINGS)
    assert set(secret["data"]) == {"file-0", "file-1"}
    pod = manifest()
    client, keeper = pod["spec"]["containers"]
    assert client["workingDir"] == "/scenario"
    assert "/scenario" in [mount["mountPath"] for mount in client["volumeMounts"]]
    assert "/scenario" not in [mount["mountPath"] for mount in keeper["volumeMounts"]]
    (volume,) = (each["secret"] for each in pod["spec"]["volumes"] if "secret" in each)
    assert [item["path"] for item in volume["items"]] == list(SETTINGS.files)
    assert volume["secretName"] == secret["metadata"]["name"]
    assert "hunter2" not in json.dumps(pod)


def answer(client: dict[str, Any], keeper: dict[str, Any] | None = None, **more: Any) -> PodStatus:
    states = ((CLIENT, client), (KEEPER, keeper or {"running": {}}))
    found = [{"name": name, "state": state} for name, state in states]
    return PodStatus.of({"status": {"phase": "Running", "containerStatuses": found, **more}})


def test_what_kubernetes_answers_is_a_client_s_state() -> None:
    """Kubernetes' own reason is in it if a container does not start, or ends for a reason."""
    assert answer({"running": {}}) == RUNNING
    assert answer({"terminated": {"exitCode": 3, "reason": "Error"}}) == PodStatus(True, 3)
    killed = answer({"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
    assert (killed.exit_code, killed.reason) == (137, "OOMKilled")
    creating = answer({"waiting": {"reason": "ContainerCreating"}})
    assert (creating.started, creating.hopeless) == (False, False)
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}
    for state in (
        answer({"waiting": waiting}),
        answer({"waiting": {"reason": "ContainerCreating"}}, {"waiting": waiting}),
    ):
        assert state.hopeless
        assert state.reason == 'ImagePullBackOff: Back-off pulling image "x"'
    lost = answer({"running": {}}, {"terminated": {"exitCode": 1, "reason": "Error"}})
    assert (lost.started, lost.hopeless) == (True, True)
    assert "keeps its files ended (exit code 1, Error): does the image have mirror" in lost.reason
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available",
    }
    pending = PodStatus.of({"status": {"phase": "Pending", "conditions": [condition]}})
    assert pending == PodStatus(reason="Unschedulable: 0/3 nodes are available")
    evicted = PodStatus.of({"status": {"phase": "Failed", "reason": "Evicted", "message": "full"}})
    assert (evicted.hopeless, evicted.reason) == (True, "Evicted: full")


class FakePods:
    """Replaces a run's pods, and records the calls."""

    trouble = ""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.signals: list[int] = []
        self.fetching: Exception | None = None
        self.present = PodStatus()
        self.on_signal: Any = lambda _: None

    def create(self, name: str, *_: object) -> str:
        self.created.append(f"{name}-{len(self.created)}")
        return self.created[-1]

    def status(self, pod: str) -> PodStatus:
        assert pod == self.created[-1]
        return self.present

    def delete(self, pod: str) -> None:
        self.deleted.append(pod)

    def execute(self, pod: str, *command: str) -> None:
        assert (pod, command[-1]) == (self.created[-1], STATUS)
        self.signals.append(int(command[-2]))
        self.on_signal(self.signals[-1])

    def fetch(self, _pod: str, into: Path) -> None:
        if self.fetching is not None:
            raise self.fetching
        (into / "fetched").touch()


@pytest.fixture
def pods() -> FakePods:
    return FakePods()


@pytest.fixture
def program(pods: FakePods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PodProgram:
    monkeypatch.setattr("mirrortest.lab.kubernetes.program._FETCH_PAUSE", 0)
    found = PodProgram(
        pods,  # type: ignore[arg-type]
        "p1",
        followed={STATUS: tmp_path / "p1.status.json"},
        directory=tmp_path,
    )
    found.start(["mirrortest"], {}, tmp_path / "log")
    return found


def is_down(program: PodProgram) -> bool:
    return program.state is PartState.DOWN


def test_a_client_is_down_once_its_files_are_here(
    pods: FakePods, program: PodProgram, tmp_path: Path
) -> None:
    """Before that, its output is in the log, and its status in the file."""
    assert program.state is PartState.RUNNING
    program.update("p1-0", PodStatus(reason="ContainerCreating"), ())
    assert program.awaited == "ContainerCreating"
    figures = json.dumps({"file": STATUS, "text": '{"acked": 1}'})
    lines = [LogLine(CLIENT, "t1", "hello"), LogLine(KEEPER, "t2", figures)]
    program.update("p1-0", RUNNING, lines)
    assert (program.awaited, program.state) == ("", PartState.RUNNING)
    assert (tmp_path / "p1.status.json").read_text() == '{"acked": 1}'
    program.update("p1-0", PodStatus(True, 3), [LogLine(CLIENT, "t3", "bye")])
    until(lambda: is_down(program))
    assert (tmp_path / "fetched").exists()
    assert (tmp_path / "log").read_text() == "hello\nbye\n"
    assert (program.exit_code, pods.deleted) == (3, ["p1-0"])
    program.end(signal.SIGKILL, 1)
    assert pods.signals == []


def test_a_killed_client_is_started_again_in_another_pod(
    pods: FakePods, program: PodProgram, tmp_path: Path
) -> None:
    """Later updates about its first pod do not change the state of the second one."""
    program.update("p1-0", RUNNING, ())
    pods.on_signal = lambda _: program.update("p1-0", PodStatus(True, 137), ())
    program.end(signal.SIGKILL, 1)
    assert (pods.signals, pods.deleted) == ([signal.SIGKILL], ["p1-0"])
    program.start(["mirrortest"], {}, tmp_path / "log")
    program.update("p1-0", None, ())
    assert program.state is PartState.RUNNING
    assert program.exit_code is None


def test_a_frozen_client_goes_on_to_see_that_it_is_to_end(
    pods: FakePods, program: PodProgram
) -> None:
    """A frozen process does not handle SIGTERM, so SIGCONT follows."""
    program.update("p1-0", RUNNING, ())
    program.stop()
    assert program.state is PartState.STOPPED

    def end(number: int) -> None:
        if number == signal.SIGCONT:
            program.update("p1-0", PodStatus(True, 0), ())

    pods.on_signal = end
    program.end(signal.SIGTERM, 1)
    assert pods.signals == [signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT]


def test_a_pod_that_does_not_run_yet_is_only_deleted(pods: FakePods, program: PodProgram) -> None:
    """It has no files to fetch, and no process to signal."""
    with pytest.raises(LabError, match="not running"):
        program.send(signal.SIGTERM)
    program.end(signal.SIGTERM, 1)
    assert (pods.signals, pods.deleted, is_down(program)) == ([], ["p1-0"], True)


def test_a_pod_that_was_not_seen_to_start_yet_is_asked(
    pods: FakePods, program: PodProgram, tmp_path: Path
) -> None:
    """A client that ran, even briefly, has files."""
    pods.present = RUNNING
    pods.on_signal = lambda _: program.update("p1-0", PodStatus(True, 137), ())
    program.end(signal.SIGKILL, 1)
    assert pods.signals == [signal.SIGKILL]
    assert (tmp_path / "fetched").exists()


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (None, "its pod was deleted from outside"),
        (PodStatus(reason="ImagePullBackOff: x", hopeless=True), "not start: ImagePullBackOff: x"),
    ],
)
def test_a_pod_that_cannot_go_on_says_why_in_the_client_s_log(
    program: PodProgram, tmp_path: Path, status: PodStatus | None, answer: str
) -> None:
    """The point's result shows the log's last line."""
    program.update("p1-0", status, ())
    assert is_down(program)
    assert answer in (tmp_path / "log").read_text().splitlines()[-1]


@pytest.mark.parametrize("error", [LabError, RuntimeError])
def test_files_that_cannot_be_fetched_fail_whoever_ended_the_client(
    error: type[Exception], pods: FakePods, program: PodProgram, tmp_path: Path
) -> None:
    """Otherwise, the missing verdict of a client that a fault ends for good would go unnoticed.

    This holds for any error: the wait for a client's end has no time limit.
    """
    pods.fetching = error("kubectl exec: the node does not answer")
    program.update("p1-0", RUNNING, ())
    pods.on_signal = lambda _: program.update("p1-0", PodStatus(True, 137), ())
    with pytest.raises(LabError, match=r"cannot fetch its files from pod p1-0: .*does not answer"):
        program.end(signal.SIGKILL, 1)
    assert "cannot fetch its files" in (tmp_path / "log").read_text()


def test_a_pod_that_is_refused_is_one_line(tmp_path: Path) -> None:
    """The line has the reason; there is no log whose end could be shown."""

    class Refusing(FakePods):
        def create(self, name: str, *_: object) -> str:
            raise LabError(f"kubectl create: pods {name} is forbidden")

    program = PodProgram(
        Refusing(),  # type: ignore[arg-type]
        "p1",
        followed={},
        directory=tmp_path,
    )
    with pytest.raises(LabError) as caught:
        Part("p1", ["x"], tmp_path / "log", program=program).spawn()
    assert str(caught.value) == "p1 has no pod: kubectl create: pods p1 is forbidden"


class FakeKubectl:
    """Answers as kubectl does; each call for logs returns all of `printed`."""

    def __init__(self) -> None:
        self.printed = ""
        self.items: list[dict[str, Any]] = []
        self.deleted: list[tuple[str, ...]] = []
        self.fetched: list[tuple[object, ...]] = []
        self.failing = False
        self.answer: str | None = None
        """Returned in place of the pods, if set."""

    def __call__(self, *arguments: str, given: str | None = None) -> str:
        del given
        if self.failing:
            raise LabError("kubectl get: no route to host")
        if arguments[0] == "logs":
            return self.printed
        return json.dumps({"items": self.items}) if self.answer is None else self.answer

    def create(self, _manifest: Mapping[str, Any]) -> str:
        return "pod-1"

    def delete(self, *which: str, wait: bool) -> None:
        del wait
        self.deleted.append(which)

    def fetch(self, *arguments: object) -> None:
        self.fetched.append(arguments)


class Seen:
    """Collects the updates about a pod."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.statuses: list[PodStatus | None] = []

    def update(self, _pod: str, status: PodStatus | None, lines: Sequence[LogLine]) -> None:
        self.statuses.append(status)
        self.lines += [line.text for line in lines]


@pytest.fixture
def kubectl(monkeypatch: pytest.MonkeyPatch) -> FakeKubectl:
    """It has one pod, and is asked again at once."""
    monkeypatch.setattr("mirrortest.lab.kubernetes.pods.PAUSE", 0.01)
    found = FakeKubectl()
    found.items = [{"metadata": {"name": "pod-1"}, "status": {}}]
    return found


def test_each_line_is_seen_once_though_calls_overlap(kubectl: FakeKubectl) -> None:
    """While the cluster does not answer, nothing changes; pods are deleted before and after."""
    seen = Seen()
    with Pods(kubectl, SETTINGS) as pods:  # type: ignore[arg-type]
        assert kubectl.deleted == [("pods,secrets", "--selector=mirrortest.output=o1")]
        pods.create("p1", ["c"], {}, ["k"], seen.update)
        kubectl.printed = (
            'error: container "client" is waiting to start\n[pod/pod-1/client] t1 one\n'
        )
        until(lambda: len(seen.statuses) > 2)
        kubectl.printed += "[pod/pod-1/client] t2 one\n[pod/pod-1/client] t3 \n"
        until(lambda: len(seen.lines) == 3)
        kubectl.failing = True
        until(lambda: pods.trouble == "kubectl get: no route to host")
        kubectl.failing = False
        kubectl.items = []
        until(lambda: seen.statuses[-1] is None)
    assert seen.lines == ["one", "one", ""]
    assert kubectl.deleted[-1] == ("pods,secrets", "--selector=mirrortest.run=r1")


def test_directories_are_fetched_in_the_settings_order(
    kubectl: FakeKubectl, tmp_path: Path
) -> None:
    """A summary that was fetched shows that its sequence log was fetched before."""
    Pods(kubectl, SETTINGS).fetch("pod-1", tmp_path)  # type: ignore[arg-type]
    assert kubectl.fetched == [("pod-1", KEEPER, "/point", ("logs", "clients"), tmp_path)]


def test_an_answer_of_an_unexpected_form_ends_no_watch(kubectl: FakeKubectl) -> None:
    """Neither does an error in a client's `update`: the pods are read again."""
    seen, failures = Seen(), [RuntimeError("can't start new thread")]

    def failing_once(*found: Any) -> None:
        if failures:
            raise failures.pop()
        seen.update(*found)

    with (
        structlog.testing.capture_logs() as logged,
        Pods(kubectl, SETTINGS) as pods,  # type: ignore[arg-type]
    ):
        pods.create("p1", ["c"], {}, ["k"], failing_once)
        until(lambda: seen.statuses)
        for kubectl.answer in ("{}", "no JSON", '{"items": [{"status": 1}]}', "[]"):
            until(lambda: pods.trouble.endswith(f"has an unexpected form: {kubectl.answer!r}"))
        with pytest.raises(LabError, match="unexpected form"):
            pods.status("pod-1")
        kubectl.answer, count = None, len(seen.statuses)
        until(lambda: len(seen.statuses) > count)
        assert pods.trouble == ""
    assert [each["event"] for each in logged] == [
        "could not process a pod's status or logs",
        "the pods cannot be watched, trying again",
        "the pods are watched again",
    ]
