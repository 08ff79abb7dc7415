"""Addresses of dashboards, their panels and the runbooks: within Grafana, and from outside.

Within Grafana an address begins with ``/d/``: Grafana puts the path before it under which it is
served. From outside (Alertmanager, mails) it needs Grafana's own address.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PAGES = {
    path.stem: path
    for path in sorted(Path(__file__).parents[1].glob("docs/runbooks/Mirrortest*.md"))
}
"""The alert's name -> its runbook."""
ALERT = "{alert}"
"""What the alert's name replaces in an address of runbooks."""

# Of the time when the alert was evaluated: a link in an old mail still shows what it is about.
_HOUR_BEFORE = (
    '{{ with query "(time() - 3600) * 1000" }}{{ . | first | value | printf "%.0f" }}{{ end }}'
)
_OF_ALERT = (
    "var-run={{ $labels.run | urlquery }}"
    "{{ with $labels.topic }}&var-topic={{ . | urlquery }}{{ end }}"
    f"&from={_HOUR_BEFORE}&to=now"
)


def uid(dashboard: str) -> str:
    """A dashboard's uid by its file's name."""
    return f"mirrortest-{dashboard}"


def runbook_panel(alert: str) -> int:
    """The id of an alert's panel in the dashboard *Runbooks*: panels stand there by name.

    Raises ValueError for an alert without a runbook.
    """
    return 1 + list(PAGES).index(alert)


def from_row(dashboard: str, *labels: str, panel: int = 0) -> str:
    """Where a table's row leads within Grafana: variables from these labels of it, the same time.

    Data source and job stay as they are; `panel` alone is shown if it is given.
    """
    view = [f"viewPanel={panel}"] if panel else []
    kept = [f"${{{name}:queryparam}}" for name in ("datasource", "job")]
    chosen = [f"var-{label}=${{__data.fields.{label}}}" for label in labels]
    return f"/d/{uid(dashboard)}?" + "&".join([*view, *kept, *chosen, "${__url_time_range}"])


def runbook_within(alert: str) -> str:
    """An alert's runbook, for links within Grafana."""
    return f"/d/{uid('runbooks')}?viewPanel={runbook_panel(alert)}"


@dataclass(frozen=True)
class Addresses:
    """Where Grafana and the runbooks are for those who read an alert.

    Attributes:
        grafana: Grafana's address in their browsers; by default its own default.
        runbook: of a runbook, with `{alert}` for the alert's name; empty: the dashboard *Runbooks*.
    """

    grafana: str = "http://localhost:3000"
    runbook: str = ""

    def __post_init__(self) -> None:
        for name, address in (("grafana", self.grafana), ("runbook", self.runbook)):
            if address and not address.startswith(("http://", "https://")):
                raise ValueError(f"{name}: {address!r} is not an address; use https://HOST/...")
        if not self.grafana:
            raise ValueError("grafana: the address is empty; use https://HOST/...")
        if self.runbook and ALERT not in self.runbook:
            raise ValueError(
                f"runbook: {self.runbook!r} does not say where the alert's name goes; "
                f"use https://HOST/{ALERT}.html"
            )

    def runbook_url(self, alert: str) -> str:
        """An alert's runbook."""
        if self.runbook:
            return self.runbook.replace(ALERT, alert)
        return self._root + runbook_within(alert)

    def dashboard_url(self, dashboard: str, panel: int = 0) -> str:
        """A dashboard, or one panel of it, at run, topic and time, which Prometheus fills in."""
        view = f"viewPanel={panel}&" if panel else ""
        return f"{self._root}/d/{uid(dashboard)}?{view}{_OF_ALERT}"

    @property
    def _root(self) -> str:
        return self.grafana.rstrip("/")
