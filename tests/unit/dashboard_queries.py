"""The committed dashboards as tests read them: their panels and their queries."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DASHBOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text())
    for path in sorted((ROOT / "grafana/dashboards").glob("*.json"))
}


def panels_of(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """All but the headings of rows."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries_of(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(panel's title, PromQL) of every panel, and (annotation's name, PromQL)."""
    for panel in panels_of(dashboard):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        if "expr" in annotation:
            yield annotation["name"], annotation["expr"]


def filled_in(query: str, *, window: str, over: str, step: str, run: str = ".+") -> str:
    """A query as Grafana sends it, with every variable but the run at All."""
    values = {
        "__rate_interval": window, "__range": over, "__interval": step, "run": run,
        "job": ".+", "instance": ".+", "topic": ".+",
    }  # fmt: skip
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], query)
