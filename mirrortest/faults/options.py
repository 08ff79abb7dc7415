"""The options of a faulty mirror."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mirrortest.config.client_config import ClientConfig
from mirrortest.config.option import SECONDS, Kind, option
from mirrortest.config.run_naming import TopicMapping, checked_topic
from mirrortest.errors import UsageError
from mirrortest.faults.spec import Spec, read_spec

CLIENT_DEFAULTS = {
    "client.id": "mirrortest-sabotage",
    "max.partition.fetch.bytes": str(4 << 20),
    "metadata.max.age.ms": "5000",
}
"""Client properties where this application's defaults are not the Java client's."""

TOPICS_EXCLUDED = r"mm2.*\.internal,.*\.replica,__.*"
"""The topics that MirrorMaker 2 excludes, too."""


def _parse_spec(text: str, *, option: str) -> Spec:  # noqa: ARG001  # errors name the file
    return read_spec(Path(text))


def _parse_directory(text: str, *, option: str) -> Path:
    if Path(text).is_file():
        raise UsageError(f"{option} {text}: must be a directory, not a file")
    return Path(text)


@dataclass(frozen=True, kw_only=True)
class FaultyMirrorOptions:
    """A validated request, and the options of `mirrortest sabotage` that give it.

    `topics` and `exclude` are regular expressions of full names in the source, separated by
    commas. Times are seconds; without `idle_timeout` it mirrors until it is stopped.

    Raises:
        UsageError: a pattern is not a regular expression, or no topic is named.
    """

    source: ClientConfig
    destination: ClientConfig
    mapping: TopicMapping
    spec: Spec = option(
        Spec(),
        "The faults to inject, a TOML file. Default: none.",
        kind=Kind(_parse_spec, show=lambda _: "", metavar="FILE"),
    )
    truth: Path = option(
        Path("mirrortest-truth"),
        "Directory for the injected faults and the mirror's position. A mirror that is started "
        "with the same directory continues from there.",
        kind=Kind(_parse_directory, metavar="DIR"),
    )
    topics: str = option(".*", "What is mirrored: regular expressions, separated by commas.")
    exclude: str = option(TOPICS_EXCLUDED, "What is not mirrored, likewise.")
    destination_alias: str = option(
        "B",
        "The name of the destination. Its topics that another mirror copied to the source, "
        "ALIAS.topic, are not copied back.",
        metavar="ALIAS",
    )
    ledger_topic: str = option(
        "mirrortest.ledger",
        "Ledger topic: copied unchanged, unless an act names it.",
        kind=Kind(checked_topic),
    )
    refresh_interval: float = 1.0
    save_interval: float = 1.0
    idle_timeout: float | None = option(
        None, "End after this long without a message.", kind=SECONDS
    )

    def __post_init__(self) -> None:
        """Refuse invalid patterns."""
        for name, value in (("--topics", self.topics), ("--exclude", self.exclude)):
            for pattern in _patterns(value):
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise UsageError(f"{name} {pattern!r}: {error}") from None
        if not _patterns(self.topics):
            raise UsageError("--topics: name at least one topic, or use '.*'")

    def mirrors(self, topic: str) -> bool:
        """Whether a topic of the source must be mirrored."""
        separator = self.mapping.separator
        origin = f"{separator}{self.destination_alias}{separator}"
        # As in MirrorMaker 2; if mirrors keep names, a name does not show where a topic is from.
        if self.mapping.prefix and origin in f"{separator}{topic}":
            return False
        wanted, unwanted = _patterns(self.topics), _patterns(self.exclude)
        return any(re.fullmatch(each, topic) for each in wanted) and not any(
            re.fullmatch(each, topic) for each in unwanted
        )


def _patterns(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
