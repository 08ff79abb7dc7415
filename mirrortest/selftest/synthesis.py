"""Write a synthetic run to disk: its sequence logs, and its truth (each message with a finding)."""

from __future__ import annotations

import shutil
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import chain
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrortest.errors import SequenceLogError, UsageError
from mirrortest.host.error_text import reason_of
from mirrortest.selftest.synthetic_logs import (
    SyntheticConsumerLog,
    SyntheticProducerLog,
    consumer_name,
    producer_name,
    producer_names,
)
from mirrortest.selftest.synthetic_mirror import Mirror
from mirrortest.selftest.synthetic_run import BEGAN, RANDOM_IDS, SECOND, SyntheticRun
from mirrortest.seqlog.batches import positions
from mirrortest.seqlog.journal import frame, sync_directory
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import PARQUET, Session, Topic, file_name, session_id
from mirrortest.seqlog.session_directory import SessionDirectory, write_synced
from mirrortest.seqlog.writer import ROTATE_BYTES, ROTATE_ROWS
from mirrortest.verify.placement import ExpectPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirrortest.selftest.synthetic_options import SynthOptions

DEADLINE = 60 * SECOND
_SETTLED = 10 * SECOND
_SAMPLE_ROWS = 1 << 13
TRUTH = "truth.parquet"
"""The truth's name in the run's directory."""

TRUTH_SCHEMA = pa.schema(
    [
        pa.field("producer", pa.string(), nullable=False),
        pa.field("incarnation", pa.int32(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("lane", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("finding", pa.string(), nullable=False),
    ]
)
"""A row is one message with one finding."""


@dataclass
class Written:
    """What was written: `rows` and `size` (bytes) of all log files, anomalies by finding."""

    run: str
    messages: int
    sessions: int = 0
    files: int = 0
    rows: int = 0
    size: int = 0
    truth: str = ""
    findings: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Task:
    session: Session
    ended_ns: int
    batches: Callable[[], Iterator[pa.RecordBatch]]


def synthesize(options: SynthOptions) -> Written:
    """Write the logs of both sides and their truth.

    A run that cannot be finished is removed again.

    Raises:
        UsageError: the run exists already, or its rows have no room for so many anomalies.
        SequenceLogError: something cannot be written.
    """
    directory = options.log_dir / f"run={options.run}"
    if directory.exists():
        raise UsageError(f"{directory} exists already: choose another --run or --log-dir")
    run = SyntheticRun(options)
    tasks = [*_producers(run), *_consumers(run)]
    written = Written(options.run, options.messages, sessions=len(tasks))
    stop = Event()
    with ThreadPoolExecutor(options.jobs, thread_name_prefix="synth") as pool:
        directory.mkdir(parents=True)
        truth = pool.submit(_write_truth, run, directory / TRUTH, stop)
        logs = [pool.submit(_write, options.log_dir, task, stop) for task in tasks]
        try:
            every: list[Future[Any]] = [truth, *logs]
            for future in as_completed(every):
                future.result()
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            shutil.rmtree(directory, ignore_errors=True)
            raise
    for session, size in (future.result() for future in logs):
        written.files += len(session.files)
        written.rows += sum(note.rows for note in session.files)
        written.size += size
    written.findings = truth.result()
    written.truth = str(directory / TRUTH)
    return written


def _write_truth(run: SyntheticRun, path: Path, stop: Event) -> dict[str, int]:
    """Write the truth, unless `stop` is set; returns the number of messages by finding."""
    counts: dict[str, int] = {}
    try:
        with pq.ParquetWriter(
            path,
            TRUTH_SCHEMA,
            compression="zstd",
            use_dictionary=["producer", "topic", "finding"],
            column_encoding={"lane": "DELTA_BINARY_PACKED", "seq": "DELTA_BINARY_PACKED"},
        ) as writer:
            for batch, label in _truth(run):
                if stop.is_set():
                    break
                writer.write_batch(batch)
                counts[label] = counts.get(label, 0) + batch.num_rows
    except OSError as error:
        raise SequenceLogError(f"{path}: cannot be written: {reason_of(error)}") from error
    return dict(sorted(counts.items()))


def _truth(run: SyntheticRun) -> Iterator[tuple[pa.RecordBatch, str]]:
    mirror = Mirror(run)
    for chunk in run.chunks():
        for each in mirror.seeded(chunk):
            if not len(each.stream):
                continue
            part, step = positions(each.seq_hi - each.seq_lo)
            stream, label = each.stream[part], each.finding.label
            topic = stream // (run.options.producers * run.options.lanes)
            columns = [
                producer_names(run, stream),
                pa.repeat(pa.scalar(chunk.phase + 1, pa.int32()), len(stream)),
                pa.array(run.options.topics).take(pa.array(topic)),
                pa.array(run.lane[stream]),
                pa.array(each.seq_lo[part] + step),
                pa.repeat(label, len(stream)),
            ]
            yield pa.record_batch(columns, schema=TRUTH_SCHEMA), label


def _write(log_dir: Path, task: _Task, stop: Event) -> tuple[Session, int]:
    """Write one session, closing files as a real log does."""
    directory = SessionDirectory.create(log_dir, task.session, None)
    size = 0
    try:
        for number, file in enumerate(_files(task.batches(), stop), start=1):
            path = directory.path / file_name(number, PARQUET)
            draft = path.with_suffix(".draft")
            sealed = write_synced(file, draft)
            draft.rename(path)
            sync_directory(directory.path)
            directory.note(path.name, sealed)
            size += path.stat().st_size
        if not stop.is_set():
            directory.revise(
                lambda now: now.model_copy(
                    update={"ended_ns": task.ended_ns, "clean": True, "spooled": False}
                )
            )
    except OSError as error:
        raise SequenceLogError(
            f"{directory.path}: cannot be written: {reason_of(error)}"
        ) from error
    finally:
        directory.release()
    return directory.session, size


def _files(batches: Iterator[pa.RecordBatch], stop: Event) -> Iterator[Iterator[pa.RecordBatch]]:
    """Distribute batches to files; a file ends where a journal would have been rotated."""
    weight: float | None = None

    def one_file(first: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        nonlocal weight
        rows, size = 0, 0.0
        for batch in chain([first], batches):
            if stop.is_set():
                return
            if not batch.num_rows:
                continue
            if weight is None and batch.num_rows >= _SAMPLE_ROWS:
                sample = batch.slice(0, _SAMPLE_ROWS)
                weight = len(frame(sample, 0)) / sample.num_rows
            yield batch
            rows += batch.num_rows
            size += batch.num_rows * (weight or 100)
            if rows >= ROTATE_ROWS or size >= ROTATE_BYTES:
                return

    for batch in batches:
        if stop.is_set():
            return
        yield one_file(batch)


def _producers(run: SyntheticRun) -> Iterator[_Task]:
    options = run.options
    count = options.lanes
    topics = {
        topic: Topic(source_partitions=count, destination_partitions=count)
        for topic in options.topics
    }
    for phase in range(options.incarnations):
        began = run.began_ns(phase)
        for number in range(options.producers):
            session = Session(
                run=options.run,
                role=Role.PRODUCER,
                name=producer_name(number),
                session=session_id(began, _tag(options, 0, phase, number)),
                detail=options.detail,
                incarnation=phase + 1,
                started_ns=began,
                topics=topics,
                clusters={"source": f"synthetic-source-{options.run}"},
                client={"enable.idempotence": "true"},
            )
            ended = run.ended_ns(phase)
            yield _Task(session, ended, SyntheticProducerLog(run, number, phase).batches)


def _consumers(run: SyntheticRun) -> Iterator[_Task]:
    options = run.options
    topics = {
        topic: Topic(destination=topic, destination_partitions=options.lanes)
        for topic in options.topics
    }
    for number in range(options.consumers):
        session = Session(
            run=options.run,
            role=Role.CONSUMER,
            name=consumer_name(number),
            session=session_id(BEGAN - SECOND, _tag(options, 1, number)),
            detail=options.detail,
            started_ns=BEGAN - SECOND,
            expiry_logged=True,
            topics=topics,
            expect_partition=ExpectPartition.SOURCE.value,
            deadline_ns=DEADLINE,
            clusters={"destination": f"synthetic-destination-{options.run}"},
        )
        ended = run.ended_ns(options.incarnations - 1) + DEADLINE + _SETTLED
        yield _Task(session, ended, SyntheticConsumerLog(run, number).batches)


def _tag(options: SynthOptions, *about: int) -> str:
    rng = np.random.default_rng([options.seed, RANDOM_IDS, *about])
    return rng.bytes(4).hex()
