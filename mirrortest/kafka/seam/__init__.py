"""The one door to what aiokafka does not promise to keep: written for 0.14, held by tests.

- **Out**: `ReadyBatch` is what `AIOKafkaProducer.send_batch` asks of a batch, around bytes that
  are encoded already. It counts how often its bytes were handed over for transmission.
- **In**: the fetcher looks up `MemoryRecords` and `PartitionRecords` among its module's globals
  when a response arrives. `install` puts ours there: a consumer whose `key_deserializer` is a
  `Door` then gets whole batches from `getmany`, any other consumer its records as ever.
- **Connection**: `install` puts a connection of ours in place of aiokafka's: it writes a produce
  request without joining its batches first, and receives a fetch's answer without copying it.
- **Timeouts**: `install` lets two requests time out on one connection. aiokafka closes it for the
  first, forgets it once somebody connects anew, and looks for it in vain for the second: its
  KeyError is nobody's to catch, and ends the fetcher or the sender.
- **Metadata**: `install` also keeps aiokafka's clients from having missing topics created by the
  mere question for them, where the broker allows it.
- **Identity**: a consumer's client sends its requests by way of `identity`, which adds topic ids
  and leader epochs; `requests` has the versions that aiokafka does not speak.
"""

from __future__ import annotations

from typing import Any

from aiokafka import client as _client
from aiokafka import conn as _conn
from aiokafka.admin import client as _admin
from aiokafka.consumer import fetcher as _fetcher
from aiokafka.errors import RequestTimedOutError

from mirrortest.kafka.seam.clients import Inlet, Outlet, inlet, outlet
from mirrortest.kafka.seam.connection import Connection, frame_protocol
from mirrortest.kafka.seam.contract import check_series
from mirrortest.kafka.seam.incoming import (
    Door,
    RawRecords,
    WholeBatches,
    disconnect,
    fetch_failure,
    partition_records,
)
from mirrortest.kafka.seam.outgoing import (
    ReadyBatch,
    WithdrawnError,
    abandon,
    delivery_failure,
    mend,
)
from mirrortest.kafka.seam.requests import MetadataRequest
from mirrortest.kafka.series import SERIES

__all__ = [
    "ASKING_MAKES_TOPICS",
    "SERIES",
    "Connection",
    "Door",
    "Inlet",
    "Outlet",
    "RawRecords",
    "ReadyBatch",
    "WholeBatches",
    "WithdrawnError",
    "abandon",
    "check_series",
    "delivery_failure",
    "disconnect",
    "fetch_failure",
    "inlet",
    "install",
    "mend",
    "outlet",
    "try_connection",
]

ASKING_MAKES_TOPICS = False
"""See `kafka.access`."""


def install() -> None:
    """Open the door; to be called before a client of ours is made, as often as one likes.

    Raises:
        ClusterError: this aiokafka is not the one that the door was made for.
    """
    check_series()
    _fetcher.MemoryRecords = RawRecords
    _fetcher.PartitionRecords = partition_records
    _conn.AIOKafkaConnection = Connection
    _conn.AIOKafkaProtocol = frame_protocol
    _client.AIOKafkaClient.send = _send
    _client.MetadataRequest = MetadataRequest
    _admin.MetadataRequest = MetadataRequest


_plain_send = _client.AIOKafkaClient.send


async def _send(
    self: Any, node_id: int, request: Any, *, group: Any = _client.ConnectionGroup.DEFAULT
) -> Any:
    """See `AIOKafkaClient.send`; a connection that is gone already has timed out."""
    try:
        return await _plain_send(self, node_id, request, group=group)
    except KeyError as error:
        if error.args != ((node_id, group),):
            raise
        raise RequestTimedOutError from error


async def try_connection(arguments: dict[str, Any]) -> None:
    """Connect to one bootstrap server and close; what goes wrong is raised, not only logged."""
    host, port, _ = _conn.collect_hosts(arguments["bootstrap_servers"])[0]
    unused = {"bootstrap_servers", "metadata_max_age_ms", "retry_backoff_ms"}
    idle = arguments["connections_max_idle_ms"]
    options = {key: value for key, value in arguments.items() if key not in unused}
    del options["connections_max_idle_ms"]
    connection = await _conn.create_conn(host, port, max_idle_ms=idle, **options)
    await connection.close()
