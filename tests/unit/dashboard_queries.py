"""The panels and queries of the committed dashboards, for tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DASHBOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text())
    for path in sorted((ROOT / "grafana/dashboards").glob("*.json"))
}


def panels_of(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """All panels but row headings and text panels."""
    return [panel for panel in dashboard["panels"] if panel["type"] not in {"row", "text"}]


class Resolved(NamedTuple):
    """Where a link leads: a dashboard's uid, the title of the panel (or the dashboard's)."""

    uid: str
    title: str


def resolved(address: str, *, grafana: str = "") -> Resolved:
    """Follow a link into Grafana. Fails for a dashboard, panel or variable that does not exist."""
    assert address.startswith(f"{grafana}/d/"), address
    parts = urlsplit(address.removeprefix(grafana))
    uid = parts.path.removeprefix("/d/")
    (dashboard,) = (each for each in DASHBOARDS.values() if each["uid"] == uid)
    known = {f"var-{each['name']}" for each in dashboard["templating"]["list"]}
    title = dashboard["title"]
    for name, value in parse_qsl(parts.query):
        if name == "viewPanel":
            (title,) = (each["title"] for each in dashboard["panels"] if each["id"] == int(value))
        else:
            assert name in known | {"from", "to"}, (address, name)
    # Variables that Grafana replaces by both name and value.
    assert set(re.findall(r"&\$\{(\w+)", parts.query)) <= {"datasource", "job", "__url_time_range"}
    return Resolved(uid, title)


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
        "job": ".+", "instance": ".+", "topic": ".+", "partition": ".*",
    }  # fmt: skip
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], query)
