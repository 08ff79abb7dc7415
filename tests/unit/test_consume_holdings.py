"""Saves that go on beside the reading: when they fail, when they end, what they hold.

Reader, admin and store are played; what is held here is the order of things.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from mirrortest.check.routing import ExpectPartition
from mirrortest.config.client import ClientConfig
from mirrortest.config.run import TopicMapping
from mirrortest.consume.holdings import Holdings
from mirrortest.consume.measuring import Measures
from mirrortest.consume.options import ConsumeOptions
from mirrortest.consume.topics import Topics
from mirrortest.errors import SequenceLogError


class Played:
    """Admin, reader, store and log in one; `hold` keeps syncs waiting, `broken` lets them fail."""

    def __init__(self, counts):
        self.counts = counts
        self.assigned, self.sought, self.saved = [], [], []
        self.hold = asyncio.Event()
        self.hold.set()
        self.broken = None
        self.lanes = {}

    async def partition_counts(self, topics):
        return {topic: n for topic, n in self.counts.items() if topic in topics}

    async def beginning_offsets(self, wanted):
        return dict.fromkeys(wanted, 0)

    async def assign(self, share):
        self.assigned = sorted(share)

    def seek(self, at, offset):
        self.sought.append((*at, offset))

    async def claim(self, _):
        return 1, None

    def fenced(self, *_):
        return False

    async def save(self, at, generation, state):
        self.saved.append((at, generation, state["checker"]["next"]))

    async def sync(self):
        await self.hold.wait()
        if self.broken is not None:
            raise self.broken

    def read(self, held):
        """Not looked at."""

    found = read


def _holdings(played, topics=("a", "b"), **changed):
    options = ConsumeOptions(
        run="r1",
        name="c",
        client=ClientConfig.load(bootstrap_server="localhost:1"),
        mapping=TopicMapping(),
        thresholds=(),
        topics=topics,
        expect_partition=ExpectPartition.SOURCE,
        **changed,
    )
    known = Topics(options, played, SimpleNamespace(lanes={}))
    holdings = Holdings(
        options,
        admin=played,
        topics=known,
        store=played,
        reader=played,
        log=played,
        measures=Measures(options),
    )
    return holdings, known


async def test_a_topic_that_is_gone_for_now_stays_assigned():
    """Else it would not be read when it is made again, since it is held all the time."""
    played = Played({"a": 1, "b": 1})
    holdings, topics = _holdings(played)
    for counts in ({"a": 1, "b": 1}, {"b": 2}):
        played.counts = counts
        await topics.discover()
        await holdings.take_share()
    assert played.assigned == [("a", 0), ("b", 0), ("b", 1)]


async def test_a_save_that_failed_is_told_by_the_next_round():
    """However long the interval between two saves is."""
    played = Played({"a": 1})
    holdings, topics = _holdings(played, ("a",), state_interval=0.0)
    await topics.discover()
    await holdings.begin()
    played.broken = SequenceLogError("the disk is full")
    holdings.save_beside()
    await asyncio.gather(holdings._saving, return_exceptions=True)
    object.__setattr__(holdings._options, "state_interval", 3600.0)
    with pytest.raises(SequenceLogError, match="disk is full"):
        holdings.save_beside()


async def test_a_save_that_still_runs_ends_with_the_work():
    """What ends the work early is told to the user; the save's own failure is not dumped beside."""
    played = Played({"a": 1})
    holdings, topics = _holdings(played, ("a",), state_interval=0.0)
    await topics.discover()
    await holdings.begin()
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    played.hold.clear()
    holdings.save_beside()
    await asyncio.sleep(0)
    saving = holdings._saving
    await holdings.close()
    assert saving.done()
    del saving
    holdings._saving = None
    assert told == []


async def test_a_revocation_waits_for_the_save_that_runs_and_writes_the_last_state():
    """An older snapshot never stands behind a newer one."""
    played = Played({"a": 1})
    holdings, topics = _holdings(played, ("a",), state_interval=0.0)
    await topics.discover()
    await holdings.begin()
    (held,) = holdings.partitions.values()
    held.checker.advance(5)
    played.hold.clear()
    holdings.save_beside()
    await asyncio.sleep(0)
    held.checker.advance(9)
    revoked = asyncio.ensure_future(holdings._on_revoked([("a", 0)]))
    await asyncio.sleep(0)
    played.hold.set()
    await revoked
    assert [next_offset for _, _, next_offset in played.saved] == [5, 9]
    assert not holdings.partitions
