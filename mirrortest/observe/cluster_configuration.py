"""The configurations of clusters, as their brokers report them: of each broker and topic."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any

import structlog

from mirrortest.config.redaction import without_secrets
from mirrortest.errors import MirrortestError
from mirrortest.kafka.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.config.client_config import ClientConfig

_log = structlog.get_logger()

_TIMEOUT = 10.0
MOST_TOPICS = 1000


class ClusterConfigurations:
    """Asks clusters for their configurations.

    Attributes:
        latest: by address: the cluster's id, and `brokers` and `topics` with their properties,
            without secrets. Without an answer, and of brokers that are down, the previous one is
            kept.
        first: the same, as each broker and topic was first seen: a test can create topics.
        left_out: the last requests that were not answered -> why.
    """

    def __init__(self, clients: Sequence[ClientConfig]) -> None:
        self.latest: dict[str, dict[str, Any]] = {}
        self.first: dict[str, dict[str, Any]] = {}
        self.left_out: dict[str, str] = {}
        self._clients = clients

    async def ask(self, within: float = _TIMEOUT) -> None:
        """Ask all clusters once, for so many seconds; a failure is logged when it first occurs."""
        before, self.left_out = self.left_out, {}
        answers = await asyncio.gather(*(self._ask(client, within) for client in self._clients))
        for address, found in filter(None, answers):
            self.latest[address] = found
            seen = self.first.setdefault(address, {"cluster_id": found["cluster_id"]})
            for kind in ("brokers", "topics"):
                seen[kind] = found[kind] | seen.get(kind, {})
        for what, why in self.left_out.items():
            if what not in before:
                _log.warning("configuration is unknown", of=what, why=why)

    async def _ask(self, client: ClientConfig, within: float) -> tuple[str, dict[str, Any]] | None:
        """A cluster's address and its configurations; None without an answer."""
        address = ",".join(client.bootstrap_servers)
        try:
            async with asyncio.timeout(within), Admin(client) as admin:
                topics = await admin.matching(".*")
                answers = await admin.configurations(islice(sorted(topics), MOST_TOPICS))
                cluster_id = await admin.cluster_id()
        except (MirrortestError, TimeoutError) as error:
            why = str(error).partition("\n")[0] or f"no answer within {within:g} s"
            self.left_out[f"configuration of {address}"] = why
            return None
        if len(topics) > MOST_TOPICS:
            what = f"topics of {address} beyond the first {MOST_TOPICS:,}"
            self.left_out[what] = "there are too many"
        before = self.latest.get(address, {})
        # A broker that is down now can come back with another configuration.
        known = dict(before.get("brokers", {}))
        found: dict[str, Any] = {"cluster_id": cluster_id, "brokers": known, "topics": {}}
        for each in answers:
            if each.error is None:
                found[each.kind][each.name] = without_secrets(each.values)
                continue
            kind = each.kind.removesuffix("s")
            self.left_out[f"configuration of {kind} {each.name}"] = str(each.error)
            if each.name in before.get(each.kind, {}):
                found[each.kind][each.name] = before[each.kind][each.name]
        return address, found
