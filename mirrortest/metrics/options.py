"""Where a process serves its metrics."""

from __future__ import annotations

from dataclasses import dataclass

from mirrortest.config.option import option


@dataclass(frozen=True, kw_only=True)
class MetricsOptions:
    """Port and address of the metrics; with port 0 they are not served."""

    metrics_port: int = option(
        0, "Serve Prometheus metrics here; 0 is off.", env=True, minimum=0, maximum=65535
    )
    metrics_address: str = option(
        "127.0.0.1",
        "The address to serve them on; 0.0.0.0 is all addresses of this machine.",
        env=True,
    )
