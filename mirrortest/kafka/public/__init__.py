"""The ports by aiokafka's public calls alone (`--portable`): slower, with the same verdict.

For any version of aiokafka. Its metadata request for a missing topic may create it: so all topics
are asked for, and only one that is deleted while it is written or read may come back. That a
password is refused is only written to aiokafka's log.
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
    """See `ports.Library`; it goes as far as TLS."""
    host, _, port = config.bootstrap_servers[0].rpartition(":")
    tls = tls_context(config) if config.uses_tls else None
    async with asyncio.timeout(config.request_timeout_ms / 1000):
        _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=tls)
    writer.close()
