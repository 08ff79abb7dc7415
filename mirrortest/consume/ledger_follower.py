"""The producers' ledger records, as the consumer reads them.

The mirror under test copies the ledger, or the consumer reads it directly from the source. The
topic might not exist when the consumer starts, or never appear: a user's topic filter can exclude
it. Then there is no record of what was sent, and the verdict is inconclusive.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import structlog

from mirrortest.config.suggestion import closest
from mirrortest.errors import UnreachableError
from mirrortest.kafka.follower import Follower
from mirrortest.verify.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.consume.topic_judge import TopicRound
    from mirrortest.kafka.follower import FollowedTopic
    from mirrortest.wire.stream import StreamId

_log = structlog.get_logger()

_POLL_SECONDS = 1.0
_MOST_NAMES = 5
_PARTS_NS = 600_000_000_000
"""How long the consumer waits for missing parts of a lane that has ended."""


class LedgerFollower:
    """Keeps a `Ledger` up to date; `follow` must run as a task.

    `exists` asks whether the topic exists; `where` names it and its cluster for the user.
    """

    def __init__(
        self,
        topic: FollowedTopic,
        exists: Callable[[], Awaitable[bool]],
        *,
        where: str,
        now_ns: Callable[[], int],
    ) -> None:
        self.ledger = Ledger()
        self.where = where
        self._exists = exists
        self._follower = Follower(topic, self._apply)
        self._now_ns = now_ns
        self.present = False
        """Whether the topic has been found."""
        self.last_record_ns: int | None = None
        """Monotonic time of the last record; None before the first."""
        self._partial: dict[StreamId, int] = {}
        """Lane that has ended with parts missing -> when that was first found."""

    async def follow(self) -> None:
        """Wait for the topic, then apply its records for ever, through outages.

        Raises:
            ClusterError: the cluster cannot be reached at the start, or refuses.
        """
        there = await self._exists()
        if not there:
            _log.info("waiting for the ledger's topic", ledger=self.where)
        unreachable = False
        while not there:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                there = await self._exists()
                unreachable = False
            except UnreachableError as error:
                if not unreachable:
                    _log.warning("the ledger's cluster is unreachable", why=str(error))
                unreachable = True
        self.present = True
        await self._follower.run()

    def _apply(self, key: bytes, value: bytes | None) -> None:
        self.ledger.apply(key, value)
        self.last_record_ns = self._now_ns()

    def complete(self, run: str, expect_producers: Collection[str] = ()) -> bool:
        """Whether a run's ledger is final (`Ledger.complete`), except for `given_up` lanes."""
        return self.ledger.complete(run, expect_producers, given_up=self.given_up(run))

    def given_up(self, run: str) -> Collection[StreamId]:
        """The lanes of a run that ended long ago, and of which parts are still missing.

        A part may be lost, or another program may have written one that claims more outcomes. The
        consumer no longer waits for it. Its seqs have no outcome, so the run is inconclusive.
        """
        now = self._now_ns()
        self._partial = {
            stream: self._partial.get(stream, now) for stream in self.ledger.partial(run)
        }
        return {stream for stream, since in self._partial.items() if now - since >= _PARTS_NS}

    def missing_reason(self, run: str) -> str | None:
        """Why there is no ledger record of a run, in words for the user; None if there is one."""
        if not self.present:
            return (
                f"the ledger topic {self.where} does not exist, so there is no record of what was "
                "acknowledged: let the mirror copy it, or use --ledger-bootstrap-server to read it "
                "from the source"
            )
        if not self.ledger.lanes_of(run):
            return (
                f"the ledger {self.where} has no record of run {run!r}: is that the producers' "
                f"--run, and does the mirror copy the ledger topic?{self.other_runs(run)}"
            )
        return None

    def other_runs(self, run: str) -> str:
        """The other runs in the ledger, as a sentence for a message; empty if there are none."""
        runs = sorted({stream.run for stream in self.ledger.lanes if stream.run})
        if not runs:
            return ""
        meant = closest(run, runs)
        more = f" and {len(runs) - _MOST_NAMES} more" if len(runs) > _MOST_NAMES else ""
        listed = f" It has records of {', '.join(runs[:_MOST_NAMES])}{more}"
        return listed + (f"; did you mean --run {meant}?" if meant else ".")


_PATIENCE_NS = 30_000_000_000
_RUN_PATIENCE_NS = 5_000_000_000
"""After a run was missing for this long in a ledger that has other runs, these are logged."""


class UnrecordedProducers:
    """Warns once that the wait for the ledger may never end.

    The ledger topic may have been deleted after the producers exited, or the mirror does not copy
    it. Then no record ever arrives, and the run is never complete.
    """

    def __init__(self, options: ConsumeOptions, ledger: LedgerFollower) -> None:
        self._options = options
        self._follower = ledger
        self._content: object = None
        """The ledger's content of the run at its last change; None if no producer is missing."""
        self._since_ns = 0
        self._logged = False
        self._run_missing_ns: int | None = None
        self._runs_logged = False

    def check(self, topic_rounds: Collection[TopicRound], now_ns: int) -> None:
        """Check a round in which the ledger is not complete; `now_ns` is monotonic."""
        run = self._options.run
        self._check_run(run, now_ns)
        recorded = self._follower.ledger.producers(run)
        messages: Counter[str] = Counter()
        for topic_round in topic_rounds:
            for stream in topic_round.unrecorded:
                if stream.producer not in recorded:
                    messages[stream.producer] += topic_round.messages(stream)
        content = recorded, [topic_round.ledger_size for topic_round in topic_rounds]
        if not messages or content != self._content:
            self._content, self._since_ns = content if messages else None, now_ns
        elif now_ns - self._since_ns >= _PATIENCE_NS and not self._logged:
            self._logged = True
            self._warn(messages)

    def _check_run(self, run: str, now_ns: int) -> None:
        """Log the ledger's runs, once, if this run is not among them."""
        if self._runs_logged or self._follower.ledger.lanes_of(run):
            return
        self._run_missing_ns = now_ns if self._run_missing_ns is None else self._run_missing_ns
        others = self._follower.other_runs(run)
        if others and now_ns - self._run_missing_ns >= _RUN_PATIENCE_NS:
            self._runs_logged = True
            _log.warning(f"the ledger has no record of run {run!r} yet.{others}")

    def _warn(self, messages: Counter[str]) -> None:
        names = sorted(messages)
        more = len(names) - _MOST_NAMES
        _log.warning(
            "producers without a ledger record sent messages that were read: the ledger topic may "
            "have been deleted, or may not be mirrored. Without these records the run cannot pass, "
            "and may wait for ever; --idle-timeout ends the wait, with an inconclusive verdict",
            messages=messages.total(),
            producers=", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else ""),
            ledger=self._follower.where,
        )
