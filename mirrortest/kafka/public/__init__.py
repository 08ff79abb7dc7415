"""The ports with aiokafka's public API alone (`--portable`): slower, with the same verdict.

They work with any version of aiokafka. Its metadata request for a missing topic can create the
topic. So metadata of all topics is requested, and only a topic that is deleted while it is written
or read can come back. aiokafka reports a refused password only in its log.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mirrortest.kafka.public.administration import PublicAdmin
from mirrortest.kafka.public.connection import tls_context
from mirrortest.kafka.public.fetching import PublicConsumer
from mirrortest.kafka.public.sending import PublicProducer

if TYPE_CHECKING:
    from mirrortest.config.client_config import ClientConfig

METADATA_CREATES_TOPICS = True
"""See `ports.Library`."""

producer, consumer, admin = PublicProducer, PublicConsumer, PublicAdmin
"""See `ports.Library`."""


async def try_connection(config: ClientConfig) -> None:
    """See `ports.Library`; it connects and does the TLS handshake, but no SASL."""
    host, _, port = config.bootstrap_servers[0].rpartition(":")
    tls = tls_context(config) if config.uses_tls else None
    async with asyncio.timeout(config.request_timeout_ms / 1000):
        _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=tls)
    writer.close()
