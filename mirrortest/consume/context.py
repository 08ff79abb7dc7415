"""What the parts of one consumer share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrortest.consume.fetch_buffer import FetchBuffer
from mirrortest.consume.stalls import Stalls

if TYPE_CHECKING:
    from mirrortest.consume.assigned_partition import AssignedPartition
    from mirrortest.consume.consumer_log import ConsumerLog
    from mirrortest.consume.consumer_metrics import ConsumerMetrics
    from mirrortest.consume.judged_topics import JudgedTopics
    from mirrortest.consume.ledger_follower import LedgerFollower
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.consume.outage import Outage
    from mirrortest.consume.shared_state import SharedState
    from mirrortest.consume.state_store import StateStore
    from mirrortest.kafka.admin import Admin
    from mirrortest.kafka.reader import Reader
    from mirrortest.model.topic_partition import TopicPartition


@dataclass(frozen=True, kw_only=True)
class ConsumerContext:
    """One consumer's options, its connections, and the partitions that it owns."""

    options: ConsumeOptions
    admin: Admin
    reader: Reader
    topics: JudgedTopics
    ledger: LedgerFollower
    store: StateStore
    shared: SharedState
    log: ConsumerLog
    metrics: ConsumerMetrics
    outage: Outage
    partitions: dict[TopicPartition, AssignedPartition] = field(default_factory=dict)
    """The partitions that this consumer owns now."""
    buffer: FetchBuffer = field(default_factory=FetchBuffer)
    """Fetched batches that wait to be judged."""
    stalls: Stalls = field(default_factory=Stalls)
