"""The contract with aiokafka: the signatures of its internals that this package uses."""

# ruff: noqa: SLF001  # only this package may use aiokafka's private members

from __future__ import annotations

import functools
import inspect
from typing import Any

from aiokafka import client as _client
from aiokafka import cluster as _cluster
from aiokafka import conn as _conn
from aiokafka.consumer import fetcher as _fetcher
from aiokafka.consumer import group_coordinator as _coordinator
from aiokafka.consumer import subscription_state as _subscriptions
from aiokafka.protocol import api as _api
from aiokafka.protocol import fetch as _fetch
from aiokafka.protocol import metadata as _metadata
from aiokafka.protocol import offset as _offset
from aiokafka.protocol import produce as _produce
from aiokafka.protocol import transaction as _transaction

from mirrortest.kafka.fast.produce_request import NEWEST

_SIGNATURES: tuple[tuple[Any, str], ...] = (
    (_fetcher.Fetcher._fetch_requests_routine, "self"),
    (_subscriptions.SubscriptionState.register_fetch_waiters, "self waiters"),
    (_subscriptions.SubscriptionState.fetch_context, "self"),
    (_coordinator.GroupCoordinator.check_errors, "self"),
    (_coordinator.NoGroupCoordinator.check_errors, "self"),
    (_client.AIOKafkaClient.send, "self node_id request group"),
    (_client.AIOKafkaClient.ready, "self node_id group"),
    (_client.AIOKafkaClient.force_metadata_update, "self"),
    (_client.AIOKafkaClient._wait_on_metadata, "self topic"),
    (_client.AIOKafkaClient._metadata_update, "self cluster_metadata topics"),
    (_client.AIOKafkaClient.get_random_node, "self"),
    (_cluster.ClusterMetadata.update_metadata, "self metadata"),
    (_cluster.ClusterMetadata.add_listener, "self listener"),
    (_cluster.ClusterMetadata.broker_metadata, "self broker_id"),
    (_cluster.ClusterMetadata.brokers, "self"),
    (_cluster.ClusterMetadata.leader_for_partition, "self partition"),
    (
        _fetch.FetchRequest.__init__,
        "self max_wait_time min_bytes max_bytes isolation_level topics rack_id",
    ),
    (_metadata.MetadataRequest.__init__, "self topics allow_auto_topic_creation"),
    (_transaction.InitProducerIdRequest.__init__, "self transactional_id transaction_timeout_ms"),
    (_offset.OffsetRequest.__init__, "self replica_id isolation_level topics"),
    (_api.Request.prepare, "self versions"),
    (_api.RequestStruct.build_request_header, "self correlation_id client_id"),
    (_api.RequestStruct.parse_response_header, "self read_buffer"),
    (_conn.AIOKafkaProtocol.__init__, "self closed_fut args loop kw"),
    (_conn.AIOKafkaConnection.send, "self request expect_response"),
    (_conn.AIOKafkaConnection._read, "self_ref"),
    (_conn.AIOKafkaConnection._handle_frame, "self resp"),
)
"""Callables and their parameters."""


@functools.cache
def check_contract() -> None:
    """Refuse an aiokafka whose internals differ, before it does harm.

    Raises:
        AttributeError: a signature, or the newest produce request, differs.
    """
    for function, expected in _SIGNATURES:
        found = " ".join(inspect.signature(function).parameters)
        if found != expected:
            raise AttributeError(f"{function.__qualname__} takes ({found})")
    newest = _produce.ProduceRequest._CLASSES[-1].API_VERSION
    if newest != NEWEST:
        raise AttributeError(f"ProduceRequest has version {newest}, of which no answer is read")
