"""What the doctor checks."""

from __future__ import annotations

from dataclasses import dataclass

from mirrortest.config.client_config import ClientConfig
from mirrortest.config.option import Kind, option
from mirrortest.config.run_naming import TopicMapping, checked_topic, checked_topics
from mirrortest.errors import UsageError
from mirrortest.seqlog.options import LogPlace


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(LogPlace):
    """A validated request, and the options of `mirrortest doctor` for it.

    `topics` are names in the source. `mapping` is None if the doctor must find the mirror's names.
    A side without a client is not checked.

    Raises:
        UsageError: there is nothing to check.
    """

    source: ClientConfig | None = None
    destination: ClientConfig | None = None
    mapping: TopicMapping | None = None
    topics: tuple[str, ...] = option(
        (),
        "The topics of the test: their names in the source.",
        kind=Kind(checked_topics, show=",".join, metavar="TOPIC[,...]"),
        aliases=("--topic",),
        env=True,
    )
    ledger_topic: str = option(
        "mirrortest.ledger",
        "Ledger topic (its name in the source cluster).",
        kind=Kind(checked_topic, metavar="TOPIC"),
        env=True,
    )
    state_topic: str = option(
        "mirrortest.state",
        "Topic for the consumers' saved states, in the destination.",
        kind=Kind(checked_topic, metavar="TOPIC"),
    )
    creates_topics: bool = False
    """Whether the producer creates topics that are missing."""
    reads_ledger_at_source: bool = False
    """Whether only consumers are checked that read the ledger in the source.

    The mirror need not copy it then, and nothing else is needed there.
    """

    def __post_init__(self) -> None:
        """Refuse a request that checks nothing."""
        if self.source is None and self.destination is None:
            raise UsageError(
                "nothing to check: give --source-bootstrap-server, "
                "--destination-bootstrap-server, or both"
            )
