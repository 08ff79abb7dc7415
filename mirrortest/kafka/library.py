"""Select the implementation of the ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiokafka

from mirrortest.errors import ClusterError

if TYPE_CHECKING:
    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.ports import Library

SERIES = "0.14"
"""The series of aiokafka whose internals `fast` uses."""


def library(config: ClientConfig) -> Library:
    """The implementation that a configuration selects; call it before creating a client.

    Raises:
        ClusterError: `fast` does not support the installed aiokafka.
    """
    # Import only the selected package: an aiokafka without support must not break `public`.
    if config.portable:
        from mirrortest.kafka import public  # noqa: PLC0415

        return public
    try:
        if not aiokafka.__version__.startswith(f"{SERIES}."):
            raise AttributeError(f"mirrortest uses internals of {SERIES}")  # noqa: TRY301
        from mirrortest.kafka import fast  # noqa: PLC0415

        fast.check_contract()
    except (ImportError, AttributeError) as error:
        raise ClusterError(
            f"aiokafka {aiokafka.__version__} cannot be used: {error}; install "
            f"'aiokafka=={SERIES}.*', or use --portable (public API only, slower) for produce, "
            "consume and reconcile"
        ) from error
    return fast
