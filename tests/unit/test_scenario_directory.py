"""A scenario as a directory of six files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirrortest.cli.client_tables import arguments
from mirrortest.errors import UsageError
from mirrortest.scenario import catalogue
from mirrortest.scenario.clients import clients, here
from mirrortest.scenario.clusters import Sides

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "server.properties": "num.io.threads=3\nlisteners=PLAINTEXT://:9092\nlog.dirs=/x\nbroker.id=7\n",
    "producer.properties": "linger.ms=20\n",
    "consumer.properties": "fetch.min.bytes=1\n",
    "producer-command": (
        "# as fast as it goes\nmirrortest produce --topics 'load' --num-records=2000 \\\n"
        "  --topic-config retention.ms=60000 --topic-config cleanup.policy=delete --portable\n"
    ),
    "consumer-command": "mirrortest consume --settle-time 1s\n",
    "env": "BROKERS=2\nproducers=2\nconsumers=1\n",
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "wiki"
    made.mkdir()
    for name, text in FILES.items():
        made.joinpath(name).write_text(text)
    return made


def test_the_six_files_are_a_scenario(directory: Path, tmp_path: Path) -> None:
    """`env` sets the number of each; the broker's id, listeners and directory stay the lab's."""
    scenario = catalogue.find(str(directory)).scenario()
    assert scenario.lab is not None
    assert (scenario.lab.brokers, scenario.lab.mirror) == (2, "none")
    assert scenario.lab.broker == {"num.io.threads": "3"}
    assert scenario.observe == {"csv": True}
    side = {"bootstrap-server": "a:1"}
    found = clients(
        scenario, Sides(side, side, ""), "r1", tmp_path, here(tmp_path, tmp_path), arguments
    )
    assert [(client.verb, client.name) for client in found] == [
        ("produce", "p1"),
        ("produce", "p2"),
        ("consume", "c1"),
    ]
    for option in (
        "--command-config=producer.properties",
        "--topics=load",
        "--num-records=2000",
        "--topic-config=retention.ms=60000",
        "--topic-config=cleanup.policy=delete",
        "--portable",
    ):
        assert option in found[0]._command
    assert "--settle-time=1s" in found[2]._command
    assert "--topics=load" in found[2]._command


@pytest.mark.parametrize(
    ("file", "text", "answer"),
    [
        ("env", "brokerss=2", "env: brokerss: did you mean brokers?"),
        ("env", "brokers=two", "env: brokers 'two': must be a number"),
        ("env", "mirror=mirrormaker", "lab.mirror: use 'mirrormaker2', "),
        ("producer-command", "produce --topics x", "begins with mirrortest produce"),
        ("producer-command", "mirrortest produce load", "'load': write options with two dashes"),
        ("producer-command", "mirrortest produce 'x", "producer-command: No closing quotation"),
        ("producer-command", "mirrortest produce --topics x", "a producer has no end"),
    ],
)
def test_a_mistake_names_the_file(directory: Path, file: str, text: str, answer: str) -> None:
    """In one line."""
    directory.joinpath(file).write_text(text)
    with pytest.raises(UsageError) as caught:
        catalogue.find(str(directory)).scenario()
    assert answer in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(directory: Path) -> None:
    """Each of the six is needed."""
    for name in FILES:
        directory.joinpath(name).rename(directory / "moved")
        with pytest.raises(UsageError, match=name):
            catalogue.find(str(directory))
        (directory / "moved").rename(directory / name)
