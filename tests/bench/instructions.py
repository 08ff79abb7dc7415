"""`make instructions`: machine instructions per message, of encoding and of judging it.

On a busy or virtual machine the CPU time of the same work differs by half from one minute to the
next; the number of instructions hardly does. Valgrind's cachegrind counts them in runs with few and
with many turns, the least of three runs each; the difference excludes start-up. To compare two
versions, run this in a worktree of each.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import crc32c
import numpy as np

from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.consume.batch_judge import BatchJudge
from mirrortest.consume.consumer_log import ConsumerLog
from mirrortest.consume.consumer_metrics import ConsumerMetrics
from mirrortest.consume.context import ConsumerContext
from mirrortest.consume.judged_topics import JudgedTopics
from mirrortest.consume.outage import Outage
from mirrortest.consume.topic_judge import TopicJudge
from mirrortest.kafka.fetched import batches
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.ledger import Ledger
from mirrortest.verify.loss import Losses
from mirrortest.verify.placement import ExpectPartition
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.batch_header import CRC_AT, CRC_FROM
from mirrortest.wire.form import Form
from mirrortest.wire.stream import ProducerId
from tests.unit.consuming import consume_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.kafka.fetched import FetchedBatches, Unreadable
    from mirrortest.seqlog.rows import Row

_MESSAGES = 16_000
_FEW, _MANY = 4, 44
_RUNS = 3
_SENT_NS, _ARRIVED_NS = 10**18, 2 * 10**18
_COUNTED = re.compile(r"I +refs: +([\d,]+)")


class Case(NamedTuple):
    """The fetched data: `messages` of `size` bytes in a batch, `batches` in a fetch.

    If `batches` is 0, the case encodes such batches instead. With `varies`, messages have all sizes
    up to twice `size`. A batch begins with the last `again` messages of the batch before it.
    """

    form: Form
    size: int
    messages: int
    batches: int
    varies: bool = False
    again: int = 0


CASES = {
    "100 B": Case(Form.BODY, 100, 1000, 8),
    "1 kB": Case(Form.BODY, 1000, 500, 2),
    "100 B headers": Case(Form.HEADERS, 100, 1000, 8),
    "100 B, 20 in a batch": Case(Form.BODY, 100, 20, 50),
    "100 B, a tenth twice": Case(Form.BODY, 100, 10, 100, again=1),
    "encode 100 B": Case(Form.BODY, 100, 1000, 0),
    "encode 1 kB": Case(Form.BODY, 1000, 500, 0),
    "encode 100 B headers": Case(Form.HEADERS, 100, 1000, 0),
    "encode 1 kB headers": Case(Form.HEADERS, 1000, 500, 0),
    "encode up to 2 kB": Case(Form.BODY, 1000, 500, 0, varies=True),
}


def fetches(case: Case) -> list[tuple[int, memoryview]]:
    """The first offset and the bytes of each fetch, with one producer's messages."""
    encoder = LaneEncoder("t", ProducerId("p", "r1", 1), 0, 0, 1, case.form, case.size)
    found, offset, seq = [], 0, 0
    while offset < _MESSAGES:
        first, joined = offset, bytearray()
        for _ in range(case.batches):
            intended = _SENT_NS + np.arange(seq, seq + case.messages, dtype=np.int64) * 1_000_000
            batch = bytearray(encoder.encode(seq, intended, int(intended[-1])).buffer)
            struct.pack_into(">q", batch, 0, offset)
            struct.pack_into(">I", batch, CRC_AT, crc32c.crc32c(bytes(batch[CRC_FROM:])))
            joined += batch
            offset += case.messages
            seq += case.messages - case.again
        found.append((first, memoryview(bytes(joined))))
    return found


class Rows:
    """A sequence log that drops its rows."""

    pending_rows = 0

    def append(self, rows: Iterable[Row]) -> None:
        """Iterate over the rows, so that they are built."""
        for _ in rows:
            pass


class Fetches:
    """A reader with prepared fetches."""

    sees_markers = True

    def __init__(self, fetched: list[tuple[int, memoryview]]) -> None:
        self._fetched = iter(fetched)

    async def next(self, _: float) -> Iterator[FetchedBatches | Unreadable]:
        """The batches of one response."""
        first, data = next(self._fetched)
        return batches(
            data,
            topic="t",
            partition=0,
            fetch_offset=first,
            arrived_ns=_ARRIVED_NS,
            topic_id="X",
        )


async def judge(fetched: list[tuple[int, memoryview]]) -> None:
    """Turn a response's bytes into judged rows for the log, with the consumer's own classes."""
    at = TopicPartition("t", 0)
    assigned = AssignedPartition.fresh(
        at, 1, source="t", run="r1", policy=ExpectPartition.SOURCE, counts=[1]
    )
    options = consume_options()
    topics = JudgedTopics(options, cast("Any", None), Ledger())
    topics.counts = {"t": 1}
    topics.judges = {"t": TopicJudge("t", "r1", ExpectPartition.SOURCE, Losses(10**10))}
    context = ConsumerContext(
        options=options,
        admin=cast("Any", None),
        reader=cast("Any", Fetches(fetched)),
        topics=topics,
        ledger=cast("Any", None),
        store=cast("Any", None),
        shared=cast("Any", None),
        log=ConsumerLog(cast("Any", Rows()), options, topics),
        metrics=ConsumerMetrics(options),
        outage=Outage("destination"),
        partitions={at: assigned},
    )
    judging = BatchJudge(context, cast("Any", None), cast("Any", None))
    for _ in fetched:
        await judging.read(0)
        await judging.judge_all()
    (fragment,) = assigned.checker.fragments.values()
    if fragment.messages != assigned.checker.next_offset:
        raise AssertionError("not all that was fetched was judged")


async def judge_again(fetched: list[tuple[int, memoryview]], turns: int) -> None:
    """Judge the same fetches `turns` times, each time with a new consumer."""
    for _ in range(turns):
        await judge(fetched)


def encode_again(case: Case, turns: int) -> None:
    """Encode all messages `turns` times; no CRC is computed."""
    largest = 2 * case.size if case.varies else case.size
    encoder = LaneEncoder("t", ProducerId("p", "r1", 1), 0, 0, 1, case.form, largest)
    intended = _SENT_NS + np.arange(case.messages, dtype=np.int64) * 1_000_000
    sizes = (np.arange(case.messages) * 7919 % (largest + 1),) if case.varies else ()
    for _ in range(turns):
        for seq in range(0, _MESSAGES, case.messages):
            encoder.encode(seq, intended, _SENT_NS, *sizes)


def least(case: str, turns: int) -> int:
    """The fewest instructions of a case with `turns` turns, start-up included."""
    return min(counted(case, turns) for _ in range(_RUNS))


def counted(case: str, turns: int) -> int:
    """The instructions of one process that runs a case `turns` times."""
    done = subprocess.run(
        [
            *("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"),
            *(sys.executable, "-m", "tests.bench.instructions", case, str(turns)),
        ],
        env={"PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = _COUNTED.search(done.stderr)
    if found is None:
        raise ValueError(f"valgrind tells no instructions: {done.stderr[-500:]}")
    return int(found[1].replace(",", ""))


def main() -> int:
    """Print the instructions per message of each case; with arguments, be the counted process."""
    if len(sys.argv) > 1:
        case, turns = sys.argv[1:]
        if not CASES[case].batches:
            encode_again(CASES[case], int(turns))
            return 0
        fetched = fetches(CASES[case])
        asyncio.run(judge_again(fetched, int(turns)))
        return 0
    if shutil.which("valgrind") is None:
        print("valgrind is not installed: apt-get install valgrind", file=sys.stderr)  # noqa: T201  # a command's output
        return 2
    for name in CASES:
        each = (least(name, _MANY) - least(name, _FEW)) / ((_MANY - _FEW) * _MESSAGES)
        print(f"{name}: {each:,.0f} instructions per message", flush=True)  # noqa: T201  # likewise
    return 0


if __name__ == "__main__":
    sys.exit(main())
