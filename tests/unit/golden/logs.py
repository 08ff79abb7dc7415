"""The sequence log: columns, numbers in them, journal frames, Parquet footers, sessions, events.

The columns of a saboteur's truth are included: it is a file next to the logs.
"""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mirrortest.faults.ground_truth import TRUTH
from mirrortest.model.findings import Finding, Outcome
from mirrortest.seqlog.batches import batch_of
from mirrortest.seqlog.damage import Damage, DamageKind
from mirrortest.seqlog.events import EVENTS_FILE, Event
from mirrortest.seqlog.journal import frame, read_frames
from mirrortest.seqlog.options import Detail, Role
from mirrortest.seqlog.parquet import write_parquet
from mirrortest.seqlog.rows import end, reserved, sent
from mirrortest.seqlog.schema import ENDLESS, ROWS, SCHEMA_VERSION, Kind
from mirrortest.seqlog.session import (
    SESSION_FILE,
    FileNote,
    Incarnation,
    Session,
    Topic,
    session_id,
)
from mirrortest.timing.histogram import Sparse
from mirrortest.wire.stream import StreamId

START = 1_700_000_000_123_456_789
STREAM = StreamId("orders", "run7", "pa", 3, 11)
ROW = sent(
    STREAM,
    5000,
    5010,
    partition=2,
    outcome=Outcome.ACKED,
    offset_lo=700,
    intended=(START, START + 9000),
    sent=(START + 10, START + 9010),
    acknowledged=(START + 10_000, START + 20_000),
    topic_identity="AAAAAAAAAAAAAAAAAAAAAQ",
    latencies=Sparse(1, (3, 9), (4, 5)),
)


def document() -> dict[str, Any]:
    """Everything, as JSON's types."""
    return {
        "schema version": SCHEMA_VERSION,
        "columns": _columns(ROWS),
        "kinds": [kind.value for kind in Kind],
        "roles": [role.value for role in Role],
        "details": [detail.value for detail in Detail],
        "outcomes": {outcome.name.lower(): outcome.value for outcome in Outcome},
        "findings": {finding.label: finding.value for finding in Finding},
        "damage": [kind.value for kind in DamageKind],
        "the end of offsets that have none": ENDLESS,
        "parquet": _parquet(),
        "journal frame": _frame(),
        "session": _session(),
        "event": {EVENTS_FILE: Event(time_ns=START, what="kill", part="mirror").line()},
        "columns of a saboteur's truth": _columns(TRUTH),
    }


def _columns(schema: pa.Schema) -> dict[str, str]:
    return {each.name: f"{each.type}{'' if each.nullable else ' not null'}" for each in schema}


def _parquet() -> dict[str, Any]:
    """A file's footer: the columns as Parquet stores them, and mirrortest's metadata."""
    sink = io.BytesIO()
    write_parquet([batch_of([reserved(STREAM, 0, 1), ROW, end(STREAM, 5010)])], sink)
    metadata = pq.read_metadata(io.BytesIO(sink.getvalue()))
    ours = {
        key.decode(): value.decode()
        for key, value in sorted((metadata.metadata or {}).items())
        if not key.startswith(b"ARROW:")
    }
    note = json.loads(ours.pop("mirrortest.groups"))
    # Where a group ends depends on the library's encoders.
    note["bounds"] = f"{len(note['bounds'])} of them"
    row_group = metadata.row_group(0)
    columns = [row_group.column(number) for number in range(metadata.num_columns)]
    return {
        "metadata": {**ours, "mirrortest.groups": note},
        "columns": {
            column.path_in_schema: [
                column.physical_type,
                column.compression,
                *sorted({*column.encodings} & {"DELTA_BINARY_PACKED", "RLE_DICTIONARY"}),
            ]
            for column in columns
        },
    }


def _frame() -> list[str]:
    """A frame of one row, in hexadecimal; its payload is a stream as pyarrow writes it."""
    raw = frame(batch_of([ROW]), 41)
    damage: list[Damage] = []
    (batch,) = read_frames(pa.py_buffer(raw), "there", damage)
    assert batch.equals(batch_of([ROW]))
    assert [each.rows for each in damage] == [41]
    return re.findall(".{1,96}", raw.hex())


def _session() -> dict[str, Any]:
    empty = Session(run="run7", role=Role.PRODUCER, name="pa", session="s", started_ns=START)
    full = Session(
        mirrortest="0.0",
        run="run7",
        role=Role.CONSUMER,
        name="ca",
        session=session_id(START, "1f2e3d4c"),
        detail=Detail.MESSAGES,
        incarnation=3,
        started_ns=START,
        ended_ns=START + 1,
        looked_ns=START,
        expiry_logged=True,
        clock_error_ns=5,
        clean=True,
        spooled=True,
        topics={
            "orders": Topic(
                destination="A.orders",
                source_partitions=4,
                destination_partitions=8,
                earlier_counts=(4,),
                compacted=True,
                uncommitted=True,
                policy_hidden=True,
                stamped=True,
                stamped_at_source=True,
                incarnations=(
                    Incarnation(
                        number=1,
                        topic_id="AAAAAAAAAAAAAAAAAAAAAQ",
                        cuts=1,
                        since_ns=START,
                        partitions=(0, 3),
                    ),
                ),
            ),
            "other": Topic(),
        },
        expect_partition="murmur2",
        deadline_ns=60_000_000_000,
        clusters={"source": "a", "destination": "b"},
        settings={"topics": "A.orders"},
        workload={"throughput": 5},
        files=(
            FileNote(name="000001.parquet", rows=7, digest="sha256:00"),
            FileNote(name="000002.parquet", rows=1),
        ),
        damage=(Damage(DamageKind.HOLE, "000001.journal", "a frame is missing at byte 7", 3),),
    )
    raw = full.encode()
    assert Session.decode(raw, "there") == full
    return {
        "file": SESSION_FILE,
        "folders": "/".join(full.folders),
        "content": raw.decode().splitlines(),
        "fields by default": json.loads(empty.model_dump_json()) | {"mirrortest": "its version"},
    }
