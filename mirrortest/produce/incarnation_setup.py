"""The parts of one incarnation: its lanes, with what records them, and its ledger writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.kafka.codec import compressor
from mirrortest.produce.buffer_pool import BufferPools
from mirrortest.produce.incarnation import Incarnation, SendRules
from mirrortest.produce.lane import MAX_IN_FLIGHT, Lane, Reservation
from mirrortest.produce.ledger_writer import LedgerWriter, RecordedLane
from mirrortest.produce.pace import lane_share
from mirrortest.produce.recording import LaneRecorder
from mirrortest.seqlog.options import Detail
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.stream import ProducerId, StreamId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.sender import Sender
    from mirrortest.produce.context import ProducerContext
    from mirrortest.produce.ledger_view import LedgerView
    from mirrortest.produce.topic_plan import TopicPlan
    from mirrortest.seqlog.writer import SequenceLog
    from mirrortest.verify.ledger_record import Registration
    from mirrortest.wire.batch import EncodedBatch


def build_incarnation(
    context: ProducerContext,
    plans: Sequence[TopicPlan],
    registration: Registration,
    log: SequenceLog,
    view: LedgerView,
    sender: Sender,
) -> Incarnation:
    """An incarnation that is registered, with one lane for each that the topics have."""
    client = context.options.client
    pools = BufferPools(plans, client.buffer_memory)
    recorded = [
        _recorded_lane(context, plan, index, registration, log, pools)
        for plan in plans
        for index in range(len(plan.lanes))
    ]
    rules = SendRules(
        linger_ns=client.linger_ms * 1_000_000,
        drain_seconds=context.options.drain_timeout,
        compress=_compress(client),
    )
    writer = LedgerWriter(log, view, registration, recorded, context.clock)
    return Incarnation(recorded, writer, sender, context.clock, rules, reasons=context.reasons)


def _recorded_lane(
    context: ProducerContext,
    plan: TopicPlan,
    index: int,
    registration: Registration,
    log: SequenceLog,
    pools: BufferPools,
) -> RecordedLane:
    options, client, incarnation = context.options, context.options.client, registration.incarnation
    number, partition = plan.lanes[index], plan.partitions[index]
    pace = context.paces[plan.topic, index]
    encoder = LaneEncoder(
        plan.topic,
        ProducerId(options.name, options.run, incarnation),
        number,
        partition,
        plan.destination_partitions,
        options.form,
        options.message_size,
    )
    batch_bytes = min(
        client.batch_size, client.max_request_size, plan.max_batch_bytes, pools.batch_bytes
    )
    most = encoder.most_within(batch_bytes)
    lane = Lane(
        StreamId(plan.topic, options.run, options.name, incarnation, number),
        partition=partition,
        source_partitions=plan.source_partitions,
        destination_partitions=plan.destination_partitions,
        pace=pace,
        reservation=Reservation(
            ahead=pace.ahead,
            limit=None if pace.limit is None else pace.limit - pace.position,
            least=MAX_IN_FLIGHT * most,
        ),
        encoder=encoder,
        most=most,
        pool=pools.of(plan.topic, partition),
        compacted=plan.compacted,
    )
    recorder = LaneRecorder(
        lane,
        context.numbers[plan.topic],
        warmup=lane_share(options.warmup_records, *options.share.lane(index, len(plan.lanes))) or 0,
        clock=context.clock,
        window=context.window,
        each=options.log_detail is Detail.MESSAGES,
        append=log.append,
        append_arrays=log.append_arrays,
    )
    return RecordedLane(lane, recorder)


def _compress(client: ClientConfig) -> Callable[[EncodedBatch], EncodedBatch] | None:
    # By its public calls alone, aiokafka makes the batch anew, and compresses it.
    found = None if client.portable else compressor(client.compression_type)
    if found is None:
        return None
    codec, function = found
    return lambda batch: batch.compressed(codec, function)
