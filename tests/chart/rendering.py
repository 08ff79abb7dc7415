"""The manifests that Helm renders from the chart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml

from grafana.links import Addresses

if TYPE_CHECKING:
    from tests.chart.conftest import Helm

CHART = Path(__file__).parents[2] / "helm" / "mirrortest"
OPERATORS = (
    *("--api-versions", "monitoring.coreos.com/v1"),
    *("--api-versions", "sparkoperator.k8s.io/v1beta2"),
)
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C loader is ten times as fast, but PyYAML may be built without it."""

Manifest: TypeAlias = dict[str, Any]


def rendered(helm: Helm, *arguments: str) -> list[Manifest]:
    """All manifests of a release `dc1` in the namespace `tests`."""
    done = helm("template", "dc1", str(CHART), "--namespace", "tests", *arguments)
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.load_all(done.stdout, Loader=LOADER) if manifest]


def refusal(helm: Helm, *arguments: str) -> str:
    """Why Helm rejects the values: a value's path has dots, whichever Helm it is."""
    done = helm("template", "dc1", str(CHART), *arguments)
    assert done.returncode != 0
    return re.sub(r"at '/(.*?)'", lambda found: found[1].replace("/", "."), done.stderr)


def of_part(manifests: list[Manifest], kind: str, part: str) -> Manifest:
    """The one manifest of this kind that belongs to a part, such as `producer`."""
    (found,) = (
        manifest
        for manifest in manifests
        if manifest["kind"] == kind
        and manifest["metadata"]["labels"].get("app.kubernetes.io/component") == part
    )
    return found


BASE: dict[str, Any] = {
    "run": "r1",
    "source": {"bootstrapServers": "a:9092"},
    "destination": {"bootstrapServers": "b:9092"},
    "producers": {"enabled": True, "topics": ["t"]},
    "consumers": {"enabled": True, "topics": ["A.t"]},
    "observers": {"enabled": True, "topics": ["t"]},
    "reconciliation": {"enabled": True},
    "monitoring": {
        "grafanaUrl": Addresses.grafana,
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
    },
}
"""Values with every part."""


def values_of(*changes: dict[str, Any]) -> tuple[str, ...]:
    """Helm's options for `BASE` with these changes merged into it."""

    def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        both = {**old, **new}
        for name in old.keys() & new.keys():
            if isinstance(old[name], dict):
                both[name] = merged(old[name], new[name])
        return both

    values = BASE
    for change in changes:
        values = merged(values, change)
    return (
        tuple(
            word
            for name, value in values.items()
            for word in ("--set-json", f"{name}={json.dumps(value)}")
        )
        + OPERATORS
    )
