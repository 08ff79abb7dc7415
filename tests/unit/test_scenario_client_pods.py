"""A scenario's clients in pods: how they are started, and which files they get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pytest

from mirrortest.errors import UsageError
from mirrortest.scenario import client_pods
from mirrortest.scenario.clients import clients
from mirrortest.scenario.clusters import Sides
from tests.unit.scenario_documents import document
from tests.unit.scripted_clients import arguments

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.scenario.specification import Scenario

TEXT = """
timeout = "1m"
[clusters]
source-bootstrap-server = "a:1"
source-command-config = "source.properties"
destination-bootstrap-server = "b:1"
destination-command-config = "/etc/mounted.properties"
[kubernetes]
files = ["tls/ca.pem"]
pod = { nodeSelector = { disk = "fast" } }
[[produce]]
topics = "orders"
duration = "1s"
throughput = "replay(rate.csv)"
payload-file = "payloads.txt"
[[consume]]
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("source.properties", "tls/ca.pem", "rate.csv", "payloads.txt", "unused"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def scenario(text: str, home: Path) -> Scenario:
    return document(text, home).scenario()


class Recorded:
    """Replaces a run's pods, and records what they would be created from."""

    def __init__(self, _kubectl: object, settings: Any) -> None:
        self.settings = settings
        everything.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


everything: list[Recorded] = []


def test_clients_write_into_their_pods_and_the_files_that_they_read_go_along(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pods get the files that options or `files` name; paths in commands are the pod's."""
    monkeypatch.setattr(client_pods, "Pods", Recorded)
    everything.clear()
    found = scenario(TEXT, home)
    point = tmp_path / "out" / "point-001"
    sides = Sides({"bootstrap-server": "a:1"}, {"bootstrap-server": "b:1"}, "A")
    with client_pods.running_place(found, "r1", point, home) as place:
        producer, consumer = clients(found, sides, "r1", point, place, arguments)
    (created,) = everything
    assert created.settings.files == {
        "tls/ca.pem": b"tls/ca.pem",
        "source.properties": b"source.properties",
        "rate.csv": b"rate.csv",
        "payloads.txt": b"payloads.txt",
    }
    assert created.settings.labels["mirrortest.run"] == "r1"
    assert created.settings.overlay == {"nodeSelector": {"disk": "fast"}}
    assert created.settings.seconds > 60
    assert producer._command[:2] == ("mirrortest", "produce")
    assert "/point/clients/p1.json" in producer._command
    assert str(tmp_path) not in " ".join((*producer._command, *consumer._command))
    assert consumer.log == point / "clients" / "c1.log"


def test_an_output_directory_has_a_label_of_its_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this label the next run finds what a killed one left, and nothing of other outputs."""
    monkeypatch.setattr(client_pods, "Pods", Recorded)
    everything.clear()
    for output in ("a", "a", "b"):
        point = home / output / "point-001"
        with client_pods.running_place(scenario(TEXT, home), "r1", point, home):
            pass
    first, again, other = (each.settings.labels["mirrortest.output"] for each in everything)
    assert first == again != other


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        ('"tls/ca.pem"', '"none.pem"', "none.pem cannot be read"),
        ('"source.properties"', '"none.properties"', "none.properties cannot be read"),
        ('"tls/ca.pem"', '"../ca.pem"', "must be in the scenario's directory"),
        ('"tls/ca.pem"', '"/etc/ca.pem"', "must be in the scenario's directory"),
        ('"tls/ca.pem"', '"large"', "1,048,577 bytes, and a Secret holds 1,048,576"),
    ],
)
def test_a_file_that_cannot_go_along_is_refused_before_anything_is_started(
    home: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, answer: str
) -> None:
    """The error names the file and the problem."""
    monkeypatch.setattr("mirrortest.scenario.client_pods.Kubectl.check", lambda _: None)
    for name in ("source.properties", "rate.csv", "payloads.txt"):
        (home / name).write_text("")
    (home / "large").write_bytes(bytes((1 << 20) + 1))
    client_pods.check_pods([scenario(TEXT, home)], home)
    with pytest.raises(UsageError, match=answer):
        client_pods.check_pods([scenario(TEXT.replace(old, new), home)], home)


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        ('timeout = "1m"', "", r"\[kubernetes\] needs timeout"),
        ('image = "x"', 'imag = "x"', "did you mean image?"),
    ],
)
def test_a_table_that_cannot_work_is_refused(home: Path, old: str, new: str, answer: str) -> None:
    """The error names the missing or misspelt key."""
    text = TEXT.replace("[kubernetes]", '[kubernetes]\nimage = "x"')
    with pytest.raises(UsageError, match=answer):
        scenario(text.replace(old, new), home)


def test_it_is_for_clusters_that_exist(home: Path) -> None:
    """Pods cannot reach the lab, which runs on this machine."""
    with pytest.raises(UsageError, match=r"\[kubernetes\] needs \[clusters\]"):
        scenario('timeout = "1m"\n[lab]\n[kubernetes]\n[[consume]]\n', home)
