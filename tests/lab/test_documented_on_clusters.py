"""Commands of the documents that need clusters, run as they are written there."""

from __future__ import annotations

import json
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from mirrortest.lab.free_ports import free_ports
from tests import documented
from tests.lab.harness import Command

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mirrortest.lab import Lab
    from tests.documented import Shown

pytestmark = pytest.mark.lab

TOPICS = ("orders", "clicks.eu", "clicks", "load")
AT_ONCE = 4
"""Commands in parallel: they mostly wait."""
SHORT = {
    "produce": ("--duration", "1s", "--num-records", "1000"),
    "consume": ("--settle-time", "1s"),
    "observe": ("--duration", "1s"),
    # Another alias, so as not to write into the copies of the lab's mirror.
    "sabotage": ("--idle-timeout", "2s", "--source-alias", "S"),
    "doctor": (),
}
"""Options that come after the document's, and override them."""
INSTEAD = {"--replication-factor": "1", "--workers": "2", "--start-at": "+15s"}
"""Values of documented options that suit one broker, few cores and today's date."""
FEWER = {"50000": "100"}


class Place:
    """The documents' two data centres: this lab, with its own topics and runs."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder, self.number = lab, folder, 0
        self.unique = uuid.uuid4().hex[:4]
        source, destination = lab.source.bootstrap_servers, lab.destination.bootstrap_servers
        self.places = {f"dc1:{port}": source for port in (9092, 9093)}
        self.places |= {"dc2:9092": destination, **FEWER}
        self.topics = {topic: f"{topic}.{self.unique}" for topic in TOPICS}
        self.places |= {**self.topics, "9464": str(free_ports(1)[0])}
        self.places |= {f"A.{topic}": f"A.{name}" for topic, name in self.topics.items()}
        self.places["A[.].*"] = f"A[.].*{self.unique}"
        runs = {each.words[each.words.index("--run") + 1] for each in documented.shown()
                if "--run" in each.words}  # fmt: skip
        self.places |= {run: f"{run}{self.unique}" for run in runs}
        files = {
            "client.properties": "client.id=documented\n",
            "orders-monday.csv": "time,rate\n0,120\n15,135.5\n",
            "orders.jsonl": '{"order": 1}\n{"order": 2}\n',
            "bench.toml": f'topics = "{self.topics["load"]}"\nthroughput = 200\n',
            **dict.fromkeys(
                ("faults.toml", "wrongs.toml"), '[[acts]]\nkind = "drop"\nrate = 0.01\n'
            ),
        }
        for name, text in files.items():
            (folder / name).write_text(text)

    def create(self) -> None:
        for topic in self.topics.values():
            self.lab.source.create_topic(topic, 8)
        for topic in self.topics.values():
            self.lab.mirror.wait_topic(topic)

    def run(self, shown: Iterable[Shown]) -> list[Command]:
        """Run these commands, some in parallel.

        Each must succeed, except consumers of one shard: nobody consumes the other shards, so they
        are inconclusive.
        """
        left, ended, failed = list(shown), list[Command](), list[str]()
        while left:
            now, left = left[:AT_ONCE], left[AT_ONCE:]
            with ExitStack() as stack:
                running = [stack.enter_context(self._start(each)) for each in now]
                for each, command in zip(now, running, strict=True):
                    if (code := command.wait()) != (3 if "--shard" in each.words else 0):
                        failed.append(f"{each}: {code}\n{command.stderr}{command.stdout}")
                ended += running
        assert not failed, "\n".join(failed)
        return ended

    def _start(self, shown: Shown) -> Command:
        self.number += 1
        words = documented.adapted(shown.words, self.places)
        more = [*SHORT[shown.verb]]
        for option in INSTEAD.keys() & set(words):
            more += [option, INSTEAD[option]]
        if shown.verb == "consume":  # its own: a consumer does not read what an earlier one judged
            more += ["--state-topic", f"state.{self.unique}.{self.number}"]
        if "--shard" in words:
            more += ["--duration", "20s"]
        if "''" in str(shown):  # a mirror that keeps names: the copies are the topics themselves
            words[words.index(self.lab.destination.bootstrap_servers)] = (
                self.lab.source.bootstrap_servers
            )
        if shown.verb == "sabotage":
            more += ["--topics", self.topics["orders"], "--truth", f"truth-{self.number}"]
        return Command([*words, *more], self.folder, f"{shown.verb}-{self.number}")


@pytest.fixture(scope="module")
def place(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """With the messages of all documented producers, each of which ran for a second."""
    there = Place(lab, tmp_path_factory.mktemp("documented"))
    there.create()
    shown = documented.commands("produce")
    printing = [each for each in shown if "--print-workload" in each.words]
    (printed,) = there.run(printing)
    (there.folder / "climb.toml").write_text(printed.stdout)
    repeating = [each for each in shown if "workload.json" in each.words]
    first = [each for each in shown if each not in printing and each not in repeating]
    for shown_one, ended in zip(first, there.run(first), strict=True):
        if "climb.toml" in shown_one.words:
            workload = json.loads(ended.stdout)["workload"]
            (there.folder / "workload.json").write_text(json.dumps(workload))
    there.run(repeating)
    return there


def test_consumers(place: Place) -> None:
    """Each documented consumer passes; one of a single shard is inconclusive."""
    place.run(documented.commands("consume"))


def test_doctors(place: Place) -> None:
    """Each documented doctor finds no error."""
    place.run(documented.commands("doctor"))


def test_observers(place: Place) -> None:
    """The documented observers of a cluster record its configuration."""
    place.run(documented.commands("observe", only="--bootstrap-server"))
    (profile,) = place.folder.glob("observations/*/profile.json")
    assert json.loads(profile.read_text())["clusters"]


def test_faulty_mirrors(place: Place) -> None:
    """The documented ones, with a specification and without, end once all is copied."""
    place.run(documented.commands("sabotage"))
