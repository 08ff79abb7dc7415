"""Typical loops of confluent-kafka's users; arguments: VERB SERVERS TOPIC COUNT SIZE."""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, Producer


def produce(servers: str, topic: str, count: int, size: int) -> None:
    """Write messages that are all different, and wait for each acknowledgement."""
    acked = 0

    def on_delivery(error: object, _message: object) -> None:
        nonlocal acked
        if error is not None:
            raise SystemExit(str(error))
        acked += 1

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    rest = b"x" * (size - 12)
    for number in range(count):
        value = b"%012d" % number + rest
        while True:
            try:
                producer.produce(topic, value, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    if acked != count:
        raise SystemExit(f"{acked} of {count} acknowledged")


def consume(servers: str, topic: str, count: int) -> None:
    """Read `count` messages and add up their sizes."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    seen = size = 0
    while seen < count:
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error() is None:
                seen += 1
                size += len(message.value() or b"")
    consumer.close()


if __name__ == "__main__":
    verb, servers, topic, count, size = sys.argv[1:]
    if verb == "produce":
        produce(servers, topic, int(count), int(size))
    else:
        consume(servers, topic, int(count))
