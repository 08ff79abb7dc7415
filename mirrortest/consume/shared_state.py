"""What the consumers of a run share about a topic, besides each partition's state.

They share the claims of loss, since when each seq has been awaited, the closing snapshot, the ids
of all topics of this name, and whether the topic was ever compacted. A consumer that starts after
the topic was recreated, or after its compaction was turned off, could not find out by itself. The
topic ids are also read by other groups that judge the same run, which may have started too late.

The shared state belongs to the topic, not to its partitions. So it outlives its consumers even if
the mirror has not created the topic yet: a message that arrives after its loss was claimed is late
for every consumer, and a restart does not restart a deadline.

Each consumer writes the union of its own and the others' state under one key, and reads back. If
another consumer's record came in between, even one that its own has already replaced, it writes
again. So no claim is lost when consumers end at the same time.

A record is two compressed streams, one after the other. The first has the claims; all consumers
read it with each save. The second has the deadlines, line by line; a consumer reads it only when it
starts.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
import zlib
from typing import TYPE_CHECKING, Any

import structlog

from mirrortest.consume.closing import ClosingSnapshot
from mirrortest.consume.partition_views import MOST_LEFT, claims_of
from mirrortest.host.time_slice import TimeSlice
from mirrortest.verify import untrusted
from mirrortest.verify.untrusted import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirrortest.consume.judged_topics import JudgedTopics
    from mirrortest.consume.state_store import StateStore
    from mirrortest.consume.topic_judge import TopicJudge

_log = structlog.get_logger()

MOST_UNPACKED_BYTES = 16 << 20
"""The most that each of a record's two parts may have, decompressed, for writers and readers."""


class SharedState:
    """Merges the shared records into the topics' judges, and writes them."""

    def __init__(
        self,
        topics: JudgedTopics,
        store: StateStore,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._topics = topics
        self._store = store
        self._monotonic_ns = monotonic_ns
        self._merged: set[str] = set()
        """Topics whose records were merged at least once."""
        self._written: dict[str, bytes] = {}
        """Topic -> the record that this consumer wrote last."""
        self._slice = TimeSlice()

    def merge_written(self) -> None:
        """Merge new records of other consumers; deadlines only from those before our start."""
        for topic, judge in self._topics.judges.items():
            first = topic not in self._merged
            self._merged.add(topic)
            for raw in self._store.written(topic):
                if raw == self._written.get(topic):
                    continue
                try:
                    self._merge(judge, raw, deadlines=first)
                except RecordError as error:
                    _log.warning(
                        "the shared state of a topic cannot be read; it is written again",
                        topic=topic,
                        why=str(error),
                    )
            for raw in self._store.written_elsewhere(topic):
                with contextlib.suppress(RecordError):  # the other group will write it again
                    judge.topic_ids |= _topic_ids(_content(raw)[0])

    async def write(self) -> None:
        """Write the union of our own and the others' shared state. Raises ClusterError."""
        await self._store.renewed()
        self.merge_written()
        for topic, judge in list(self._topics.judges.items()):
            before = b""
            while _packed_claims(judge) != before:
                deadlines = await self._packed_deadlines(judge)
                # No await from here to the write: the record must be up to date.
                self.merge_written()
                before = claims = _packed_claims(judge)
                shares = judge.losses.claimed or judge.closing or judge.compact or judge.topic_ids
                if not claims or not (deadlines or shares):
                    break
                # If a record would be too large, it goes without deadlines, which then start anew.
                # Claims that alone are too large exist only where many messages were seen: then
                # partitions' states, which are written in chunks, have them.
                for raw in (claims + deadlines, claims):
                    # Set before the write: a round may read the record as soon as it is written.
                    self._written[topic] = raw
                    if await self._store.share(topic, raw):
                        break
                self.merge_written()

    async def _packed_deadlines(self, judge: TopicJudge) -> bytes:
        """The deadlines, compressed; empty if there are none, or more than readers accept."""
        packer, parts, size = zlib.compressobj(1), [], 0
        for entry in judge.losses.clocks_to_state(self._monotonic_ns):
            line = _json(entry) + b"\n"
            size += len(line)
            if size > MOST_UNPACKED_BYTES:
                return b""
            parts.append(packer.compress(line))
            await self._slice.over()
        return b"".join([*parts, packer.flush()]) if parts else b""

    def _merge(self, judge: TopicJudge, raw: bytes, *, deadlines: bool) -> None:
        """Merge claims, topic ids and deadlines, all or none of them, then the closing snapshot.

        Raises:
            RecordError: one of them cannot be read.
        """
        state, behind = _content(raw)
        claims, topic_ids = claims_of(state, judge.source, judge.run), _topic_ids(state)
        compact = untrusted.flag(state.get("compacted", False))
        # A consumer with another --deadline has other overdue seqs.
        if untrusted.number(untrusted.entry(state, "deadline")) != judge.losses.deadline_ns:
            deadlines = False
        if deadlines:
            lines = untrusted.unpacked(behind, MOST_UNPACKED_BYTES)[0] if behind else b""
            judge.losses.restore_clocks(
                (
                    *untrusted.listed(untrusted.entry(state, "deadlines")),
                    *map(untrusted.document, io.BytesIO(lines)),
                ),
                self._monotonic_ns(),
                of_topic=judge.source,
                of_run=judge.run,
            )
        judge.losses.merge(claims)
        judge.topic_ids |= topic_ids
        judge.compact |= compact
        if (closing := state.get("closing")) is not None:
            judge.close(ClosingSnapshot.from_state(closing))


def _content(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """A record's first part, and the bytes after it. Raises RecordError."""
    content, behind = untrusted.unpacked(raw, MOST_UNPACKED_BYTES)
    return untrusted.mapped(untrusted.document(content, MOST_UNPACKED_BYTES)), behind


def _topic_ids(state: Mapping[str, Any]) -> set[str]:
    known = untrusted.listed(state.get("topic_ids", []))
    if len(known) > MOST_LEFT:
        raise RecordError(f"{len(known):,} topics of one name")
    return {untrusted.topic_id(each) for each in known}


def _packed_claims(judge: TopicJudge) -> bytes:
    """A record's first part, compressed; empty if it has more than readers accept."""
    state = {
        "claimed": [[list(s), numbers.to_list()] for s, numbers in judge.losses.claimed.items()],
        "deadline": judge.losses.deadline_ns,
        "deadlines": [],  # earlier versions wrote them here; readers need the entry
        "closing": judge.closing and judge.closing.to_state(),
        "topic_ids": sorted(judge.topic_ids)[:MOST_LEFT],
        "compacted": judge.compact,
    }
    content = _json(state)
    return zlib.compress(content, 1) if len(content) <= MOST_UNPACKED_BYTES else b""


def _json(of: Any) -> bytes:
    return json.dumps(of, separators=(",", ":")).encode()
