"""Typical loops of aiokafka's users; arguments: VERB SERVERS TOPIC COUNT SIZE."""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

_AT_ONCE = 10_000


async def produce(servers: str, topic: str, count: int, size: int) -> None:
    """Write messages that are all different, and wait for each acknowledgement."""
    rest = b"x" * (size - 12)
    async with AIOKafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, acks="all", linger_ms=5
    ) as producer:
        for lo in range(0, count, _AT_ONCE):
            sent = [
                await producer.send(topic, b"%012d" % number + rest)
                for number in range(lo, min(lo + _AT_ONCE, count))
            ]
            await asyncio.gather(*sent)


async def consume(servers: str, topic: str, count: int) -> None:
    """Read `count` messages and add up their sizes."""
    seen = size = 0
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                seen += len(records)
                size += sum(len(record.value) for record in records)


if __name__ == "__main__":
    verb, servers, topic, count, size = sys.argv[1:]
    if verb == "produce":
        asyncio.run(produce(servers, topic, int(count), int(size)))
    else:
        asyncio.run(consume(servers, topic, int(count)))
