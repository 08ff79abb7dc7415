"""How to reach a Kafka cluster: the client properties of Kafka's own tools, checked and typed.

Precedence: an option of ours (`--bootstrap-server`), then `--command-property`, then the file
of `--command-config`, then the defaults of the application, then the defaults below, which are
those of Kafka's Java client. No repr, error or warning shows a secret.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from mirrortest.config import client_properties as keys
from mirrortest.config.client_properties import prop
from mirrortest.config.jaas import jaas_options
from mirrortest.config.java_properties import parse_assignments
from mirrortest.config.redaction import HIDDEN, without_secrets
from mirrortest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class SecurityProtocol(StrEnum):
    """How a connection is protected."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class SaslMechanism(StrEnum):
    """How a client authenticates."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class Compression(StrEnum):
    """A record batch's codec."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class IsolationLevel(StrEnum):
    """Which records of transactions a consumer reads."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Assignor(StrEnum):
    """How a group assigns its partitions: what the client library supports."""

    RANGE = "range"
    ROUND_ROBIN = "roundrobin"
    STICKY = "sticky"


ASSIGNORS = {
    "range": Assignor.RANGE,
    "rangeassignor": Assignor.RANGE,
    "roundrobin": Assignor.ROUND_ROBIN,
    "roundrobinassignor": Assignor.ROUND_ROBIN,
    "sticky": Assignor.STICKY,
    "stickyassignor": Assignor.STICKY,
    # The client library has no cooperative rebalancing; eager sticky moves as few partitions.
    "cooperative-sticky": Assignor.STICKY,
    "cooperativestickyassignor": Assignor.STICKY,
}


_LONGEST_RECORDED = 500


def _assignors(text: str) -> tuple[Assignor, ...]:
    found: list[Assignor] = []
    for item in keys.words(text):
        assignor = ASSIGNORS.get(item.rpartition(".")[2].lower())
        if assignor is None:
            raise ValueError(f"{item!r} is not supported; one of range, roundrobin, sticky")
        if assignor not in found:
            found.append(assignor)
    return tuple(found)


def _as_text(value: bool | int | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """Checked client properties; times are int milliseconds, sizes int bytes.

    `portable` is not a Kafka property: use only aiokafka's public calls. `warnings` are lines for
    the user about properties that have no effect.

    Raises:
        UsageError: a value is wrong, or values contradict each other.
    """

    bootstrap_servers: tuple[str, ...] = prop("bootstrap.servers", keys.servers)
    client_id: str = prop("client.id", str, "mirrortest")
    client_rack: str = prop("client.rack", str, "")
    request_timeout_ms: int = prop("request.timeout.ms", keys.integer(1), 30_000)
    metadata_max_age_ms: int = prop("metadata.max.age.ms", keys.integer(1, keys.JAVA_LONG), 300_000)
    retry_backoff_ms: int = prop("retry.backoff.ms", keys.integer(most=keys.JAVA_LONG), 100)
    connections_max_idle_ms: int = prop(
        "connections.max.idle.ms", keys.integer(-1, keys.JAVA_LONG), 540_000
    )

    security_protocol: SecurityProtocol = prop(
        "security.protocol", keys.one_of(SecurityProtocol), SecurityProtocol.PLAINTEXT
    )
    sasl_mechanism: SaslMechanism | None = prop("sasl.mechanism", keys.one_of(SaslMechanism), None)
    sasl_username: str | None = prop("sasl.username", str, None)
    sasl_password: str | None = prop("sasl.password", str, None, secret=True)
    sasl_jaas_config: str | None = prop("sasl.jaas.config", str, None, secret=True)

    ssl_truststore_type: str = prop("ssl.truststore.type", str.upper, "JKS")
    ssl_truststore_location: str | None = prop("ssl.truststore.location", str, None)
    ssl_truststore_certificates: str | None = prop("ssl.truststore.certificates", str, None)
    ssl_keystore_type: str = prop("ssl.keystore.type", str.upper, "JKS")
    ssl_keystore_location: str | None = prop("ssl.keystore.location", str, None)
    ssl_keystore_certificate_chain: str | None = prop("ssl.keystore.certificate.chain", str, None)
    ssl_keystore_key: str | None = prop("ssl.keystore.key", str, None, secret=True)
    ssl_key_password: str | None = prop("ssl.key.password", str, None, secret=True)
    ssl_endpoint_identification_algorithm: str = prop(
        "ssl.endpoint.identification.algorithm", str.lower, "https"
    )

    acks: int = prop("acks", keys.acks, -1)
    enable_idempotence: bool | None = prop("enable.idempotence", keys.boolean, None)
    linger_ms: int = prop("linger.ms", keys.integer(most=keys.JAVA_LONG), 5)
    batch_size: int = prop("batch.size", keys.integer(), 16_384)
    buffer_memory: int = prop("buffer.memory", keys.integer(1, keys.JAVA_LONG), 33_554_432)
    compression_type: Compression = prop(
        "compression.type", keys.one_of(Compression), Compression.NONE
    )
    max_request_size: int = prop("max.request.size", keys.integer(1), 1_048_576)
    delivery_timeout_ms: int = prop("delivery.timeout.ms", keys.integer(1), 120_000)
    transactional_id: str | None = prop("transactional.id", str, None)

    fetch_min_bytes: int = prop("fetch.min.bytes", keys.integer(), 1)
    fetch_max_bytes: int = prop("fetch.max.bytes", keys.integer(1), 52_428_800)
    fetch_max_wait_ms: int = prop("fetch.max.wait.ms", keys.integer(), 500)
    max_partition_fetch_bytes: int = prop("max.partition.fetch.bytes", keys.integer(1), 1_048_576)
    isolation_level: IsolationLevel = prop(
        "isolation.level", keys.one_of(IsolationLevel), IsolationLevel.READ_UNCOMMITTED
    )
    partition_assignment_strategy: tuple[Assignor, ...] = prop(
        "partition.assignment.strategy", _assignors, (Assignor.RANGE,)
    )
    group_instance_id: str | None = prop("group.instance.id", str, None)
    session_timeout_ms: int = prop("session.timeout.ms", keys.integer(1), 45_000)
    heartbeat_interval_ms: int = prop("heartbeat.interval.ms", keys.integer(1), 3_000)
    max_poll_interval_ms: int = prop("max.poll.interval.ms", keys.integer(1), 300_000)

    portable: bool = False
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Read credentials from the JAAS text, and check properties that depend on each other."""
        self._settle_sasl()
        self._check_stores()
        if self.enable_idempotence is None:
            object.__setattr__(self, "enable_idempotence", self.acks == -1)
        elif self.enable_idempotence and self.acks != -1:
            raise UsageError("enable.idempotence=true needs acks=all")
        if self.transactional_id and not self.enable_idempotence:
            raise UsageError("transactional.id needs enable.idempotence=true")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise UsageError("heartbeat.interval.ms must be below session.timeout.ms")

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, str],
        *,
        defaults: Mapping[str, str] | None = None,
        portable: bool = False,
    ) -> ClientConfig:
        """Check properties by Kafka's names; `defaults` are the application's own."""
        known = {item.metadata["key"]: item for item in fields(cls) if item.metadata}
        values: dict[str, Any] = {}
        for key, text in {**(defaults or {}), **properties}.items():
            item = known.get(key)
            if item is not None:
                # Java trims a value, but never a secret.
                value = text.strip() if item.repr else text
                values[item.name] = keys.typed(
                    key, value, item.metadata["read"], secret=not item.repr
                )
        if not values.get("bootstrap_servers"):
            raise UsageError("no cluster is given: use --bootstrap-server HOST:PORT")
        warnings = keys.warnings(properties, frozenset(known))
        return cls(**values, portable=portable, warnings=warnings)

    @classmethod
    def load(
        cls,
        *,
        bootstrap_server: str | None = None,
        file_properties: Mapping[str, str] | None = None,
        command_properties: Sequence[str] = (),
        defaults: Mapping[str, str] | None = None,
        portable: bool = False,
    ) -> ClientConfig:
        """Merge the options of one cluster by their precedence, and check them."""
        properties = dict(file_properties or {})
        properties |= parse_assignments(command_properties, option="--command-property")
        if bootstrap_server:
            properties["bootstrap.servers"] = bootstrap_server
        return cls.from_properties(properties, defaults=defaults, portable=portable)

    def texts(self, keys: Iterable[str]) -> dict[str, str]:
        """These properties, which must not be secrets, as Kafka's tools take them."""
        names = {item.metadata["key"]: item.name for item in fields(self) if item.metadata}
        return {key: _as_text(getattr(self, names[key])) for key in keys}

    @property
    def recorded(self) -> dict[str, str]:
        """The properties that the client uses, including defaults; secrets are hidden.

        Keys are Kafka's names. A text as long as certificates is replaced by its digest.
        """
        found: dict[str, str] = {}
        for item in fields(self):
            if not item.metadata or (value := getattr(self, item.name)) is None:
                continue
            text = ",".join(value) if isinstance(value, tuple) else _as_text(value)
            if len(text) > _LONGEST_RECORDED:
                text = f"sha256:{sha256(text.encode()).hexdigest()}"
            found[item.metadata["key"]] = text if item.repr else HIDDEN
        return without_secrets(found)

    @property
    def uses_sasl(self) -> bool:
        """Whether the client authenticates by SASL."""
        return self.security_protocol.startswith("SASL_")

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def checks_hostname(self) -> bool:
        """Whether a broker's certificate must have the host name of the connection."""
        return bool(self.ssl_endpoint_identification_algorithm)

    def _settle_sasl(self) -> None:
        if not self.uses_sasl:
            return
        if self.sasl_jaas_config is not None:
            options = jaas_options(self.sasl_jaas_config)
            for name in ("username", "password"):
                if getattr(self, f"sasl_{name}") is None:
                    object.__setattr__(self, f"sasl_{name}", options.get(name))
        if self.sasl_mechanism is None:
            raise UsageError(
                f"security.protocol={self.security_protocol} needs sasl.mechanism: one of "
                + ", ".join(SaslMechanism)
            )
        if self.sasl_username is None or self.sasl_password is None:
            raise UsageError(
                f"sasl.mechanism={self.sasl_mechanism} needs sasl.jaas.config with a username "
                "and a password"
            )

    def _check_stores(self) -> None:
        if not self.uses_tls:
            return
        if self.ssl_endpoint_identification_algorithm not in {"", "https"}:
            raise UsageError("ssl.endpoint.identification.algorithm must be 'https' or empty")
        keys.check_store(
            "ssl.truststore",
            self.ssl_truststore_type,
            self.ssl_truststore_location,
            {"certificates": self.ssl_truststore_certificates},
        )
        keys.check_store(
            "ssl.keystore",
            self.ssl_keystore_type,
            self.ssl_keystore_location,
            {
                "certificate.chain": self.ssl_keystore_certificate_chain,
                "key": self.ssl_keystore_key,
            },
        )
