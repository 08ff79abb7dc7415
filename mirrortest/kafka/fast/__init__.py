"""The ports with aiokafka's internals, of series 0.14 (`library.SERIES`); tests check the contract.

Only this package uses what aiokafka does not promise to keep. It replaces nothing in aiokafka's
modules: other users of aiokafka in the same process are not affected (`rebinding`).

- **Out**: batches, of messages or of single records, are delivered without aiokafka's producer
  (`delivery`). `ReadyBatch` counts how often a batch's bytes were handed over for transmission.
- **In**: brokers are asked without aiokafka's fetcher (`fetcher`), and their answers cut into
  complete batches (`places`). The group is aiokafka's (`fetching`).
- **Connection**: a produce request is written without joining its batches first, and a fetch's
  answer is received without copying it. Two requests may time out on one connection.
- **Metadata**: no request creates a missing topic.
- **Identity**: a consumer's requests carry topic ids and leader epochs (`identity`), in versions
  that aiokafka does not speak (`requests`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka.conn import collect_hosts

from mirrortest.kafka.fast.administration import FastAdmin
from mirrortest.kafka.fast.connection import create_connection
from mirrortest.kafka.fast.contract import check_contract
from mirrortest.kafka.fast.fetching import FastConsumer
from mirrortest.kafka.fast.sending import FastProducer
from mirrortest.kafka.public.connection import arguments, request_errors

if TYPE_CHECKING:
    from mirrortest.config.client_config import ClientConfig

__all__ = [
    "METADATA_CREATES_TOPICS",
    "admin",
    "check_contract",
    "consumer",
    "producer",
    "try_connection",
]

METADATA_CREATES_TOPICS = False
"""See `ports.Library`."""

producer, consumer, admin = FastProducer, FastConsumer, FastAdmin
"""See `ports.Library`."""


async def try_connection(config: ClientConfig) -> None:
    """See `ports.Library`."""
    options = arguments(config)
    host, port, _ = collect_hosts(options.pop("bootstrap_servers"))[0]
    for unused in ("metadata_max_age_ms", "retry_backoff_ms"):
        del options[unused]
    idle = options.pop("connections_max_idle_ms")
    with request_errors():
        connection = await create_connection(host, port, max_idle_ms=idle, **options)
        await connection.close()
