"""Reconciles simulated histories: many in one job, each with its own topics.

The judge of the online verdicts checks the findings. A killed process's log has what was durable
when it died. `reconciled` reconciles one history, without Spark.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from mirrortest.config.threshold import thresholds
from mirrortest.reconcile import plan as logs
from mirrortest.reconcile.job import reconcile, reconcile_by
from mirrortest.seqlog.session import SESSION_FILE, Session
from mirrortest.seqlog.writer import SequenceLog
from tests.oracle.in_process import InProcess
from tests.oracle.tape import Tape

from .batch import MessageId
from .history import simulating
from .judge import Judge
from .plan import RUN, make_plan
from .play import staged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirrortest.reconcile.lookup import LookUp
    from mirrortest.results.summary import Summary
    from mirrortest.seqlog.rows import Row

    from .history import Stage
    from .sequence_log import SimulatedLog

_AS_IT_WAS = ("started_ns", "ended_ns", "looked_ns", "clean")


def play_together(tapes: Mapping[int, bytes], kinds: Collection[str]) -> dict[int, Stage]:
    """Play the histories that fit into one reconciliation, with one role and one policy."""
    played = {}
    with simulating():
        for number, tape in tapes.items():
            plan = make_plan(Tape(tape), kinds)
            if not (plan.source_role or plan.rehash or plan.any_every):
                stage = played[number] = staged(tape, kinds)
                stage.run()
    return played


def offline_problems(spark: Any, place: Path, stages: Mapping[int, Stage]) -> dict[int, list[str]]:
    """Reconcile the logs of histories; return the findings' problems by history."""
    for number, stage in stages.items():
        for index, log in enumerate(stage.world.logs):
            if log.session.run == RUN:
                session = _under_own_names(number, index, log)
                rows = (_renamed(number, row) for row in log.durable)
                asyncio.run(_write(place, log, session, rows))
    reconcile(spark, logs.plan([str(place)], RUN), ())
    found: dict[int, dict[str, set[MessageId]]] = {n: defaultdict(set) for n in stages}
    for row in pq.read_table(place / f"run={RUN}" / "result" / "findings.parquet").to_pylist():
        number, message = _message(row)
        for seq in range(row["seq_lo"], row["seq_hi"]):
            found[number][row["finding"]].add(message._replace(seq=seq))
    by_history = {number: Judge(stage).offline(found[number]) for number, stage in stages.items()}
    return {number: problems for number, problems in by_history.items() if problems}


def reconciled(
    stage: Stage,
    conditions: Sequence[str] = (),
    *,
    without: Collection[str] = (),
    look_up: LookUp | None = None,
) -> Summary:
    """Reconcile the logs of one history, except those of the processes named `without`."""
    with tempfile.TemporaryDirectory() as folder:
        for index, log in enumerate(stage.world.logs):
            if log.session.run == RUN and log.session.name not in without:
                renamed = log.session.model_copy(
                    update={"session": f"{log.session.session}-{index}"}
                )
                asyncio.run(_write(Path(folder), log, renamed, log.durable))
        plan = logs.plan([folder], RUN)
        return reconcile_by(InProcess(), plan, thresholds(conditions), look_up=look_up)


def _under_own_names(number: int, index: int, log: SimulatedLog) -> Session:
    """A log's session, with names that only its history has."""
    was = log.session
    return was.model_copy(
        update={
            "name": f"h{number}-{was.name}",
            "session": f"{was.session}-{index}",
            "topics": {
                f"h{number}-{topic}": about.model_copy(
                    update={"destination": about.destination and f"h{number}-{about.destination}"}
                )
                for topic, about in was.topics.items()
            },
        }
    )


async def _write(place: Path, log: SimulatedLog, session: Session, content: Iterable[Row]) -> None:
    """Write a log of this session with these rows."""
    written = await SequenceLog.open(place, session)
    written.append(content)
    await written.close()
    file = Path(written.where) / SESSION_FILE
    closed = Session.decode(file.read_bytes(), str(file))
    as_it_was = {name: getattr(log.session, name) for name in _AS_IT_WAS}
    file.write_bytes(closed.model_copy(update=as_it_was).encode())


def _renamed(number: int, row: Row) -> Row:
    producer = None if row.producer is None else f"h{number}-{row.producer}"
    return row._replace(topic=f"h{number}-{row.topic}", producer=producer)


def _message(row: dict[str, Any]) -> tuple[int, MessageId]:
    """The number of a finding's history, and its first message."""
    number, _, topic = row["topic"].removeprefix("h").partition("-")
    producer = row["producer"].partition("-")[2]
    sender = f"{producer}@{RUN}.{row['incarnation']}"
    return int(number), MessageId(topic, sender, row["lane"], row["seq_lo"])
