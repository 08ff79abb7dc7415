"""Client properties: merged, typed and checked; no text shows a secret."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirrortest.config.client_config import (
    Assignor,
    ClientConfig,
    Compression,
    IsolationLevel,
    SaslMechanism,
    SecurityProtocol,
)
from mirrortest.errors import UsageError

SERVER = {"bootstrap.servers": "a:1"}
JAAS = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="hush";'
)


def config(**properties: str) -> ClientConfig:
    """Create a config; underscores are replaced by dots."""
    dotted = {key.replace("_", "."): value for key, value in properties.items()}
    return ClientConfig.from_properties({**SERVER, **dotted})


def test_defaults_are_javas() -> None:
    """Nothing but an address gives an idempotent client without TLS or SASL."""
    defaults = ClientConfig.load(bootstrap_server="a:9092, PLAINTEXT://[::1]:9093")
    assert defaults.bootstrap_servers == ("a:9092", "[::1]:9093")
    assert defaults.security_protocol is SecurityProtocol.PLAINTEXT
    assert (defaults.acks, defaults.enable_idempotence) == (-1, True)
    assert (defaults.uses_sasl, defaults.uses_tls, defaults.warnings) == (False, False, ())


def test_option_over_property_over_file_over_default() -> None:
    """Each of these sources overrides those after it."""
    file = {"bootstrap.servers": "file:1", "linger.ms": "2", "client.id": "file", "batch.size": "3"}
    merged = ClientConfig.load(
        bootstrap_server="flag:1",
        file_properties=file,
        command_properties=["client.id=property", "linger.ms = 7".replace(" ", "")],
        defaults={"linger.ms": "1", "batch.size": "1", "max.request.size": "1"},
    )
    assert merged.bootstrap_servers == ("flag:1",)
    assert merged.client_id == "property"
    assert (merged.linger_ms, merged.batch_size, merged.max_request_size) == (7, 3, 1)


def test_types() -> None:
    """Values have the types that they have in Kafka."""
    typed = config(
        acks="1",
        compression_type="ZSTD",
        isolation_level="read_committed",
        partition_assignment_strategy="org.apache.kafka.clients.consumer.StickyAssignor, range",
        fetch_min_bytes=" 5 ",
    )
    assert (typed.acks, typed.enable_idempotence) == (1, False)
    assert typed.compression_type is Compression.ZSTD
    assert typed.partition_assignment_strategy == (Assignor.STICKY, Assignor.RANGE)
    assert typed.fetch_min_bytes == 5


def test_read_committed() -> None:
    """The isolation level in Kafka's own spelling."""
    read = ClientConfig.from_properties({**SERVER, "isolation.level": "read_committed"})
    assert read.isolation_level is IsolationLevel.READ_COMMITTED


def test_scram_by_jaas_says_no_secret() -> None:
    """The credentials are taken out of the JAAS text; no repr shows them."""
    scram = ClientConfig.from_properties(
        {
            **SERVER,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": JAAS,
        }
    )
    assert scram.sasl_mechanism is SaslMechanism.SCRAM_SHA_512
    assert (scram.sasl_username, scram.sasl_password) == ("u", "hush")
    assert "hush" not in repr(scram)
    elsewhere = replace(scram, bootstrap_servers=("b:2",))
    assert elsewhere.bootstrap_servers == ("b:2",)
    assert elsewhere.sasl_password == "hush"


def test_pem_stores() -> None:
    """PEM files and inline PEM are accepted; an empty algorithm disables the host name check."""
    tls = ClientConfig.from_properties(
        {
            **SERVER,
            "security.protocol": "SSL",
            "ssl.truststore.type": "pem",
            "ssl.truststore.location": "ca.pem",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": "CHAIN",
            "ssl.keystore.key": "hush",
            "ssl.key.password": "hush",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert (tls.uses_tls, tls.checks_hostname) == (True, False)
    assert tls.ssl_keystore_key == "hush"
    assert "hush" not in repr(tls)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"bootstrap.servers": "a"}, "a has no port; use HOST:PORT, for example a:9092"),
        ({"bootstrap.servers": "a:0"}, "a:0 is not HOST:PORT"),
        ({"bootstrap.servers": ","}, "bootstrap.servers"),
        ({"bootstrap.servers": ".kafka.svc:1"}, "kafka.svc:1: .* each have 1 to 63 characters"),
        ({"bootstrap.servers": "a..b:1"}, "each have 1 to 63 characters"),
        ({"bootstrap.servers": "a" * 64 + ".b:1"}, "each have 1 to 63 characters"),
        ({"metadata.max.age.ms": str(2**63)}, "at most 9223372036854775807"),
        ({"linger.ms": "soon"}, "linger.ms=soon: not an integer"),
        ({"request.timeout.ms": "0"}, "at least 1"),
        ({"acks": "2"}, "one of all, 1, 0"),
        ({"acks": "1", "enable.idempotence": "true"}, "acks=all"),
        ({"transactional.id": "t", "acks": "1"}, "enable.idempotence"),
        ({"enable.idempotence": "yes"}, "true or false"),
        ({"compression.type": "brotli"}, "zstd"),
        ({"security.protocol": "TLS"}, "SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "needs sasl.mechanism"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "needs sasl.jaas.config"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "SCRAM-SHA-256"),
        ({"partition.assignment.strategy": "a.B"}, "sticky"),
        ({"heartbeat.interval.ms": "5", "session.timeout.ms": "5"}, "below session"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "t.jks"}, "keytool"),
        (
            {
                "security.protocol": "SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": "c",
            },
            "ssl.keystore.key",
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": "l",
                "ssl.truststore.certificates": "c",
            },
            "not both",
        ),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ftp"},
            "https",
        ),
    ],
)
def test_contradictions_and_nonsense_are_refused(properties: dict[str, str], message: str) -> None:
    """The error names the property or says what to write."""
    with pytest.raises(UsageError, match=message):
        ClientConfig.from_properties({**SERVER, **properties})


def test_what_kafkas_own_clients_accept_is_accepted() -> None:
    """An absolute host name, the longest label, the largest long."""
    longest = f"{'a' * 63}.kafka.svc.:1"
    made = ClientConfig.from_properties(
        {"bootstrap.servers": longest, "metadata.max.age.ms": str(2**63 - 1)}
    )
    assert made.bootstrap_servers == (longest,)
    assert made.metadata_max_age_ms == 2**63 - 1


def test_no_address_is_refused() -> None:
    """The error says which option is missing."""
    with pytest.raises(UsageError, match="--bootstrap-server"):
        ClientConfig.load()


def test_properties_without_effect_are_warned_of() -> None:
    """An unknown one, mirrortest's own and Java's each get a line, which never has the value."""
    lines = ClientConfig.from_properties(
        {
            **SERVER,
            "linger.sm": "hush",
            "group.id": "hush",
            "receive.buffer.bytes": "1",
            "x.y": "1",
            "transaction.timeout.ms": "1",
        }
    ).warnings
    assert "did you mean linger.ms?" in lines[0]
    assert "--consumer-group" in lines[1]
    assert "no effect" in lines[2]
    assert lines[3] == "client property x.y is unknown"
    assert lines[4] == "client property transaction.timeout.ms has no effect in mirrortest"
    assert "hush" not in "".join(lines)


def test_defaults_of_the_application_are_not_warned_of() -> None:
    """Only what the user wrote is worth a warning."""
    assert ClientConfig.from_properties(SERVER, defaults={"group.id": "g"}).warnings == ()


def test_what_is_recorded_of_a_client_has_defaults_and_no_secret() -> None:
    """The sequence log has it under Kafka's names."""
    found = config(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=JAAS,
        ssl_truststore_certificates="-----BEGIN CERTIFICATE-----" + 1000 * "A", linger_ms="9",
    ).recorded  # fmt: skip
    assert "hush" not in str(found)
    assert found["sasl.password"] == found["sasl.jaas.config"] == "(hidden)"
    shown = {"linger.ms": "9", "batch.size": "16384", "bootstrap.servers": "a:1"}
    shown |= {"enable.idempotence": "true", "partition.assignment.strategy": "range"}
    assert found.items() >= shown.items()
    assert found["ssl.truststore.certificates"].startswith("sha256:")
    assert "client.rack" in found
    assert "transactional.id" not in found
