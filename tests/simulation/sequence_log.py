"""A sequence log in memory, with interface and guarantees of `seqlog.writer.SequenceLog`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from mirrortest.errors import SequenceLogError
from mirrortest.seqlog.batches import batch_of, explode
from mirrortest.seqlog.options import Detail, Role
from mirrortest.seqlog.rows import Row

from .loop import PROCESS
from .virtual_time import VIRTUAL_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from mirrortest.seqlog.batches import Columns
    from mirrortest.seqlog.session import Session

    from .loop import Process
    from .world import World


class SimulatedLog:
    """`sync` makes rows durable; a killed process loses the rows that are not durable yet.

    `stamped` are all rows with the virtual time of their `append`.
    """

    def __init__(self, world: World, process: Process, session: Session) -> None:
        self.session = session
        self.process = process
        self.rows: list[Row] = []
        self.stamped: list[tuple[int, Row]] = []
        self.intervals: list[dict[str, Any]] = []
        self.durable_rows = 0
        self._world = world
        self._broken: SequenceLogError | None = None
        self._closed = False
        world.logs.append(self)

    @classmethod
    async def open(cls, where: Any, session: Session, **_: Any) -> Self:
        """See `SequenceLog.open`."""
        process = PROCESS.get()
        assert process is not None
        await asyncio.sleep(0.001)
        return cls(process.world, process, session)

    @property
    def detail(self) -> Detail:
        """See `SequenceLog`."""
        return self.session.detail

    @property
    def where(self) -> str:
        """See `SequenceLog`."""
        return f"memory of {self.session.name}"

    @property
    def pending_rows(self) -> int:
        """See `SequenceLog`."""
        return len(self.rows) - self.durable_rows

    @property
    def durable(self) -> list[Row]:
        """What can be read after a crash."""
        return self.rows[: self.durable_rows]

    def append(self, rows: Iterable[Row]) -> None:
        """See `SequenceLog`."""
        added = list(rows)
        if self.detail is Detail.MESSAGES and added:
            added = _rows_of(explode(batch_of(added)))
        self._append(added)

    def append_arrays(self, columns: Columns) -> None:
        """See `SequenceLog`."""
        self._append(_rows_of(columns.batch()))

    def _append(self, added: list[Row]) -> None:
        self._check()
        self.rows += added
        self.stamped += ((self._world.now_ns, row) for row in added)

    def record(self, interval: pa.RecordBatch) -> None:
        """See `SequenceLog`."""
        self._check()
        self.intervals += interval.to_pylist()

    async def sync(self) -> None:
        """See `SequenceLog`; it continues if the caller is cancelled."""
        self._check()
        done = self._world.loop.create_future()
        self._world.later(self._seconds(), self._write, len(self.rows), done)
        await asyncio.shield(done)

    async def revise(self, change: Callable[[Session], Session]) -> None:
        """See `SequenceLog`."""
        self._check()
        self.session = change(self.session)
        await asyncio.sleep(self._seconds())

    async def close(self, *, clean: bool = True, looked_ns: int | None = None) -> None:
        """See `SequenceLog`."""
        if self._closed:
            return
        self._closed = True
        done = self._world.loop.create_future()
        self._world.later(self._seconds(), self._write, len(self.rows), done)
        try:
            await asyncio.shield(done)
        finally:
            complete = clean and self._broken is None
            ended = max(VIRTUAL_TIME.time_ns(), self.session.started_ns)
            self.session = self.session.model_copy(
                update={"ended_ns": ended, "looked_ns": looked_ns, "clean": complete}
            )

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self._closed:
            raise SequenceLogError(f"{self.where}: the log is closed")

    def _seconds(self) -> float:
        if self._world.log_slow:
            self._world.happened["log write slowed"] += 1
        return 0.001 + self._world.log_slow * self._world.random.random()

    def _write(self, upto: int, done: asyncio.Future[None]) -> None:
        if not self.process.alive:
            return
        left = self._world.log_fails.get(self.process.name)
        if left is not None:
            self._world.log_fails[self.process.name] = left - 1
            if left <= 0 and self._broken is None:
                self._world.happened[f"log write of {self.process.name} failed"] += 1
                self._broken = SequenceLogError(f"{self.where}: no space left")
        if self._broken is None:
            self.durable_rows = max(self.durable_rows, upto)
            if not done.done():
                done.set_result(None)
        elif not done.done():
            done.set_exception(self._broken)
            done.exception()


def _rows_of(batch: pa.RecordBatch) -> list[Row]:
    return [Row(**row) for row in batch.to_pylist()]


def last_incarnation(_: Any, run: str, producer: str) -> int:
    """Replaces `seqlog.files.last_incarnation`: looks in all logs of the world."""
    process = PROCESS.get()
    assert process is not None
    sessions = [log.session for log in process.world.logs if log.session.role is Role.PRODUCER]
    ours = [each for each in sessions if (each.run, each.name) == (run, producer)]
    return max((each.incarnation or 0 for each in ours), default=0)


class Nowhere:
    """Replaces `seqlog.location.Location`: what is written there is discarded."""

    shown = "nowhere"
    path = ""

    @classmethod
    def parse(cls, _: Any) -> Nowhere:
        """See `Location.parse`."""
        return cls()

    def child(self, *_: str) -> Nowhere:
        """See `Location.child`."""
        return self

    def write_text(self, _: str) -> None:
        """Discard it; see `Location.write_text`."""
