"""Python works by batch, never by message: counted in calls, which do not vary with load."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.kafka.fetched import FetchedBatches, batches
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.produce.topic_plan import TopicPlan
from mirrortest.verify.placement import ExpectPartition
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.form import Form
from mirrortest.wire.lanes import lane_numbers
from mirrortest.wire.record_batch import decode_batches
from mirrortest.wire.stream import ProducerId
from tests.work import calls

NOW = 1_800_000_000_000_000_000
LANES = lane_numbers(4)[:2]


def encoders(form: Form) -> list[LaneEncoder]:
    producer = ProducerId("p", "r", 1)
    return [LaneEncoder("t", producer, lane, 0, 4, form, 200) for lane in LANES]


def response(form: Form, *, batch_count: int, each: int) -> memoryview:
    """The bytes of a fetch: batches of two lanes in turn."""
    made, data = encoders(form), bytearray()
    for number in range(batch_count):
        turn, lane = divmod(number, 2)
        encoded = made[lane].encode(turn * each, np.full(each, NOW), NOW)
        encoded.seal(1, 0, turn * each)
        struct.pack_into(">q", encoded.buffer, 0, number * each)
        data += encoded.buffer
    return memoryview(bytes(data))


def judged(data: memoryview) -> int:
    """Do all that is done with a partition's part of a response, except logs and metrics."""
    assigned = AssignedPartition.fresh(
        TopicPartition("t", 0), 1, source="t", run="r", policy=ExpectPartition.SOURCE, counts=[4]
    )
    found = batches(data, topic="t", partition=0, fetch_offset=0, arrived_ns=NOW)
    buffers = [batch.buffer for batch in found if isinstance(batch, FetchedBatches)]
    records = decode_batches([buffer for buffer in buffers if buffer is not None])
    taken = assigned.take(records, NOW)
    assert not any(row.findings for row in taken.rows)
    return taken.messages


@pytest.mark.parametrize("form", Form)
def test_encoding_a_batch_costs_the_same_calls_whatever_its_messages(form: Form) -> None:
    """A batch of 8,000 messages, of any sizes, takes as many calls as one of 500."""

    def write(count: int) -> None:
        for sizes in (None, np.arange(count) % 201):
            encoded = encoders(form)[0].encode(0, np.full(count, NOW), NOW, sizes)
            encoded.seal(1, 0, 0)

    write(500)
    assert calls(lambda: write(8000)) <= calls(lambda: write(500)) + 20


@pytest.mark.parametrize("form", Form)
def test_judging_a_batch_costs_the_same_calls_whatever_its_messages(form: Form) -> None:
    """Sixteen times the messages in the same number of batches take the same number of calls."""
    few, many = (response(form, batch_count=4, each=each) for each in (100, 1600))
    assert (judged(few), judged(many)) == (400, 6400)
    assert calls(lambda: judged(many)) <= calls(lambda: judged(few)) + 20


@pytest.mark.parametrize("form", Form)
def test_a_small_batch_costs_few_calls(form: Form) -> None:
    """Mirrors write small batches: one of sixteen messages may cost no more than 25 calls."""
    few, many = (response(form, batch_count=count, each=16) for count in (4, 104))
    assert (judged(few), judged(many)) == (4 * 16, 104 * 16)
    assert calls(lambda: judged(many)) - calls(lambda: judged(few)) <= 100 * 25


def test_a_lanes_place_is_looked_up_not_worked_out_anew() -> None:
    """A producer of 10,000 lanes looks up each: in quadratic time, it would never start."""
    plan = TopicPlan("t", 4, 1000)
    once = calls(lambda: plan.partitions)

    def every() -> None:
        assert all(plan.partitions[index] >= 0 for index in range(len(plan.lanes)))

    assert calls(every) <= 5 * len(plan.lanes) < once
