"""Authentication of pods: with a password at the source, with a certificate at the destination.

The brokers read their settings from files here; the clients' settings are for secrets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trustme
from cryptography.hazmat.primitives import serialization

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SECRET = "of:a broker=that lives for this test"


@dataclass(frozen=True)
class Door:
    """How pods connect to a cluster.

    Attributes:
        protocol: Kafka's name of the security protocol.
        broker: properties of the brokers.
        client: Kafka's client properties; they name `files` where the chart mounts them.
        files: name -> content.
    """

    protocol: str
    broker: Mapping[str, str]
    client: str
    files: Mapping[str, str]


def doors(folder: Path, host: str) -> dict[str, Door]:
    """SASL PLAIN over TLS for `source`, TLS with both sides' certificates for `destination`."""
    authority = trustme.CA()
    trusted = authority.cert_pem.bytes().decode()
    (folder / "ca.pem").write_text(trusted)
    (folder / "broker.pem").write_text(_store(authority.issue_cert(host)))
    broker = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }
    password = {
        "listener.name.pods.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.pods.plain.sasl.jaas.config": f'{_LOGIN} user_mirrortest="{_SECRET}";',
    }
    certificate = {"listener.name.pods.ssl.client.auth": "required"}
    own = _store(authority.issue_cert("mirrortest@example.org"))
    return {
        "source": Door(
            "SASL_SSL",
            {**broker, **password},
            "security.protocol=SASL_SSL\n"
            f"{_trusting('source')}"
            "sasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={_LOGIN} username="mirrortest" password="{_SECRET}";\n',
            {"ca.pem": trusted},
        ),
        "destination": Door(
            "SSL",
            {**broker, **certificate},
            "security.protocol=SSL\n"
            f"{_trusting('destination')}"
            "ssl.keystore.type=PEM\n"
            "ssl.keystore.location=/etc/mirrortest/destination/files/client.pem\n",
            {"ca.pem": trusted, "client.pem": own},
        ),
    }


def _trusting(side: str) -> str:
    place = f"/etc/mirrortest/{side}/files/ca.pem"
    return f"ssl.truststore.type=PEM\nssl.truststore.location={place}\n"


def _store(issued: trustme.LeafCert) -> str:
    """Key and certificates in one PEM file; brokers want the key as PKCS#8."""
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    written = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return (written + b"".join(blob.bytes() for blob in issued.cert_chain_pems)).decode()
