"""From our client properties to aiokafka's arguments, and from its errors to ours."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import tempfile
from typing import TYPE_CHECKING, Any

from aiokafka import errors

from mirrortest.errors import ClusterError, UnreachableError, UsageError
from mirrortest.kafka import error_table
from mirrortest.kafka.access import access
from mirrortest.kafka.error_table import ACCESS_REFUSED, Code, RequestError, addresses

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from mirrortest.config.client import ClientConfig

_OF_THE_CLIENT = {
    errors.AuthenticationFailedError: Code.ACCESS_REFUSED,
    errors.AuthenticationMethodNotSupported: Code.ACCESS_REFUSED,
    errors.CommitFailedError: Code.COMMIT_FAILED,
    errors.IllegalStateError: Code.ILLEGAL_STATE,
    errors.KafkaError: Code.BROKE_OFF,
    errors.KafkaTimeoutError: Code.GAVE_UP_WAITING,
    errors.NoOffsetForPartitionError: Code.NO_OFFSET,
    errors.ProducerFenced: Code.INVALID_PRODUCER_EPOCH,
}
"""aiokafka's errors that have no broker's code, and do not only ask for another try."""
_KNOCK_SECONDS = 2.0
"""How long a bootstrap server may take to accept a connection, once nothing else worked."""


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


async def start(
    config: ClientConfig,
    client: Any,
    stop: Callable[[], Awaitable[None]],
    *,
    seconds: float | None = None,
) -> None:
    """Start one of aiokafka's clients, within so many seconds; `stop` ends it where that fails.

    Raises:
        UnreachableError: no bootstrap server answers.
        ClusterError: the cluster refuses us.
    """
    try:
        async with asyncio.timeout(seconds):
            await client.start()
    except (errors.KafkaConnectionError, OSError) as error:  # TimeoutError is one
        await stop()
        raise await bootstrap_failure(config, error) from error
    except errors.KafkaError as error:
        await stop()
        raise cluster_error(config, "connecting", error) from error
    except BaseException:
        await stop()
        raise


async def bootstrap_failure(config: ClientConfig, error: BaseException) -> ClusterError:
    """Say why no bootstrap server could be used: aiokafka only logs it, so one is tried again."""
    cause = error
    try:
        await access(config).try_connection(connection(config))
    except (errors.KafkaError, OSError) as again:
        cause = again
    code = request_error(cause).code
    if code in ACCESS_REFUSED:
        why = reason(cause)
        if code == Code.UNSUPPORTED_SASL_MECHANISM:
            why = f"it does not offer sasl.mechanism={config.sasl_mechanism}"
        elif code == Code.ILLEGAL_SASL_STATE:
            without = config.security_protocol.removeprefix("SASL_")
            why = (
                f"this listener takes no SASL: is it security.protocol={without}, "
                f"and not {config.security_protocol}?"
            )
        return ClusterError(f"Kafka at {addresses(config)} refuses us: {why}")
    origin = _deepest(cause)
    of_tls = isinstance(origin, ssl.SSLError)
    told = f"no Kafka broker answers at {addresses(config)}: {reason(origin if of_tls else cause)}"
    if not of_tls and await _connects(config):
        told += f"; somebody listens there: is it security.protocol={config.security_protocol}"
        if config.portable and config.uses_sasl:  # a refusal is told to nobody
            told += f", does it offer sasl.mechanism={config.sasl_mechanism} and take the password"
        if config.uses_tls and config.ssl_keystore_location is config.ssl_keystore_key is None:
            told += ", and does it ask for a certificate (ssl.keystore.location)"
        told += "?"
    return UnreachableError(told)


def _deepest(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


async def _connects(config: ClientConfig) -> bool:
    """Whether any bootstrap server takes a connection, whatever comes of it."""
    for address in config.bootstrap_servers:
        host, _, port = address.rpartition(":")
        with contextlib.suppress(OSError, ValueError):
            async with asyncio.timeout(_KNOCK_SECONDS):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.close()
            return True
    return False


def request_error(error: BaseException) -> RequestError:
    """The table's error for one of aiokafka's or of the system."""
    if isinstance(error, OSError):
        code: int = Code.NO_ANSWER if isinstance(error, TimeoutError) else Code.NOT_CONNECTED
    elif isinstance(error, errors.BrokerResponseError):
        code = error.errno
    elif type(error) in _OF_THE_CLIENT:
        code = _OF_THE_CLIENT[type(error)]
    else:
        code = Code.NOT_CONNECTED if getattr(error, "retriable", False) else Code.UNKNOWN
    return RequestError(code, reason(error))


def cluster_error(config: ClientConfig, doing: str, error: BaseException) -> ClusterError:
    """Our error for one of aiokafka's, met while `doing` something."""
    return error_table.cluster_error(config, doing, request_error(error))


@contextlib.contextmanager
def cluster_errors(config: ClientConfig, doing: str) -> Iterator[None]:
    """Turn what aiokafka raises inside into our errors, with the cluster's address."""
    try:
        yield
    except (errors.KafkaError, OSError) as error:
        raise cluster_error(config, doing, error) from error


def reason(error: BaseException | None) -> str:
    """An error's text on one line; its kind where it has none."""
    if isinstance(error, errors.BrokerResponseError):
        # aiokafka's connections put themselves into their errors.
        texts = [text for text in map(str, error.args) if not text.startswith("<")]
        return " ".join([str(error.message), *texts]).strip()
    return error_table.reason(error)
