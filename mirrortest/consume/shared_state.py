"""What the consumers of a run share of a topic, besides each partition's state.

Claims of loss, since when a number has been awaited, up to where to read before a run is over,
which topics of this name there were, and that it was compacted at some time: one who begins after
it was recreated, or is compacted no more, would not know. The topics are known across groups:
another group that judges the same run need not have begun in time.
It is kept for a topic as a whole, so that it outlives its consumers also where the mirror has not
made the topic: what comes after all is then late for whoever sees it, and no restart sets a
deadline back.

Each consumer writes the union of what it knows under one key, and reads back: where another's
record came between, also one that its own has replaced already, it writes again. So no claim is
lost when consumers end together.

A record is two compressed streams, one behind the other: the claims, which all others read with
each save, and the deadlines, line by line, which only those read who begin.
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
"""Of each of a record's two parts, decompressed: nobody writes more, and nobody reads more."""


class SharedState:
    """Brings the topics' judges and the common records together."""

    def __init__(
        self,
        topics: JudgedTopics,
        store: StateStore,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._topics = topics
        self._store = store
        self._monotonic_ns = monotonic_ns
        self._known: set[str] = set()
        """Topics of which records were taken over."""
        self._written: dict[str, bytes] = {}
        """topic -> the record that we wrote last"""
        self._slice = TimeSlice()

    def merge_written(self) -> None:
        """Merge what others have written since; of deadlines, only what was there before us."""
        for topic, judge in self._topics.judges.items():
            first = topic not in self._known
            self._known.add(topic)
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
                with contextlib.suppress(RecordError):  # theirs to write again
                    judge.topic_ids |= _topic_ids(_content(raw)[0])

    async def write(self) -> None:
        """Write what is known now, by others too. Raises ClusterError."""
        await self._store.renewed()
        self.merge_written()
        for topic, judge in list(self._topics.judges.items()):
            before = b""
            while _packed_claims(judge) != before:
                deadlines = await self._packed_deadlines(judge)
                # From here on nothing is waited for before all is written.
                self.merge_written()
                before = claims = _packed_claims(judge)
                known = judge.losses.claimed or judge.closing or judge.compact or judge.topic_ids
                if not claims or not (deadlines or known):
                    break
                # What is too much for a record: deadlines start anew then, and claims so scattered
                # there are only where much was seen: partitions' states, cut to size, have them.
                for raw in (claims + deadlines, claims):
                    # Before it is written: a round may meet it as soon as it stands there.
                    self._written[topic] = raw
                    if await self._store.share(topic, raw):
                        break
                self.merge_written()

    async def _packed_deadlines(self, judge: TopicJudge) -> bytes:
        """Empty where there are none, or more than anybody would read."""
        packer, parts, size = zlib.compressobj(1), [], 0
        for entry in judge.losses.clocks_to_state(self._monotonic_ns()):
            line = _json(entry) + b"\n"
            size += len(line)
            if size > MOST_UNPACKED_BYTES:
                return b""
            parts.append(packer.compress(line))
            await self._slice.over()
        return b"".join([*parts, packer.flush()]) if parts else b""

    def _merge(self, judge: TopicJudge, raw: bytes, *, deadlines: bool) -> None:
        """Take over claims, topic ids and deadlines, all of them or none, then the shared look.

        Raises:
            RecordError: one of them cannot be read.
        """
        state, behind = _content(raw)
        claims, topic_ids = claims_of(state, judge.source, judge.run), _topic_ids(state)
        compact = untrusted.flag(state.get("compacted", False))
        # Under another deadline other numbers would be overdue.
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
    """A record's first part, and what is behind it; RecordError where it cannot be read."""
    content, behind = untrusted.unpacked(raw, MOST_UNPACKED_BYTES)
    return untrusted.mapped(untrusted.document(content, MOST_UNPACKED_BYTES)), behind


def _topic_ids(state: Mapping[str, Any]) -> set[str]:
    known = untrusted.listed(state.get("topic_ids", []))
    if len(known) > MOST_LEFT:
        raise RecordError(f"{len(known):,} topics of one name")
    return {untrusted.topic_id(each) for each in known}


def _packed_claims(judge: TopicJudge) -> bytes:
    """Empty where they are more than anybody would read."""
    state = {
        "claimed": [[list(s), numbers.to_list()] for s, numbers in judge.losses.claimed.items()],
        "deadline": judge.losses.deadline_ns,
        "deadlines": [],  # they were here once, and are read from here
        "closing": judge.closing and judge.closing.to_state(),
        "topic_ids": sorted(judge.topic_ids)[:MOST_LEFT],
        "compacted": judge.compact,
    }
    content = _json(state)
    return zlib.compress(content, 1) if len(content) <= MOST_UNPACKED_BYTES else b""


def _json(of: Any) -> bytes:
    return json.dumps(of, separators=(",", ":")).encode()
