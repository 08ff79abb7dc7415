"""From our client properties to aiokafka's arguments, and from its errors to ours."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import errors

from mirrortest.errors import (
    ClusterError,
    MirrortestError,
    TopicMissingError,
    UnreachableError,
    UsageError,
)
from mirrortest.kafka import seam

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrortest.config.client import ClientConfig

_ENTRY_REFUSED = (
    errors.AuthenticationFailedError,
    errors.AuthenticationMethodNotSupported,
    errors.IllegalSaslStateError,
    errors.SaslAuthenticationFailed,
    errors.UnsupportedSaslMechanismError,
)
_UNREACHED = (
    errors.KafkaConnectionError,
    errors.KafkaTimeoutError,
    errors.NoBrokersAvailable,
    errors.NodeNotReadyError,
    errors.RequestTimedOutError,
    errors.StaleMetadata,
    OSError,  # TimeoutError is one
)


class TopicPartition(NamedTuple):
    """A partition of a topic; a plain `(topic, number)` tuple serves as well."""

    topic: str
    partition: int


def connection(config: ClientConfig) -> dict[str, Any]:
    """The arguments that all of aiokafka's clients share.

    Raises:
        UsageError: a certificate, key or password cannot be used.
    """
    idle = config.connections_max_idle_ms
    arguments: dict[str, Any] = {
        "bootstrap_servers": list(config.bootstrap_servers),
        "client_id": config.client_id,
        "request_timeout_ms": config.request_timeout_ms,
        "metadata_max_age_ms": config.metadata_max_age_ms,
        "retry_backoff_ms": config.retry_backoff_ms,
        "connections_max_idle_ms": idle if idle >= 0 else None,
        "security_protocol": str(config.security_protocol),
        "ssl_context": tls_context(config) if config.uses_tls else None,
    }
    if config.uses_sasl:
        arguments |= {
            "sasl_mechanism": str(config.sasl_mechanism),
            "sasl_plain_username": config.sasl_username,
            "sasl_plain_password": config.sasl_password,
        }
    return arguments


def tls_context(config: ClientConfig) -> ssl.SSLContext:
    """The TLS settings of a cluster: the system's authorities where no trust store is given.

    Raises:
        UsageError: a store cannot be read, or a key does not fit its certificate or password.
    """
    try:
        context = ssl.create_default_context(
            cafile=config.ssl_truststore_location, cadata=config.ssl_truststore_certificates
        )
    except (OSError, ValueError) as error:
        where = config.ssl_truststore_location or "ssl.truststore.certificates"
        raise UsageError(f"cannot read the trust store {where}: {reason(error)}") from error
    context.check_hostname = config.checks_hostname
    # A callable, so that OpenSSL never asks for a password at the terminal.
    password = config.ssl_key_password or ""
    with _key_file(config) as path:
        if path is not None:
            try:
                context.load_cert_chain(path, password=lambda: password)
            except (OSError, ValueError) as error:
                where = config.ssl_keystore_location or "ssl.keystore.key"
                raise UsageError(f"cannot use the key store {where}: {reason(error)}") from error
    return context


@contextlib.contextmanager
def _key_file(config: ClientConfig) -> Iterator[str | None]:
    """Yield the path of a PEM file with key and certificates: OpenSSL takes nothing but files."""
    if config.ssl_keystore_location is not None or config.ssl_keystore_key is None:
        yield config.ssl_keystore_location
        return
    descriptor, path = tempfile.mkstemp(suffix=".pem")  # readable by its owner alone
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{config.ssl_keystore_key}\n{config.ssl_keystore_certificate_chain}\n")
        yield path
    finally:
        os.unlink(path)  # noqa: PTH108  # the counterpart of mkstemp


def addresses(config: ClientConfig) -> str:
    """How a cluster is named in errors."""
    return ",".join(config.bootstrap_servers)


async def bootstrap_failure(config: ClientConfig, error: BaseException) -> ClusterError:
    """Say why no bootstrap server could be used: aiokafka only logs it, so one is tried again."""
    cause = error
    try:
        await seam.try_connection(connection(config))
    except _ENTRY_REFUSED as refusal:
        return ClusterError(f"Kafka at {addresses(config)} refuses us: {reason(refusal)}")
    except (errors.KafkaError, OSError) as again:
        cause = again
    return UnreachableError(f"no Kafka broker answers at {addresses(config)}: {reason(cause)}")


def cluster_error(config: ClientConfig, doing: str, error: BaseException) -> MirrortestError:
    """Our error for one of aiokafka's, met while `doing` something."""
    if isinstance(error, MirrortestError):
        return error
    where = f"Kafka at {addresses(config)}"
    if isinstance(error, errors.UnknownTopicOrPartitionError):
        return TopicMissingError(f"{where}: {doing}: the topic or partition does not exist")
    if isinstance(error, _UNREACHED):
        return UnreachableError(f"{where} does not answer: {doing}: {reason(error)}")
    return ClusterError(f"{where} refuses: {doing}: {reason(error)}")


@contextlib.contextmanager
def told(config: ClientConfig, doing: str) -> Iterator[None]:
    """Turn what aiokafka raises inside into our errors, with the cluster's address."""
    try:
        yield
    except (errors.KafkaError, OSError) as error:
        raise cluster_error(config, doing, error) from error


def reason(error: BaseException | None) -> str:
    """An error's text on one line; its kind where it has none."""
    if isinstance(error, errors.BrokerResponseError):
        return f"{error.message} {' '.join(map(str, error.args))}".strip()
    if isinstance(error, (ConnectionError, FileNotFoundError, PermissionError)) and error.errno:
        return os.strerror(error.errno).lower()
    return " ".join(str(error).split()) or type(error).__name__
