"""After a writer is killed, every row that a sync had made durable is in its log."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mirrortest.seqlog.files import find_sessions
from mirrortest.seqlog.options import Detail
from tests.log_rows import read_all

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.seqlog.damage import Damage

CHILD = """
import asyncio, sys
from mirrortest.seqlog import rows
from mirrortest.seqlog.session import Session
from mirrortest.seqlog.writer import SequenceLog
from mirrortest.model.findings import Outcome
from mirrortest.wire.stream import StreamId

async def main(directory, detail, rotate_rows):
    session = Session(
        run="r1", role="producer", name="p", session="s", started_ns=1, detail=detail
    )
    log = await SequenceLog.open(directory, session, rotate_rows=int(rotate_rows))
    stream = StreamId("t", "r1", "p", 1, 0)
    at = 0
    while True:
        for _ in range(5):
            log.append([rows.sent(stream, at, at + 10, partition=0, outcome=Outcome.ACKED,
                                  offset_lo=at, intended=(at, at + 10))])
            at += 10
        await log.sync()
        print(at, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("detail", list(Detail))
@pytest.mark.parametrize("rotate_rows", [10_000_000, 40])
def test_sigkill_loses_no_synced_row(tmp_path: Path, detail: Detail, rotate_rows: int) -> None:
    """Killed at any moment, also during rotations: the synced rows are read, without a gap."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), detail, str(rotate_rows)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    with child, child.stdout as output:
        for _ in range(40):
            synced = int(output.readline())
        child.send_signal(signal.SIGKILL)
        synced = max([synced, *(int(line) for line in output.read().splitlines() if line)])
    assert child.returncode == -signal.SIGKILL

    (found,) = find_sessions(tmp_path, "r1")
    damage: list[Damage] = []
    table = read_all(found, damage)
    assert all(each.harmless for each in damage)
    assert (found.session.ended_ns, found.session.clean) == (None, False)
    at = 0
    for lo, hi in zip(table["seq_lo"].to_pylist(), table["seq_hi"].to_pylist(), strict=True):
        assert lo == at
        at = hi
    assert at >= synced
    assert table.num_rows == (at if detail is Detail.MESSAGES else at // 10)
