"""How missing topics are created."""

from __future__ import annotations

from dataclasses import dataclass

from mirrortest.config.option import Kind, option
from mirrortest.config.units import MILLISECOND_NS, exact_duration, parse_duration
from mirrortest.errors import UsageError

_MAX_PARTITIONS = (1 << 16) - 1


def _parse_milliseconds(text: str, *, option: str) -> int:
    return parse_duration(text, option=option) // MILLISECOND_NS


def _show_milliseconds(milliseconds: int | None) -> str:
    return "" if milliseconds is None else exact_duration(milliseconds * MILLISECOND_NS)


def check_count(name: str, count: int | None) -> None:
    """Refuse a number that no topic can have of partitions or replicas (UsageError)."""
    if count is not None and not 1 <= count <= _MAX_PARTITIONS:
        raise UsageError(f"{name} must be in 1..{_MAX_PARTITIONS}")


@dataclass(frozen=True, kw_only=True)
class NewTopics:
    """By default with one partition and the brokers' settings.

    Topics that exist must have as many `partitions`, if a number is given.

    Raises:
        UsageError: a number is out of range, or a setting is wrong or given twice.
    """

    create_topics: bool = option(False, "Create topics that do not exist.", env=True)
    partitions: int | None = option(
        None,
        "Partitions of topics created by --create-topics. A topic that exists must have as many.",
        env=True,
    )
    replication_factor: int | None = option(
        None, "Replicas of topics created by --create-topics. Default: the brokers'.", env=True
    )
    retention_ms: int | None = option(
        None,
        "retention.ms of topics created by --create-topics, as 30m. Default: the brokers'.",
        name="--retention",
        kind=Kind(_parse_milliseconds, show=_show_milliseconds, metavar="DURATION"),
        env=True,
    )
    topic_config: list[str] | None = option(
        None, "A setting of topics created by --create-topics; may be repeated.", metavar="KEY=VAL"
    )

    def __post_init__(self) -> None:
        """Refuse what cannot be done."""
        self.configs  # noqa: B018  # refuses what is wrong
        check_count("--partitions", self.partitions)
        check_count("--replication-factor", self.replication_factor)

    @property
    def configs(self) -> dict[str, str]:
        """Their settings, as Kafka names them.

        Raises:
            UsageError: one has not the form KEY=VALUE, or is given twice.
        """
        found = {} if self.retention_ms is None else {"retention.ms": str(self.retention_ms)}
        for text in self.topic_config or ():
            key, equals, value = (part.strip() for part in text.partition("="))
            if not (key and equals and value):
                raise UsageError(
                    f"--topic-config {text!r}: write KEY=VALUE, for example cleanup.policy=delete"
                )
            if key in found:
                raise UsageError(f"--topic-config {text!r}: {key} is given twice")
            found[key] = value
        return found


EXISTING_TOPICS = NewTopics()
"""None is created: all topics must exist."""
