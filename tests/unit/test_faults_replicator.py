"""A replicator of the faulty mirror, without clusters: how it begins, and when it ends."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest

from mirrortest.errors import UsageError
from mirrortest.faults import replicator
from mirrortest.faults.ground_truth import Deferral, read_summary
from mirrortest.faults.replicator import Replicator, run
from mirrortest.faults.selection import Selection
from mirrortest.faults.spec import Spec
from mirrortest.faults.truth_writer import TruthWriter, locked
from mirrortest.kafka.fetched import FetchedBatches, OutOfRange

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

AT = ("t", 0)


class Reader:
    """Reads a topic with three records, which arrive at the third call."""

    def __init__(self, position: SimpleNamespace) -> None:
        self.position = position
        self.calls = 0

    async def next(self, _: float) -> list[Any]:
        self.calls += 1
        if self.calls == 3:
            self.position.next = 3
        return []

    async def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[Any, int]:
        return dict.fromkeys(partitions, 3)


class Quiet(Replicator):
    """Ignores what is fetched."""

    def __init__(self, idle_timeout: float) -> None:
        never = {"refresh_interval": math.inf, "save_interval": math.inf}
        self._options: Any = SimpleNamespace(idle_timeout=idle_timeout, **never)
        position = SimpleNamespace(next=0)
        self.reader = Reader(position)
        self._reader: Any = self.reader
        self._writers: Any = SimpleNamespace(check=lambda: None)
        self._truth: Any = SimpleNamespace(read=lambda *_: position)
        self._injectors: Any = {AT: None}
        self._changed = False

    async def _inject(self, items: Iterable[Any]) -> None: ...

    async def _tick(self) -> None: ...

    def _show(self) -> None: ...


async def test_what_has_come_is_read_before_silence_ends_it() -> None:
    """On a machine that was suspended, the idle timeout passes before anything is fetched."""
    quiet = Quiet(idle_timeout=0)
    await quiet._mirror(asyncio.Event())
    assert quiet.reader.calls == 3


async def test_a_second_mirror_with_one_truth_is_refused(tmp_path: Path) -> None:
    """Before it connects, and before it changes a file."""
    options: Any = SimpleNamespace(truth=tmp_path)
    with locked(tmp_path), pytest.raises(UsageError, match="another mirror is using it"):
        await run(options, stop=asyncio.Event())
    assert list(tmp_path.iterdir()) == []


class Client:
    """A client of a cluster that has only an id."""

    def __init__(self, config: str) -> None:
        self.config = config

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def cluster_id(self) -> str:
        return self.config


async def test_a_truth_of_other_clusters_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Yesterday's offsets in today's lab left out its first records, without a word."""
    monkeypatch.setattr(replicator, "Admin", Client)
    truth = TruthWriter(tmp_path, Spec())
    truth.check_clusters("yesterday", "b")
    truth.read(*AT).read = 3000
    truth.save(clean=True)
    options: Any = SimpleNamespace(truth=tmp_path, spec=Spec(), source="today", destination="b")
    with pytest.raises(UsageError, match="belongs to other clusters"):
        await run(options, stop=asyncio.Event())


class Source:
    """A source partition that no longer has the deferred record."""

    def __init__(self, begin: int, end: int, found: FetchedBatches | OutOfRange) -> None:
        self.begin, self.end, self.found = begin, end, found

    async def beginning_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[Any, int]:
        return dict.fromkeys(partitions, self.begin)

    async def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[Any, int]:
        return dict.fromkeys(partitions, self.end)

    async def next(self, _: float) -> list[Any]:
        return [self.found]

    async def assign(self, _: Iterable[tuple[str, int]]) -> None: ...

    def seek(self, _: tuple[str, int], offset: int) -> None: ...


class Restarted(Replicator):
    """Finds its one topic in the source, and writes nothing."""

    def __init__(self, folder: Path, source: Source) -> None:
        spec = Spec.parse('[[acts]]\nkind = "delay"\nrate = 1.0')
        options: Any = SimpleNamespace(truth=folder, spec=spec)
        super().__init__(options, lambda _: None)
        self._reader: Any = source

        async def refresh() -> list[tuple[str, int]]:
            return [AT]

        self._topics: Any = SimpleNamespace(
            refresh=refresh, partitions={"t": 1}, selection=lambda *at: Selection(spec, *at)
        )

    async def _remember_ends(self, topics: Iterable[str]) -> None: ...

    async def _save(self, *, clean: bool = False) -> None:
        self._truth.save(clean=clean)


EMPTY = FetchedBatches(*AT, 5, 10, 0, None, 0)


@pytest.mark.parametrize(
    "source",
    [
        Source(5, 10, EMPTY),
        Source(10, 10, EMPTY),
        Source(0, 10, OutOfRange(*AT, 3)),
        Source(0, 3, EMPTY),
    ],
    ids=["its record was deleted", "all were deleted", "just now", "the topic was recreated"],
)
async def test_a_deferred_message_that_the_source_lost_is_in_the_truth(
    source: Source, tmp_path: Path
) -> None:
    """It is never written; `calibrate` counted it as a loss that no act had caused."""
    restarted = Restarted(tmp_path, source)
    position = restarted._truth.read(*AT)
    position.next = 10
    deferral = Deferral(offset=3, act=0, due=1 << 62, left_ns=0, overtaken=0, copy_of=False)
    position.waiting = [deferral, deferral.model_copy(update={"offset": 4, "copy_of": True})]
    await restarted._refresh_topics()
    assert read_summary(tmp_path).skipped == [{"topic": "t", "partition": 0, "from": 3, "to": 4}]
