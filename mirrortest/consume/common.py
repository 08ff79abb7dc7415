"""What the consumers of a run know of a topic together, beside each partition's state.

Claims of loss, and since when a number has been awaited. It is kept for a topic as a whole, so
that it outlives its consumers also where the mirror has not made the topic: what comes after all
is then late for whoever sees it, and no restart sets a deadline back.

Each consumer writes the union of what it knows under one key, and reads back: where another's
record came between, it writes again. So whoever wrote last knew all before, and no claim is lost
when consumers end together.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from mirrortest.consume.assigned import claims_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.consume.judging import TopicJudge
    from mirrortest.consume.state import StateStore
    from mirrortest.consume.topics import Topics


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
        self._known: dict[str, int] = {}
        """topic -> the serial of the record that was taken over last"""

    def take_over(self) -> None:
        """Merge what others have written since; of deadlines, only what was there before us."""
        for topic, judge in self._topics.judges.items():
            found = self._store.shared(topic)
            first = topic not in self._known
            serial, state = found or (0, None)
            if self._known.get(topic) == serial:
                continue
            self._known[topic] = serial
            if state is None:
                continue
            judge.merge_claims(claims_of(state))
            # Under another deadline other numbers would be overdue.
            if first and state["deadline"] == judge.deadlines.deadline_ns:
                judge.deadlines.restore(state["deadlines"], self._monotonic_ns())

    async def keep(self) -> None:
        """Write what is known now, by others too. Raises ClusterError."""
        self.take_over()
        for topic, judge in self._topics.judges.items():
            written = None
            while state := _told(judge, self._monotonic_ns()):
                if written == state["claimed"]:
                    break
                written = state["claimed"]
                # What is too much for a record: deadlines start anew then, and claims so scattered
                # there are only where much was seen: partitions' states, cut to size, have them.
                if not await self._store.share(topic, state):
                    await self._store.share(topic, state | {"deadlines": []})
                self.take_over()


def _told(judge: TopicJudge, now_ns: int) -> dict[str, Any] | None:
    """What a judge knows, of JSON's types; None where there is nothing to tell."""
    deadlines = judge.deadlines.to_state(now_ns)
    if not deadlines and not judge.claimed:
        return None
    return {
        "claimed": [[list(s), numbers.to_list()] for s, numbers in judge.claimed.items()],
        "deadline": judge.deadlines.deadline_ns,
        "deadlines": deadlines,
    }
