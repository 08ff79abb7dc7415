"""The points of a scenario: each combination of varied values, repeated, in random order."""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
import json
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.config.suggestion import did_you_mean
from mirrortest.config.toml_document import checked
from mirrortest.errors import UsageError
from mirrortest.scenario.fields import named_files
from mirrortest.scenario.specification import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_TABLES = ("lab", "clusters", "kubernetes", "produce", "consume", "fault", "plan", "expect")
_MOST = 10_000


@dataclass(frozen=True)
class Document:
    """A scenario's file as it was read.

    `where` names it in errors; file names in it are relative to `directory`.
    """

    name: str
    where: str
    directory: Path
    content: Mapping[str, Any]

    def changed(self, changes: Mapping[str, Any]) -> Document:
        """A copy with other values at these paths; ``produce.acks`` changes all producers.

        Raises:
            UsageError: there is no such table, or it is something else.
        """
        content = copy.deepcopy(dict(self.content))
        for path, value in changes.items():
            self._put(content, path, value)
        return Document(self.name, self.where, self.directory, content)

    def scenario(self) -> Scenario:
        """The scenario that it describes; raises UsageError with the location of a mistake."""
        return checked(dict(self.content), Scenario, self.where)

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the content and of the files that it names: equal content, equal digest.

        The order of keys is content: points are run in the order of `vary`.

        Raises:
            UsageError: such a file cannot be read.
        """
        text = json.dumps(self.content, default=str)
        found = hashlib.blake2b(text.encode(), digest_size=16)
        for name in sorted(set(named_files(self.content, self.directory))):
            try:
                with (self.directory / name).open("rb") as file:
                    found.update(hashlib.file_digest(file, "blake2b").digest())
            except OSError as error:
                raise UsageError(f"{self.where}: {name} cannot be read: {error.strerror}") from None
        return found.hexdigest()

    def _put(self, content: dict[str, Any], path: str, value: Any) -> None:
        table, dot, key = path.partition(".")
        if not dot:
            content[table] = value
            return
        if table not in content:
            where = f"{self.where}: {path}: there is no table {table}"
            raise UsageError(
                f"{where}: {did_you_mean(table, [t for t in _TABLES if t in content])}"
            )
        found = content[table]
        for each in found if isinstance(found, list) else [found]:
            if not isinstance(each, dict):
                raise UsageError(f"{self.where}: {path}: {table} is not a table")
            each[key] = value


class Point(NamedTuple):
    """A point of a scenario; `number` counts from 1, in the order in which points are run."""

    number: int
    settings: dict[str, Any]
    repeat: int
    scenario: Scenario

    @property
    def label(self) -> str:
        """The settings that distinguish it from the other points."""
        return ", ".join(f"{path} {value}" for path, value in self.settings.items())


def points(document: Document) -> list[Point]:
    """All points in the order in which they are run: each combination once, then the next repeat.

    Raises:
        UsageError: a value is wrong, or there are too many points.
    """
    vary = dict(document.scenario().vary)
    repeats = _count(document, vary, "repeats", 1)
    seed = _count(document, vary, "seed", 0)
    values = dict(_axes(document, vary))
    number_of_points = math.prod(map(len, values.values())) * repeats
    if number_of_points > _MOST:
        raise UsageError(f"{document.where}: vary: {number_of_points:,} points; at most {_MOST:,}")
    combinations = [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]
    scenarios = [document.changed(settings).scenario() for settings in combinations]
    order = random.Random(seed)
    found: list[Point] = []
    for repeat in range(1, repeats + 1):
        numbers = list(range(len(combinations)))
        if values:
            order.shuffle(numbers)
        found += [
            Point(len(found) + at, combinations[number], repeat, scenarios[number])
            for at, number in enumerate(numbers, 1)
        ]
    return found


def _count(document: Document, vary: dict[str, Any], key: str, minimum: int) -> int:
    value = vary.pop(key, minimum)
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise UsageError(
            f"{document.where}: vary.{key}: it must be a whole number, {minimum} or more"
        )
    return value


def _axes(document: Document, vary: Mapping[str, Any]) -> Iterable[tuple[str, list[Any]]]:
    """The varied values: path -> values."""
    for table, inside in vary.items():
        found = inside.items() if isinstance(inside, dict) else [("", inside)]
        for key, values in found:
            path = f"{table}.{key}" if key else table
            if not isinstance(values, list) or not values:
                raise UsageError(
                    f"{document.where}: vary.{path}: it must be a list of values: "
                    'produce.acks = ["1", "all"]'
                )
            yield path, values
