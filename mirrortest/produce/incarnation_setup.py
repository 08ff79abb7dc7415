"""Builds an incarnation: its lanes, their recorders, and its ledger writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.config.units import MILLISECOND_NS
from mirrortest.errors import UsageError
from mirrortest.kafka.codec import compressor
from mirrortest.produce.batch_counts import BatchCounts, largest_batch
from mirrortest.produce.buffer_pool import BufferPools
from mirrortest.produce.incarnation import Incarnation, SendRules
from mirrortest.produce.lane import MAX_IN_FLIGHT, Lane, Reservation
from mirrortest.produce.ledger_writer import LedgerWriter, RecordedLane
from mirrortest.produce.message_sizes import DrawnPayloads, LaneSizes, MessageSizes
from mirrortest.produce.pace import lane_share
from mirrortest.produce.recording import LaneRecorder
from mirrortest.seqlog.options import Detail
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.batch_header import HEADER_SIZE
from mirrortest.wire.stream import ProducerId, StreamId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.sender import Sender
    from mirrortest.produce.context import ProducerContext
    from mirrortest.produce.ledger_view import LedgerView
    from mirrortest.produce.options import ProduceOptions
    from mirrortest.produce.topic_plan import TopicPlan
    from mirrortest.seqlog.writer import SequenceLog
    from mirrortest.verify.ledger_record import Registration
    from mirrortest.wire.batch import EncodedBatch

_HIGH_INCARNATION = 1_000_000
"""A number that no run reaches: higher ones have longer ids, so fewer messages fit into a batch."""


def build_incarnation(
    context: ProducerContext,
    plans: Sequence[TopicPlan],
    registration: Registration,
    log: SequenceLog,
    view: LedgerView,
    sender: Sender,
) -> Incarnation:
    """Build a registered incarnation, with all lanes of the topics."""
    client = context.options.client
    pools = BufferPools(plans, client.buffer_memory)
    recorded = [
        _recorded_lane(context, plan, index, registration, log, pools)
        for plan in plans
        for index in range(len(plan.lanes))
    ]
    rules = SendRules(
        linger_ns=client.linger_ms * MILLISECOND_NS,
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
    options, incarnation = context.options, registration.incarnation
    number, partition = plan.lanes[index], plan.partitions[index]
    pace = context.paces[plan.topic, index]
    shared_index, shared_lanes = options.share.lane(index, len(plan.lanes))
    encoder = _encoder(options, plan, index, incarnation)
    batch_bytes = _batch_bytes(context, plan, pools)
    most, sizes = encoder.most_within(batch_bytes), None
    varying = _varying(options, plan.topic)
    if varying is not None:
        sizes = LaneSizes(
            varying,
            index=shared_index,
            of=shared_lanes,
            actual=encoder.value_sizes,
            framing=encoder.framing,
            batch_bytes=batch_bytes - HEADER_SIZE,
        )
        most = max(most, sizes.most)
    exact = options.batch_messages
    batch = largest_batch(exact or 1)
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
            batch=batch,
        ),
        encoder=encoder,
        most=most,
        pool=pools.of(plan.topic, partition),
        batches=None
        if exact is None
        else BatchCounts(exact, seed=options.seed, topic=plan.topic, lane=shared_index),
        sizes=sizes,
        compacted=plan.compacted,
        stamped=plan.stamped,
        repeats=not options.client.enable_idempotence,
    )
    recorder = LaneRecorder(
        lane,
        context.numbers[plan.topic],
        warmup=lane_share(options.warmup_records, shared_index, shared_lanes) or 0,
        clock=context.clock,
        per_message=options.log_detail is Detail.MESSAGES,
        append=log.append,
        append_arrays=log.append_arrays,
    )
    return RecordedLane(lane, recorder)


def check_batches(context: ProducerContext, plans: Sequence[TopicPlan]) -> None:
    """Raise UsageError if a batch cannot hold `--batch-messages`."""
    options = context.options
    if options.batch_messages is None:
        return
    largest, pools = (
        largest_batch(options.batch_messages),
        BufferPools(plans, options.client.buffer_memory),
    )
    for plan in plans:
        batch_bytes = _batch_bytes(context, plan, pools)
        most = min(
            _encoder(options, plan, index, _HIGH_INCARNATION).most_within(batch_bytes)
            for index in range(len(plan.lanes))
        )
        if largest > most:
            raise UsageError(
                f"--batch-messages {options.batch_messages}: at most {most:,} messages fit into a "
                f"batch of topic {plan.topic}: lower it or --message-size, or raise batch.size, "
                "max.request.size, buffer.memory or the topic's max.message.bytes, whichever is "
                "smallest"
            )


def _varying(options: ProduceOptions, topic: str) -> MessageSizes | DrawnPayloads | None:
    """The sizes or payloads of a topic's messages if they vary; None: all have one size."""
    if options.payloads is not None:
        return DrawnPayloads(options.payloads, seed=options.seed, topic=topic)
    if isinstance(options.message_size, int):
        return None
    return MessageSizes(options.message_size, seed=options.seed, topic=topic)


def _encoder(options: ProduceOptions, plan: TopicPlan, index: int, incarnation: int) -> LaneEncoder:
    return LaneEncoder(
        plan.topic,
        ProducerId(options.name, options.run, incarnation),
        plan.lanes[index],
        plan.partitions[index],
        plan.destination_partitions,
        options.form,
        options.largest_size,
        options.payload_compressibility,
        own=options.payloads is not None,
    )


def _batch_bytes(context: ProducerContext, plan: TopicPlan, pools: BufferPools) -> int:
    client = context.options.client
    return min(client.batch_size, client.max_request_size, plan.max_batch_bytes, pools.batch_bytes)


def _compress(client: ClientConfig) -> Callable[[EncodedBatch], EncodedBatch] | None:
    # With its public API, aiokafka builds the batch again and compresses it itself.
    found = None if client.portable else compressor(client.compression_type)
    if found is None:
        return None
    codec, function = found
    return lambda batch: batch.compressed(codec, function)
