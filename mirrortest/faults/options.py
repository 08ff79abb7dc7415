"""What a faulty mirror is asked to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrortest.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.config.client import ClientConfig
    from mirrortest.config.run import TopicMapping
    from mirrortest.faults.spec import Spec

CLIENT_DEFAULTS = {
    "client.id": "mirrortest-sabotage",
    "max.partition.fetch.bytes": str(4 << 20),
    "metadata.max.age.ms": "5000",
}
"""Client properties where this application's defaults are not the Java client's."""

TOPICS_EXCLUDED = r"mm2.*\.internal,.*\.replica,__.*"
"""What MirrorMaker 2 leaves out, too."""


@dataclass(frozen=True, kw_only=True)
class FaultyMirrorOptions:
    """A validated request.

    `topics` and `exclude` are regular expressions of whole names in the source, separated by
    commas. `truth` is a local directory: what was done is written there, and how far the mirror
    got. Times are seconds; without `idle_timeout` it mirrors until it is stopped.

    Raises:
        UsageError: a pattern is no regular expression, or a time is negative.
    """

    source: ClientConfig
    destination: ClientConfig
    mapping: TopicMapping
    truth: Path
    spec: Spec
    topics: str = ".*"
    exclude: str = TOPICS_EXCLUDED
    ledger_topic: str = "mirrortest.ledger"
    refresh_interval: float = 1.0
    save_interval: float = 1.0
    idle_timeout: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be done."""
        for option, value in (("--topics", self.topics), ("--exclude", self.exclude)):
            for pattern in _patterns(value):
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise UsageError(f"{option} {pattern!r}: {error}") from None
        if not _patterns(self.topics):
            raise UsageError("--topics: name at least one topic, or say '.*'")
        if self.refresh_interval <= 0 or self.save_interval <= 0:
            raise UsageError("the intervals must be above zero")

    def mirrors(self, topic: str) -> bool:
        """Whether a topic of the source is to be mirrored."""
        wanted, unwanted = _patterns(self.topics), _patterns(self.exclude)
        return any(re.fullmatch(each, topic) for each in wanted) and not any(
            re.fullmatch(each, topic) for each in unwanted
        )


def _patterns(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
