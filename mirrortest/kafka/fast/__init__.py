"""The ports with internals of aiokafka 0.14 (`library.SERIES`); tests check the contract.

Only this package uses interfaces that aiokafka does not promise to keep. It patches nothing in
aiokafka's modules: other users of aiokafka in the same process are not affected (`rebinding`).

- **Sending**: batches, of messages or of single records, are delivered without aiokafka's producer
  (`delivery`). `ReadyBatch` counts how often a batch's bytes were handed over for transmission.
- **Fetching**: fetch requests are sent without aiokafka's fetcher (`fetcher`), and responses are
  cut into complete batches (`places`). Group membership is aiokafka's (`fetching`).
- **Connection**: a produce request is written without joining its batches, and a fetch response
  is received without copying it. Two requests can time out on one connection.
- **Metadata**: no request creates a missing topic.
- **Identity**: a consumer's requests carry topic ids and leader epochs (`identity`), in versions
  that aiokafka does not support (`requests`).
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
        connection.close()
