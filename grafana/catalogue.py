"""All dashboards, and the ids of their panels."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from grafana.brokers import brokers
from grafana.comparison import comparison
from grafana.consumer import consumer
from grafana.frame import panel_id
from grafana.mirror import mirror
from grafana.overview import overview
from grafana.producer import producer
from grafana.runbooks import runbooks

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import Dashboard

_BUILDERS = (overview, producer, consumer, mirror, brokers, comparison, runbooks)


@cache
def dashboards() -> dict[str, Dashboard]:
    """The file's name -> the dashboard."""
    return {build.__name__: build() for build in _BUILDERS}


def panel_of(dashboard: str, title: str) -> int:
    """A panel's id. Raises ValueError where the dashboard has not exactly one of this title."""
    return panel_id(dashboards()[dashboard], title)
