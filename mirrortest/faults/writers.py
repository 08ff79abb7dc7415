"""Writes to the destination: one queue and one request at a time for each partition.

All queued records go into one batch, so that small batches of the source do not cost a request
each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from mirrortest.errors import ClusterError, MirrortestError
from mirrortest.faults.records import CopiedRows, RawRecord, encode_batch
from mirrortest.kafka.codec import compressor
from mirrortest.model.failure import Failure
from mirrortest.model.findings import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.faults.alteration import TruthRow
    from mirrortest.faults.truth_writer import TruthWriter
    from mirrortest.kafka.sender import Sender, Sent
    from mirrortest.wire.batch import EncodedBatch

    Content = CopiedRows | RawRecord
    Item = tuple[Content, tuple[TruthRow, ...]]

_BATCH_BYTES = 512 << 10
_QUEUED_BYTES = 64 << 20
_REFUSALS = {Failure.TOO_LARGE, Failure.REFUSED, Failure.NOT_AUTHORIZED}
"""Failures that a retry does not resolve."""


class RefusedError(MirrortestError):
    """The destination refuses a record; a retry would not help."""


class Writers:
    """The destination's partitions, each with its queue and its task.

    An error in one of the tasks is raised by the next call.
    """

    def __init__(self, sender: Sender, config: ClientConfig, truth: TruthWriter) -> None:
        self._sender = sender
        self._truth = truth
        self._codec = compressor(str(config.compression_type))
        self._queues: dict[tuple[str, int], deque[Item]] = {}
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._wake: dict[tuple[str, int], asyncio.Event] = {}
        self._bytes = 0
        self._progress = asyncio.Event()
        self._failure: Exception | None = None

    def put(
        self, topic: str, partition: int, content: Content, faults: tuple[TruthRow, ...]
    ) -> None:
        """Queue records for a partition."""
        at = (topic, partition)
        if at not in self._queues:
            self._queues[at] = deque()
            self._wake[at] = asyncio.Event()
            self._tasks[at] = asyncio.create_task(self._run(at), name=f"write {topic}-{partition}")
        pieces = content.cut(_BATCH_BYTES) if isinstance(content, CopiedRows) else (content,)
        for piece in pieces:
            self._queues[at].append((piece, faults))
            self._bytes += _size(piece)
        self._wake[at].set()

    def check(self) -> None:
        """Raise the error that ended a partition's task."""
        if self._failure is not None:
            raise self._failure

    async def wait_for_room(self) -> None:
        """Wait until fewer bytes are queued than the limit."""
        await self._until(lambda: self._bytes < _QUEUED_BYTES)

    async def drain(self) -> None:
        """Wait until all queued records are acknowledged and recorded."""
        await self._until(lambda: self._bytes == 0)

    async def stop(self) -> None:
        """Stop writing; drop what is queued."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while True:
            self.check()
            if condition():
                return
            self._progress.clear()
            await self._progress.wait()

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
            self._progress.set()

    async def _write(self, at: tuple[str, int], queue: deque[Item]) -> None:
        taken: list[Item] = []
        size = 0
        while queue and (not taken or size + _size(queue[0][0]) <= _BATCH_BYTES):
            taken.append(queue.popleft())
            size += _size(taken[-1][0])
        batch = self._encode([content for content, _ in taken])
        topic, partition = at
        sent = await self._sender.send(topic, partition, batch)
        self._record(at, taken, batch.count, sent)
        self._bytes -= size
        self._progress.set()

    def _encode(self, contents: list[Content]) -> EncodedBatch:
        batch = encode_batch(contents)
        return batch if self._codec is None else batch.compressed(*self._codec)

    def _record(self, at: tuple[str, int], taken: list[Item], count: int, sent: Sent) -> None:
        if sent.outcome is Outcome.FAILED and sent.failure in _REFUSALS:
            raise RefusedError(f"the destination refuses a record: {sent.error}")
        if sent.outcome is not Outcome.ACKED or sent.base_offset < 0:
            raise ClusterError(f"a write failed: {sent.error or 'its acknowledgement was lost'}")
        offset = sent.base_offset
        for content, faults in taken:
            for fault in faults:
                self._truth.record(fault, *at, offset)
            offset += len(content) if isinstance(content, CopiedRows) else 1
        self._truth.wrote(*at, count, sent.base_offset + count)


def _size(content: Content) -> int:
    return content.size if isinstance(content, CopiedRows) else len(content.tail) + 1
