"""The files that are made of the code, and what stands in each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana.alert_cases import rules_tests
from grafana.alerts import prometheus_rule, rules
from grafana.catalogue import dashboards

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import Dashboard

    from grafana.links import Addresses

ROOT = Path(__file__).parents[1]
_HEAD = "# Made by `python -m grafana` of grafana/alerts.py: change that.\n"


def files(addresses: Addresses | None = None) -> dict[Path, str]:
    """Every file, relative to the repository's root, and its text."""
    made = {
        Path("grafana/dashboards") / f"{name}.json": as_json(built)
        for name, built in dashboards().items()
    }
    made[Path("deploy/alerts/rules.yaml")] = _HEAD + as_yaml(rules(addresses=addresses))
    manifest = prometheus_rule(addresses)
    made[Path("deploy/alerts/prometheusrule.yaml")] = _HEAD + as_yaml(manifest)
    made[Path("deploy/alerts/rules.test.yaml")] = _HEAD.replace(
        "alerts.py", "alert_cases.py"
    ) + as_yaml(rules_tests())
    return made


def as_json(dashboard: Dashboard) -> str:
    """A dashboard as Grafana imports it."""
    return json.dumps(dashboard, cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def as_yaml(value: dict[str, Any]) -> str:
    """YAML in the order given, without line breaks in expressions."""
    return yaml.safe_dump(value, sort_keys=False, width=4096, allow_unicode=True)
