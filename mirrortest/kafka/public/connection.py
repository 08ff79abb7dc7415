"""Parts that all aiokafka clients share: arguments, errors, stopping."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import tempfile
from typing import TYPE_CHECKING, Any

from aiokafka import errors

from mirrortest.errors import UsageError
from mirrortest.kafka import error_table
from mirrortest.kafka.error_table import Code, RequestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from mirrortest.config.client_config import ClientConfig

_CODES = {
    errors.AuthenticationFailedError: Code.ACCESS_REFUSED,
    errors.AuthenticationMethodNotSupported: Code.ACCESS_REFUSED,
    errors.CommitFailedError: Code.COMMIT_FAILED,
    errors.IllegalStateError: Code.ILLEGAL_STATE,
    errors.KafkaError: Code.BROKE_OFF,
    errors.KafkaTimeoutError: Code.GAVE_UP_WAITING,
    errors.NoOffsetForPartitionError: Code.NO_OFFSET,
    errors.ProducerFenced: Code.INVALID_PRODUCER_EPOCH,
}
"""aiokafka's errors that have no broker code and are not merely retriable."""

_stopping: set[asyncio.Future[None]] = set()
"""Stops of clients that no caller waits for any more: kept here until they end."""


def arguments(config: ClientConfig) -> dict[str, Any]:
    """The arguments with which all aiokafka clients are created.

    Raises:
        UsageError: a certificate, key or password cannot be used.
    """
    idle = config.connections_max_idle_ms
    shared: dict[str, Any] = {
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
        shared |= {
            "sasl_mechanism": str(config.sasl_mechanism),
            "sasl_plain_username": config.sasl_username,
            "sasl_plain_password": config.sasl_password,
        }
    return shared


def tls_context(config: ClientConfig) -> ssl.SSLContext:
    """The TLS context for a cluster; without a trust store it trusts the system's authorities.

    Raises:
        UsageError: a store cannot be read, or a key does not match its certificate or password.
    """
    try:
        context = ssl.create_default_context(
            cafile=config.ssl_truststore_location, cadata=config.ssl_truststore_certificates
        )
    except (OSError, ValueError) as error:
        where = config.ssl_truststore_location or "ssl.truststore.certificates"
        raise UsageError(
            f"cannot read the trust store {where}: {error_table.reason(error)}"
        ) from error
    context.check_hostname = config.checks_hostname
    # A callable, so that OpenSSL never asks for a password at the terminal.
    password = config.ssl_key_password or ""
    with _key_file(config) as path:
        if path is not None:
            try:
                context.load_cert_chain(path, password=lambda: password)
            except (OSError, ValueError) as error:
                where = config.ssl_keystore_location or "ssl.keystore.key"
                raise UsageError(
                    f"cannot use the key store {where}: {error_table.reason(error)}"
                ) from error
    return context


@contextlib.contextmanager
def _key_file(config: ClientConfig) -> Iterator[str | None]:
    """Yield the path of a PEM file with key and certificates: OpenSSL reads only files."""
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


# -- errors ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def request_errors() -> Iterator[None]:
    """Convert errors of aiokafka and of the system into a RequestError."""
    try:
        yield
    except (errors.KafkaError, OSError) as error:
        raise request_error(error) from error


def request_error(error: BaseException) -> RequestError:
    """The RequestError for an error of aiokafka or of the system."""
    if isinstance(error, OSError):
        code: int = Code.NO_ANSWER if isinstance(error, TimeoutError) else Code.NOT_CONNECTED
    elif isinstance(error, errors.BrokerResponseError):
        code = error.errno
    elif type(error) in _CODES:
        code = _CODES[type(error)]
    else:
        code = Code.NOT_CONNECTED if getattr(error, "retriable", False) else Code.UNKNOWN
    return RequestError(code, reason(error))


def reason(error: BaseException) -> str:
    """An error's text on one line; its class name if it has no text."""
    if isinstance(error, errors.BrokerResponseError):
        # aiokafka's connections add their own repr to their errors.
        texts = [text for text in map(str, error.args) if not text.startswith("<")]
        return " ".join([str(error.message), *texts]).strip()
    return error_table.reason(error)


def broker_error(code: int, about: str | None) -> RequestError | None:
    """The error for a broker's code; None for 0."""
    return request_error(errors.for_code(code)(about)) if code else None


# -- the end ---------------------------------------------------------------------------------------


def begin_stop(client: Any) -> asyncio.Future[None]:
    """Begin to stop a client; the stop goes on whether or not anybody waits for it."""
    stopping: asyncio.Future[None] = asyncio.ensure_future(client.stop())
    _stopping.add(stopping)
    stopping.add_done_callback(_stopped)
    return stopping


def _stopped(stopping: asyncio.Future[None]) -> None:
    _stopping.discard(stopping)
    if not stopping.cancelled():
        stopping.exception()  # mark it as retrieved; without a broker it can be any error


async def stop_cleanly(stop: Callable[[], Awaitable[None]], seconds: float) -> bool:
    """Stop a client; return whether it stopped in time and without an error. Raises nothing.

    Without a broker, `stop` may never return, or may raise the cancellation of its own task.
    """
    stopping = asyncio.ensure_future(stop())
    try:
        await asyncio.wait({stopping}, timeout=seconds)
    finally:
        stopping.cancel()
    return stopping.done() and not stopping.cancelled() and stopping.exception() is None
