"""A run's id, and its topics' names on the two sides of the mirror.

Streams have the *source* topic's name on both sides. A name alone never shows how the mirror names
its copies: a topic `a.b` may be the copy of `b` from cluster `a`, or another topic with a dot. The
user gives the alias, or the ledger's copy shows it.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrortest.errors import UsageError
from mirrortest.wire.stream import is_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

RUN_ID_LENGTH = 8
# 32 characters, so that a byte's low five bits draw each equally; 0, 1, l and o are misread.
_CHARACTERS = "abcdefghijkmnpqrstuvwxyz23456789"

SEPARATORS = ".-_"
"""What mirrors put between alias and topic: the only punctuation that a name may have."""


_RANGE = re.compile(r"([^\[\]]*)\[([0-9]{1,9})-([0-9]{1,9})\]([^\[\]]*)")
_MOST_IN_RANGE = 10_000


def checked_topic(name: str, *, option: str) -> str:
    """Return a topic's name, or raise UsageError with `option` and the valid form."""
    if not is_topic(name):
        raise UsageError(
            f"{option} {name!r}: a topic's name is 1 to 249 letters, digits, '.', '_' or '-'"
        )
    return name


def checked_topics(names: str, *, option: str) -> tuple[str, ...]:
    """Read topics' names, separated by commas; UsageError if one is invalid.

    ``load[1-3]`` is ``load1,load2,load3``, and ``load[01-03]`` keeps the zeros.
    """
    if not names.strip():
        return ()
    stripped = [name.strip() for name in names.split(",")]
    if not all(stripped):
        raise UsageError(
            f"{option} {names!r}: a name is missing before or after a comma: write NAME,NAME "
            "without spaces"
        )
    expanded = [name for each in stripped for name in _range(each, option)]
    return tuple(checked_topic(name, option=option) for name in expanded)


def _range(name: str, option: str) -> Iterable[str]:
    match = _RANGE.fullmatch(name)
    if match is None:
        return [name]
    before, first, last, after = match.groups()
    count = int(last) - int(first) + 1
    if not 1 <= count <= _MOST_IN_RANGE:
        raise UsageError(
            f"{option} {name!r}: a range goes upwards and has at most {_MOST_IN_RANGE:,} topics"
        )
    width = len(first) if first.startswith("0") else 0
    return [f"{before}{int(first) + each:0{width}}{after}" for each in range(count)]


def prefixes_of(source: str, topics: Iterable[str]) -> list[tuple[str, str]]:
    """(alias, separator) of each of these topics whose name can be that of a copy of `source`."""
    prefixes = sorted(topic.removesuffix(source) for topic in topics if topic.endswith(source))
    return [(p[:-1], p[-1]) for p in prefixes if len(p) > 1 and p[-1] in SEPARATORS]


def alias_options(alias: str, separator: str) -> str:
    """The options that give this prefix."""
    return f"--source-alias {alias}" + (f" --separator {separator}" if separator != "." else "")


def names_behind(destination: str) -> list[str]:
    """The names that a topic can have in the source: its name, with and without each prefix."""
    return [
        destination[at:]
        for at in range(len(destination))
        if not at or destination[at - 1] in SEPARATORS
    ]


def run_id(entropy: bytes) -> str:
    """Create a run's id from random bytes, a character from each of the first eight.

    Raises ValueError for fewer than eight bytes.
    """
    if len(entropy) < RUN_ID_LENGTH:
        raise ValueError(f"a run's id takes {RUN_ID_LENGTH} random bytes")
    return "".join(_CHARACTERS[byte & 31] for byte in entropy[:RUN_ID_LENGTH])


@dataclass(frozen=True, kw_only=True)
class TopicMapping:
    """From a topic's name in the destination to its name in the source, and back.

    A name in `explicit` (destination to source) is mapped there. All others have the prefix
    ``source_alias + separator`` in the destination; without an alias names are the same.

    Raises:
        UsageError: two destinations of one source, or an empty separator.
    """

    source_alias: str = ""
    separator: str = "."
    explicit: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse to map two topics to one."""
        if self.source_alias and not self.separator:
            raise UsageError("--separator must not be empty")
        _check_distinct(self.explicit, "--topic-map: ")

    @classmethod
    def parse(
        cls, *, source_alias: str = "", separator: str = ".", topic_map: Sequence[str] = ()
    ) -> TopicMapping:
        """Read the options; `topic_map` has ``DESTINATION=SOURCE`` arguments."""
        explicit: dict[str, str] = {}
        for item in topic_map:
            destination, equals, source = (part.strip() for part in item.partition("="))
            if not (equals and destination and source):
                raise UsageError(f"--topic-map {item!r}: use DESTINATION=SOURCE")
            if explicit.get(destination, source) != source:
                raise UsageError(f"--topic-map: {destination!r} has two source topics")
            explicit[destination] = source
        return cls(source_alias=source_alias, separator=separator, explicit=explicit)

    @property
    def prefix(self) -> str:
        """The prefix of the mirror's copies; empty if names are the same."""
        return f"{self.source_alias}{self.separator}" if self.source_alias else ""

    @property
    def options(self) -> str:
        """The options that give this mapping, as on a command line."""
        words = [word for pair in self.explicit.items() for word in ("--topic-map", "=".join(pair))]
        if self.source_alias or not self.explicit:
            words += ["--source-alias", self.source_alias]
        if self.separator != ".":
            words += ["--separator", self.separator]
        return shlex.join(words)

    def source_of(self, destination: str) -> str:
        """The source's name of a destination topic; UsageError if there is none."""
        explicit = self.explicit.get(destination)
        if explicit is not None:
            return explicit
        source = destination.removeprefix(self.prefix)
        if self.prefix and (source == destination or not source):
            raise UsageError(
                f"topic {destination!r} is not a copy from {self.source_alias!r}: its name does "
                f"not begin with {self.prefix!r}; {self._hint(destination)}"
            )
        return source

    def _hint(self, destination: str) -> str:
        """What to do if a topic's name does not begin with the prefix."""
        rest = destination.removeprefix(self.source_alias)
        if rest != destination and len(rest) > 1 and rest[0] in SEPARATORS:
            return f"did you mean --separator {rest[0]}?"
        return (
            "omit --source-alias if the mirror keeps names, or use --topic-map "
            f"{destination}=SOURCE"
        )

    def correction(self, destination: str, source: str) -> str:
        """The option that makes `source` the source topic of `destination`, for the user."""
        if destination in self.explicit or not destination.endswith(source):
            return f"did you mean --topic-map {destination}={source}?"
        prefix = destination.removesuffix(source)
        if not prefix:
            return "omit --source-alias if the mirror keeps names"
        return f"did you mean {alias_options(prefix[:-1], prefix[-1])}?"

    def destination_of(self, source: str) -> str:
        """The destination's name of a source topic, also of the ledger, which is mirrored, too."""
        for destination, mapped in self.explicit.items():
            if mapped == source:
                return destination
        return f"{self.prefix}{source}"

    def sources_of(self, destinations: Iterable[str]) -> dict[str, str]:
        """Map many destination topics; UsageError if two of them map to one source topic."""
        sources = {destination: self.source_of(destination) for destination in destinations}
        _check_distinct(sources)
        return sources


def _check_distinct(sources: Mapping[str, str], where: str = "") -> None:
    by_source: dict[str, str] = {}
    for destination, source in sources.items():
        other = by_source.setdefault(source, destination)
        if other != destination:
            raise UsageError(
                f"{where}both {other!r} and {destination!r} map to the source topic {source!r}; "
                "judge them in two runs of the consumer"
            )
