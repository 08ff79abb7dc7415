"""What the consumers of a run know of a topic together, beside each partition's state.

Claims of loss, since when a number has been awaited, and up to where to read before a run is over.
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

import json
import time
import zlib
from typing import TYPE_CHECKING, Any

import structlog

from mirrortest.consume.assigned import claims_of
from mirrortest.consume.closing import Closing
from mirrortest.host.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.consume.judging import TopicJudge
    from mirrortest.consume.state import StateStore
    from mirrortest.consume.topics import Topics

_log = structlog.get_logger()


class Common:
    """Brings the topics' judges and the common records together."""

    def __init__(
        self,
        topics: Topics,
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

    def take_over(self) -> None:
        """Merge what others have written since; of deadlines, only what was there before us."""
        for topic, judge in self._topics.judges.items():
            first = topic not in self._known
            self._known.add(topic)
            for raw in self._store.written(topic):
                if raw == self._written.get(topic):
                    continue
                try:
                    self._merge(judge, raw, deadlines=first)
                except (ValueError, KeyError, TypeError, zlib.error):
                    _log.warning(
                        "what the consumers know of a topic together cannot be read, and is "
                        "written anew",
                        topic=topic,
                    )

    async def keep(self) -> None:
        """Write what is known now, by others too. Raises ClusterError."""
        self.take_over()
        for topic, judge in list(self._topics.judges.items()):
            before = b""
            while _packed_claims(judge) != before:
                deadlines = await self._packed_deadlines(judge)
                # From here on nothing is waited for before all is written.
                self.take_over()
                before = claims = _packed_claims(judge)
                if not deadlines and not judge.claimed and judge.closing is None:
                    break
                # What is too much for a record: deadlines start anew then, and claims so scattered
                # there are only where much was seen: partitions' states, cut to size, have them.
                for raw in (claims + deadlines, claims):
                    # Before it is written: a round may meet it as soon as it stands there.
                    self._written[topic] = raw
                    if await self._store.share(topic, raw):
                        break
                self.take_over()

    async def _packed_deadlines(self, judge: TopicJudge) -> bytes:
        """Empty where there are none."""
        packer, parts = zlib.compressobj(1), []
        for entry in judge.deadlines.to_state(self._monotonic_ns()):
            parts.append(packer.compress(_json(entry) + b"\n"))
            await self._slice.over()
        return b"".join([*parts, packer.flush()]) if parts else b""

    def _merge(self, judge: TopicJudge, raw: bytes, *, deadlines: bool) -> None:
        reader = zlib.decompressobj()
        state = json.loads(reader.decompress(raw))
        judge.merge_claims(claims_of(state))
        if (closing := state.get("closing")) is not None:
            judge.close(Closing.from_state(closing))
        # Under another deadline other numbers would be overdue.
        if deadlines and state["deadline"] == judge.deadlines.deadline_ns:
            judge.deadlines.restore(state["deadlines"], self._monotonic_ns())
            lines = zlib.decompress(reader.unused_data).splitlines() if reader.unused_data else ()
            judge.deadlines.restore(map(json.loads, lines), self._monotonic_ns())


def _packed_claims(judge: TopicJudge) -> bytes:
    state = {
        "claimed": [[list(s), numbers.to_list()] for s, numbers in judge.claimed.items()],
        "deadline": judge.deadlines.deadline_ns,
        "deadlines": [],  # they were here once, and are read from here
        "closing": judge.closing and judge.closing.to_state(),
    }
    return zlib.compress(_json(state), 1)


def _json(of: Any) -> bytes:
    return json.dumps(of, separators=(",", ":")).encode()
