"""How missing topics are created."""

from __future__ import annotations

from dataclasses import dataclass

from mirrortest.config.option import Kind, option
from mirrortest.config.units import MILLISECOND_NS, exact_duration, parse_duration
from mirrortest.errors import UsageError

_MAX_PARTITIONS = (1 << 16) - 1


def _parse_milliseconds(text: str, *, option: str) -> int:
    milliseconds, rest = divmod(parse_duration(text, option=option), MILLISECOND_NS)
    if rest:
        raise UsageError(f"{option} {text!r}: finer than a millisecond")
    return milliseconds


def _show_milliseconds(milliseconds: int | None) -> str:
    return "" if milliseconds is None else exact_duration(milliseconds * MILLISECOND_NS)


def check_count(name: str, count: int | None) -> None:
    """Raise UsageError for a number of partitions or replicas that no topic can have."""
    if count is not None and not 1 <= count <= _MAX_PARTITIONS:
        raise UsageError(f"{name} must be in 1..{_MAX_PARTITIONS}")


@dataclass(frozen=True, kw_only=True)
class NewTopics:
    """How missing topics are created: by default with one partition and the brokers' settings.

    If `partitions` is given, existing topics must have that many.

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
        """Check the values."""
        self.configs  # noqa: B018  # raises if a setting is wrong
        check_count("--partitions", self.partitions)
        check_count("--replication-factor", self.replication_factor)

    @property
    def configs(self) -> dict[str, str]:
        """The settings of new topics, by Kafka's names.

        Raises:
            UsageError: a setting is not KEY=VALUE, or is given twice.
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
"""No topic is created: all must exist."""
