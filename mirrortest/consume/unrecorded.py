"""A warning where messages were read and no ledger record of their producers arrives."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirrortest.consume.ledger_follower import LedgerFollower
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.consume.topic_judge import TopicRound

_log = structlog.get_logger()

_PATIENCE_NS = 30_000_000_000
_MOST_NAMES = 5


class UnrecordedProducers:
    """Logs once that the wait for the ledger may never end.

    The ledger's topic may have been deleted after the producers exited, or its copy may be
    missing: then no record ever arrives, and the run is never complete.
    """

    def __init__(self, options: ConsumeOptions, ledger: LedgerFollower) -> None:
        self._options = options
        self._follower = ledger
        self._content: object = None
        """What the ledger held of the run when it last changed, while producers were missing."""
        self._since_ns = 0
        self._logged = False

    def check(self, topic_rounds: Collection[TopicRound], now_ns: int) -> None:
        """Look at a round of a run that is not complete; `now_ns` is monotonic."""
        run = self._options.run
        recorded = self._follower.ledger.producers(run)
        messages: Counter[str] = Counter()
        for topic_round in topic_rounds:
            for stream in topic_round.unrecorded:
                if stream.producer not in recorded:
                    messages[stream.producer] += topic_round.messages(stream)
        content = recorded, [topic_round.mark for topic_round in topic_rounds]
        if not messages or content != self._content:
            self._content, self._since_ns = content if messages else None, now_ns
        elif now_ns - self._since_ns >= _PATIENCE_NS and not self._logged:
            self._logged = True
            self._warn(messages)

    def _warn(self, messages: Counter[str]) -> None:
        names = sorted(messages)
        more = len(names) - _MOST_NAMES
        _log.warning(
            "messages were read of producers of which the ledger has no record: its topic may have "
            "been deleted, or may not be mirrored. Without these records the run cannot pass, and "
            "may wait for ever; --idle-timeout ends the wait, with an inconclusive verdict",
            messages=messages.total(),
            producers=", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else ""),
            ledger=self._follower.where,
        )
