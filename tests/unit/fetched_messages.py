"""Messages as a fetch returns them, and what a consumer does with them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from mirrortest.kafka.fetched import FetchedBatches, OutOfRange
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.form import Form
from mirrortest.wire.stream import ProducerId

if TYPE_CHECKING:
    from mirrortest.consume.consumer import Consumer
    from tests.unit.played_cluster import Played


def fetched(
    seq: int,
    count: int,
    *,
    arrived_ns: int,
    offset: int | None = None,
    lane: int = 0,
    planned: int = 1,
    run: str = "r1",
    transactional: bool = False,
) -> FetchedBatches:
    """Messages from `seq` on, stored from `offset` on; by default that is `seq`."""
    at = seq if offset is None else offset
    encoder = LaneEncoder("a", ProducerId("p", run, 1), lane, 0, planned, Form.BODY, 200)
    buffer = encoder.encode(seq, np.full(count, 1_000), 1_000).buffer
    struct.pack_into(">q", buffer, 0, at)
    return FetchedBatches(
        "a",
        0,
        at,
        at + count,
        arrived_ns,
        memoryview(bytes(buffer)),
        count,
        transactional=transactional,
    )


async def read(played: Played, consumer: Consumer, *batches: FetchedBatches | OutOfRange) -> None:
    """Let the consumer fetch these, and judge what is due."""
    played.fetched = list(batches)
    await consumer.batches.read(0.0)
