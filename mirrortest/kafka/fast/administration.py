"""aiokafka's admin client, which never creates a topic by asking for it."""

# ruff: noqa: SLF001  # private members are this package's business, and no other's

from __future__ import annotations

from aiokafka.admin import AIOKafkaAdminClient

from mirrortest.kafka.fast.connection import Client
from mirrortest.kafka.fast.rebinding import rebound
from mirrortest.kafka.fast.requests import MetadataRequest
from mirrortest.kafka.public.administration import PublicAdmin


class _AdminClient(AIOKafkaAdminClient):  # type: ignore[misc]  # aiokafka is untyped
    __init__ = rebound(AIOKafkaAdminClient.__init__, AIOKafkaClient=Client)
    _get_cluster_metadata = rebound(
        AIOKafkaAdminClient._get_cluster_metadata, MetadataRequest=MetadataRequest
    )


class FastAdmin(PublicAdmin):
    """See `ports.AdminPort`."""

    client_type = _AdminClient
