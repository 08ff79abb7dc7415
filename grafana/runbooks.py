"""Runbooks: the pages of docs/runbooks where alerts and panels can lead to them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from grafana.frame import framed
from grafana.links import PAGES, runbook_panel
from grafana.panels import page

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import Dashboard

_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


def runbooks() -> Dashboard:
    """The dashboard."""
    return framed(
        "runbooks",
        "Runbooks",
        "What each alert means, where to look, and what to do.",
        [("", [page(name, _content(path.read_text())) for name, path in PAGES.items()])],
    )


def _content(text: str) -> str:
    """A page without its heading, which is the panel's title, and with links that work here."""
    _, _, body = text.partition("\n")
    return _LINK.sub(_link, body.strip())


def _link(found: re.Match[str]) -> str:
    name, place = found[1], found[2].rpartition("/")[2].removesuffix(".md")
    # Of the same dashboard: such an address is right under every path.
    return f"[{name}](?viewPanel={runbook_panel(place)})" if place in PAGES else name
