"""Writes what comes out: one queue and one request at a time for each destination partition.

Whatever waits is put into one batch, so that small batches of the source cost no request each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from mirrortest.errors import ClusterError, MirrortestError
from mirrortest.faults.records import RawRecord, Rows, encode_batch
from mirrortest.kafka.codec import compressor
from mirrortest.model.findings import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.config.client import ClientConfig
    from mirrortest.faults.alteration import Note
    from mirrortest.faults.truth_writer import TruthWriter
    from mirrortest.kafka.sender import Sender, Sent
    from mirrortest.wire.batch import EncodedBatch

    Content = Rows | RawRecord
    Item = tuple[Content, tuple[Note, ...]]

_BATCH_BYTES = 512 << 10
_QUEUED_BYTES = 64 << 20
_REFUSALS = ("MessageSizeTooLarge", "RecordListTooLarge", "InvalidTimestamp", "Authorization")
"""In the words of an error that trying again does not help against."""


class RefusedError(MirrortestError):
    """The destination refuses a record, and would again."""


class Writers:
    """The destination's partitions, each with its queue and its task.

    What breaks one of them is raised by whatever is called next.
    """

    def __init__(self, sender: Sender, config: ClientConfig, account: TruthWriter) -> None:
        self._sender = sender
        self._account = account
        self._codec = compressor(str(config.compression_type))
        self._queues: dict[tuple[str, int], deque[Item]] = {}
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._wake: dict[tuple[str, int], asyncio.Event] = {}
        self._bytes = 0
        self._moved = asyncio.Event()
        self._failure: Exception | None = None

    def put(self, topic: str, partition: int, content: Content, notes: tuple[Note, ...]) -> None:
        """Queue records for a partition."""
        at = (topic, partition)
        if at not in self._queues:
            self._queues[at] = deque()
            self._wake[at] = asyncio.Event()
            self._tasks[at] = asyncio.create_task(self._run(at), name=f"write {topic}-{partition}")
        pieces = content.cut(_BATCH_BYTES) if isinstance(content, Rows) else (content,)
        for piece in pieces:
            self._queues[at].append((piece, notes))
            self._bytes += _size(piece)
        self._wake[at].set()

    def check(self) -> None:
        """Raise what broke a partition's writing."""
        if self._failure is not None:
            raise self._failure

    async def room(self) -> None:
        """Wait until there is room for more."""
        await self._until(lambda: self._bytes < _QUEUED_BYTES)

    async def drained(self) -> None:
        """Wait until all that was queued is acknowledged and told."""
        await self._until(lambda: self._bytes == 0)

    async def stop(self) -> None:
        """Write no more; what is queued is forgotten."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while True:
            self.check()
            if holds():
                return
            self._moved.clear()
            await self._moved.wait()

    async def _run(self, at: tuple[str, int]) -> None:
        queue, wake = self._queues[at], self._wake[at]
        try:
            while True:
                if not queue:
                    wake.clear()
                    await wake.wait()
                await self._write(at, queue)
        except Exception as error:  # noqa: BLE001  # raised again by `check`
            self._failure = self._failure or error
        finally:
            self._moved.set()

    async def _write(self, at: tuple[str, int], queue: deque[Item]) -> None:
        taken: list[Item] = []
        size = 0
        while queue and (not taken or size + _size(queue[0][0]) <= _BATCH_BYTES):
            taken.append(queue.popleft())
            size += _size(taken[-1][0])
        batch = self._encoded([content for content, _ in taken])
        topic, partition = at
        sent = await (await self._sender.send(topic, partition, batch))
        self._settle(at, taken, batch.count, sent)
        self._bytes -= size
        self._moved.set()

    def _encoded(self, contents: list[Content]) -> EncodedBatch:
        batch = encode_batch(contents)
        return batch if self._codec is None else batch.compressed(*self._codec)

    def _settle(self, at: tuple[str, int], taken: list[Item], count: int, sent: Sent) -> None:
        if sent.outcome is Outcome.FAILED and any(w in (sent.error or "") for w in _REFUSALS):
            raise RefusedError(f"the destination refuses a record: {sent.error}")
        if sent.outcome is not Outcome.ACKED or sent.base_offset < 0:
            raise ClusterError(f"writing broke off: {sent.error or 'an acknowledgement was lost'}")
        offset = sent.base_offset
        for content, notes in taken:
            for note in notes:
                self._account.note(note, *at, offset)
            offset += len(content) if isinstance(content, Rows) else 1
        self._account.wrote(*at, count, sent.base_offset + count)


def _size(content: Content) -> int:
    return content.size if isinstance(content, Rows) else len(content.tail) + 1
