"""Clusters that authenticate their clients: mutual TLS, SASL with PLAIN and SCRAM.

One broker has a listener for each of these next to its open one; producers and consumers use each.
"""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import pytest
import trustme

from mirrortest.lab.cluster import Cluster
from mirrortest.lab.free_ports import ADDRESS, free_ports
from mirrortest.lab.process.runtime import Jvm
from mirrortest.lab.properties_file import write_properties
from tests.lab.harness import Command, Scene, wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECRET = "no-log may.show:this=one"  # of a broker that these tests start
WRONG = "neither-this-one"
RECORDS = 2000
LOGIN = "org.apache.kafka.common.security.{}Module required"


class Secured(NamedTuple):
    """The cluster and, for each listener, its address and a client's properties file."""

    cluster: Cluster
    ways: dict[str, tuple[str, Path]]
    folder: Path

    def properties(self, name: str, **changes: str) -> Path:
        """A listener's properties file with changes; an empty value removes a property."""
        _, known = self.ways[name]
        found = dict(line.split("=", 1) for line in known.read_text().splitlines() if "=" in line)
        found |= {key.replace("_", "."): value for key, value in changes.items()}
        path = self.folder / f"changed-{name}.properties"
        write_properties(path, {key: value for key, value in found.items() if value})
        return path


def _login(module: str, password: str = SECRET, user: str = "ann") -> str:
    return f'{LOGIN.format(module)} username="{user}" password="{password}";'


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with listeners for mutual TLS, PLAIN and SCRAM over TLS, and SCRAM alone."""
    folder = tmp_path_factory.mktemp("secured")
    authority = trustme.CA()
    trusted = folder / "authority.pem"
    authority.cert_pem.write_to_path(trusted)
    # A broker's store requires PKCS#8, which trustme does not write.
    for name, identity in (("broker", ADDRESS), ("client", "ann@example.org")):
        _store(authority.issue_cert(identity), folder / f"{name}.pem")
    names = ("TLS", "PLAINTLS", "SCRAMTLS", "SCRAM")
    ports = free_ports(2 + len(names))
    listeners = [f"{n}://{ADDRESS}:{port}" for n, port in zip(names, ports[2:], strict=True)]
    protocols = "SSL", "SASL_SSL", "SASL_SSL", "SASL_PLAINTEXT"
    scram = f"{LOGIN.format('scram.ScramLogin')};"
    properties = {
        "listeners": ",".join(
            (f"PLAINTEXT://{ADDRESS}:{ports[0]}", f"CONTROLLER://{ADDRESS}:{ports[1]}", *listeners)
        ),
        "listener.security.protocol.map": ",".join(
            (
                "PLAINTEXT:PLAINTEXT",
                "CONTROLLER:PLAINTEXT",
                *map(":".join, zip(names, protocols, strict=True)),
            )
        ),
        # Everyone may do everything, except with topics that have access control lists.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.plaintls.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintls.plain.sasl.jaas.config": (
            f'{LOGIN.format("plain.PlainLogin")} user_ann="{SECRET}" user_eve="{SECRET}";'
        ),
        "listener.name.scramtls.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scramtls.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.scram.scram-sha-256.sasl.jaas.config": scram,
    }
    jvm = Jvm.find()
    cluster = Cluster("S", jvm, folder, ports=ports[:2], properties=properties)
    tls = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)}
    clients = {
        "TLS": {
            "security.protocol": "SSL",
            **tls,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "client.pem"),
        },
        "PLAINTLS": {
            "security.protocol": "SASL_SSL",
            **tls,
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": _login("plain.PlainLogin"),
        },
        "SCRAMTLS": {
            "security.protocol": "SASL_SSL",
            **tls,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": _login("scram.ScramLogin"),
        },
        "SCRAM": {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": _login("scram.ScramLogin", user="bob"),
        },
    }
    ways = {}
    for name, port in zip(names, ports[2:], strict=True):
        path = folder / f"{name}.properties"
        write_properties(path, clients[name])
        ways[name] = f"{ADDRESS}:{port}", path
    try:
        cluster.start()
        for user, mechanism in (("ann", "SCRAM-SHA-512"), ("bob", "SCRAM-SHA-256")):
            jvm.run(
                "kafka.admin.ConfigCommand",
                *("--bootstrap-server", cluster.bootstrap_servers),
                *("--alter", "--entity-type", "users", "--entity-name", user),
                *("--add-config", f"{mechanism}=[password={SECRET}]"),
            )
        yield Secured(cluster, ways, folder)
    finally:
        for broker in cluster.brokers:
            broker.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _store(issued: trustme.LeafCert, path: Path) -> None:
    """Key and certificates in one PEM file, as Kafka and OpenSSL both read it."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    )


@pytest.fixture(scope="module")
def lab(secured: Secured) -> SimpleNamespace:
    """The lab of a scene: one cluster that is both source and destination."""
    return SimpleNamespace(source=secured.cluster, destination=secured.cluster)


@pytest.fixture
def scene(make_scene: Callable[..., Scene]) -> Scene:
    """One run with one topic, which is its own copy."""
    made = make_scene("orders", alias="")
    made.lab.source.create_topic(made.topics[0], 2)
    return made


def _by(secured: Secured, way: str, config: Path | None = None) -> tuple[str, ...]:
    address, properties = secured.ways[way]
    return ("--bootstrap-server", address, "--command-config", str(config or properties))


@pytest.mark.parametrize("way", ["TLS", "PLAINTLS", "SCRAMTLS", "SCRAM"])
def test_a_run_on_a_secured_cluster_is_judged(secured: Secured, scene: Scene, way: str) -> None:
    """Both sides use the same listener; all arrives, and no file of the run has the password."""
    producer = scene.produce("ann", *_by(secured, way), "--num-records", str(RECORDS))
    consumer = scene.consume("bob", *_by(secured, way), "--expect-producers", "ann")
    producer.answer()
    answer = consumer.answer()
    assert answer["verdict"] == "passed"
    assert answer["counts"]["acked"] == answer["counts"]["delivered"] == RECORDS
    assert wrong(answer) == {}
    written = [path.read_bytes() for path in scene.folder.rglob("*") if path.is_file()]
    assert len(written) > 4
    assert not any(SECRET.encode() in each for each in written)


def test_the_doctor_names_the_permissions_that_are_missing(secured: Secured, scene: Scene) -> None:
    """A principal may only Describe and Read a topic: the doctor names the missing Write."""
    (topic,) = scene.topics
    for operation in ("Describe", "Read"):
        Jvm.find().run(
            "org.apache.kafka.tools.AclCommand",
            *("--bootstrap-server", secured.cluster.bootstrap_servers),
            *("--add", "--allow-principal", "User:eve"),
            *("--operation", operation, "--topic", topic),
        )
    address, _ = secured.ways["PLAINTLS"]
    as_eve = secured.properties("PLAINTLS", sasl_jaas_config=_login("plain.PlainLogin", user="eve"))
    command = Command(
        [
            "doctor",
            "--source-bootstrap-server",
            address,
            "--source-command-config",
            str(as_eve),
            "--topics",
            topic,
            "--ledger-topic",
            scene.ledger,
            "--json",
        ],
        scene.folder,
        "doctor",
    )
    scene.commands.append(command)
    checks = command.answer(code=1)["checks"]
    (wrong,) = [each for each in checks if each["level"] == "error"]
    assert wrong["found"] == f"this principal may not Write {topic}"
    assert wrong["action"] == f"grant Write on topic {topic}"


@pytest.mark.parametrize(
    ("way", "changes", "reason"),
    [
        ("SCRAMTLS", {"sasl_jaas_config": _login("scram.ScramLogin", WRONG)}, "uthenticat"),
        ("PLAINTLS", {"sasl_jaas_config": _login("plain.PlainLogin", WRONG)}, "uthenticat"),
        ("SCRAM", {"sasl_mechanism": "SCRAM-SHA-512"}, "SCRAM-SHA-512"),
        ("SCRAMTLS", {"ssl_truststore_type": "", "ssl_truststore_location": ""}, "certificate"),
        ("TLS", {"ssl_keystore_type": "", "ssl_keystore_location": ""}, "certificate"),
        ("SCRAM", {"security_protocol": "PLAINTEXT"}, "PLAINTEXT"),
    ],
    ids=[
        "wrong SCRAM password",
        "wrong PLAIN password",
        "a mechanism that is not offered",
        "a certificate that nobody vouches for",
        "no certificate where one is asked for",
        "no protection where SASL is asked for",
    ],
)
def test_who_is_not_let_in_is_told_why(
    secured: Secured, scene: Scene, way: str, changes: dict[str, str], reason: str
) -> None:
    """Both commands exit 1, with one error line that names the address and the reason."""
    config = secured.properties(way, **changes)
    # Only a broker that cannot parse a request lets a client wait until its timeout.
    quick = ("--command-property", "request.timeout.ms=15000") if reason == "PLAINTEXT" else ()
    commands = [
        scene.produce("ann", *_by(secured, way, config), *quick, "--num-records", "10"),
        scene.consume("bob", *_by(secured, way, config), *quick, "--expect-producers", "ann"),
    ]
    for command in commands:
        assert command.wait() == 1, command.stderr
        errors = [line for line in command.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, command.stderr
        assert secured.ways[way][0] in errors[0]
        assert reason in errors[0]
        for secret in (SECRET, WRONG, "Traceback"):
            assert secret not in command.stderr + command.stdout
