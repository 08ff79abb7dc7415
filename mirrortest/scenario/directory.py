"""A scenario as a directory of six files, as Kafka's wiki describes a performance test.

==================== =================================================================
server.properties    properties of every broker
producer.properties  client properties of the producers
consumer.properties  client properties of the consumers
producer-command     ``mirrortest produce`` with its options, without an address
consumer-command     ``mirrortest consume`` likewise
env                  ``brokers=1``, ``producers=2``, ``consumers=1``, ``mirror=mirrormaker2``
==================== =================================================================

The machine and the brokers are observed.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from mirrortest.config.suggestion import did_you_mean
from mirrortest.config.units import parse_count
from mirrortest.errors import UsageError
from mirrortest.host.user_files import read_properties, read_text
from mirrortest.scenario.matrix import Document
from mirrortest.scenario.specification import MirrorKind

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_BROKER, _ENV = "server.properties", "env"
_CLIENTS = {"produce": "producer", "consume": "consumer"}
_OF_THE_LAB = ("listener", "advertised.", "controller.", "inter.broker.", "zookeeper.")
_OF_THE_LAB_EXACTLY = frozenset({"node.id", "broker.id", "process.roles", "log.dir", "log.dirs"})
"""Broker properties that the lab sets itself, by prefix and by name: identity, addresses, logs."""


def read_directory(path: Path) -> Document:
    """Read the six files as a scenario.

    Raises:
        UsageError: a file is missing, cannot be read, or has a mistake.
    """
    numbers = _environment(path / _ENV)
    mirror = numbers.pop("mirror", MirrorKind.NONE.value)
    content: dict[str, Any] = {
        "description": f"The scenario in {path.name}.",
        "lab": {
            "brokers": _count(path, numbers, "brokers"),
            "mirror": mirror,
            "broker": {
                key: value
                for key, value in read_properties(path / _BROKER).items()
                if key not in _OF_THE_LAB_EXACTLY and not key.startswith(_OF_THE_LAB)
            },
        },
        "observe": {"csv": True},
    }
    for verb, name in _CLIENTS.items():
        config = path / f"{name}.properties"
        read_properties(config)  # a mistake is found before anything is started
        table = {"command-config": config.name, **_command(path, verb)}
        content[verb] = [dict(table) for _ in range(_count(path, numbers, f"{name}s"))]
    return Document(path.name, str(path), path, content)


def _environment(file: Path) -> dict[str, str]:
    valid = ("brokers", "producers", "consumers", "mirror")
    found = {key.lower(): value for key, value in read_properties(file).items()}
    for key in found:
        if key not in valid:
            raise UsageError(f"{file}: {key}: {did_you_mean(key, valid)}")
    return found


def _count(path: Path, numbers: dict[str, str], key: str) -> int:
    text = numbers.get(key, "1")
    minimum = 1 if key == "brokers" else 0
    return int(parse_count(text, option=f"{path / _ENV}: {key}", minimum=minimum))


def _command(path: Path, verb: str) -> dict[str, Any]:
    """A command's options as a client's table."""
    file = path / f"{_CLIENTS[verb]}-command"
    text = read_text(file, str(file))
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from None
    if words[:2] != ["mirrortest", verb]:
        raise UsageError(f"{file}: it must be a command that begins with mirrortest {verb}")
    return _table(words[2:], str(file))


def _table(words: Iterable[str], where: str) -> dict[str, Any]:
    table: dict[str, Any] = {}
    key = ""
    for word in words:
        if word.startswith("--"):
            key, equals, value = word.removeprefix("--").partition("=")
            if equals:
                _add(table, key, value)
                key = ""
            else:
                table.setdefault(key, True)  # a flag, unless a value follows
        elif key:
            _add(table, key, word)
            key = ""
        else:
            raise UsageError(f"{where}: {word!r}: write options with two dashes: --option value")
    return table


def _add(table: dict[str, Any], key: str, value: str) -> None:
    """Add an option's value; an option that is given again becomes a list."""
    before = table.get(key, True)
    if before is True:
        table[key] = value
    else:
        table[key] = [*(before if isinstance(before, list) else [before]), value]
