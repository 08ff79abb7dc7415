"""Start a client; if that fails, find the cause and raise an error in the user's words."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from typing import TYPE_CHECKING

import structlog

from mirrortest.errors import ClusterError, UnreachableError
from mirrortest.kafka.error_table import (
    ACCESS_REFUSED,
    Code,
    RequestError,
    addresses,
    cluster_error,
    reason,
)
from mirrortest.kafka.library import library

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.ports import ClientPort

_log = structlog.get_logger()

_STOP_SECONDS = 2.0
_FIRST_LOG_SECONDS = 5.0
_REPEAT_SECONDS = 15.0
_PROBE_SECONDS = 2.0
"""How long a bootstrap server may take to accept a connection, after all else failed."""


async def start(
    config: ClientConfig, client: ClientPort, doing: str, *, seconds: float | None = None
) -> None:
    """Start a client, within `seconds` if given; stop it if that fails.

    Raises:
        UnreachableError: no bootstrap server answers.
        ClusterError: the cluster refuses us.
    """
    with _log_slow_start(config):
        await _start(config, client, doing, seconds)


@contextlib.contextmanager
def _log_slow_start(config: ClientConfig) -> Iterator[None]:
    """Log periodically that the client is still trying: a listener may never answer."""
    loop, since = asyncio.get_running_loop(), time.monotonic()
    timer: asyncio.TimerHandle | None = None

    def show() -> None:
        nonlocal timer
        _log.warning(f"still trying {addresses(config)}", seconds=round(time.monotonic() - since))
        timer = loop.call_later(_REPEAT_SECONDS, show)

    timer = loop.call_later(_FIRST_LOG_SECONDS, show)
    try:
        yield
    finally:
        timer.cancel()


async def _start(
    config: ClientConfig, client: ClientPort, doing: str, seconds: float | None
) -> None:
    try:
        async with asyncio.timeout(seconds):
            await client.start()
    except RequestError as error:
        await client.stop(_STOP_SECONDS)
        if error.code == Code.NOT_CONNECTED:
            raise await bootstrap_failure(config, error) from error
        raise cluster_error(config, doing, error) from error
    except TimeoutError as error:
        await client.stop(_STOP_SECONDS)
        raise cluster_error(config, doing, error) from error
    except BaseException:
        await client.stop(_STOP_SECONDS)
        raise


async def bootstrap_failure(config: ClientConfig, error: RequestError) -> ClusterError:
    """Find out why no bootstrap server is usable: clients only log it, so connect once more."""
    cause: RequestError | OSError = error
    try:
        await library(config).try_connection(config)
    except (RequestError, OSError) as again:
        cause = again
    code = cause.code if isinstance(cause, RequestError) else Code.NOT_CONNECTED
    if code in ACCESS_REFUSED:
        why = reason(cause)
        if code == Code.UNSUPPORTED_SASL_MECHANISM:
            why = f"it does not offer sasl.mechanism={config.sasl_mechanism}"
        elif code == Code.ILLEGAL_SASL_STATE:
            without = config.security_protocol.removeprefix("SASL_")
            why = (
                f"this listener does not use SASL: set security.protocol={without} "
                f"instead of {config.security_protocol}"
            )
        return ClusterError(f"Kafka at {addresses(config)} refuses us: {why}")
    origin = _deepest(cause)
    is_tls = isinstance(origin, ssl.SSLError)
    text = f"no Kafka broker answers at {addresses(config)}: {reason(origin if is_tls else cause)}"
    if not is_tls and await _connects(config):
        check = [f"security.protocol={config.security_protocol}"]
        if config.portable and config.uses_sasl:  # the public API does not report a refusal
            check += [f"sasl.mechanism={config.sasl_mechanism}", "the password"]
        if config.uses_tls and config.ssl_keystore_location is config.ssl_keystore_key is None:
            check.append("whether it asks for a certificate (ssl.keystore.location)")
        *first, last = check
        named = f"{', '.join(first)} and {last}" if first else last
        text += f"; the port accepts connections: check {named}"
    return UnreachableError(text)


def _deepest(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


async def _connects(config: ClientConfig) -> bool:
    """Whether any bootstrap server accepts a TCP connection, even if it fails afterwards."""
    for address in config.bootstrap_servers:
        host, _, port = address.rpartition(":")
        with contextlib.suppress(OSError, ValueError):
            async with asyncio.timeout(_PROBE_SECONDS):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.close()
            return True
    return False
