"""The alerts as committed: one source, a runbook each, tests of both kinds."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from grafana.alert_cases import cases
from grafana.alerts import Alert, Limits, alerts, prometheus_rule, rules
from mirrortest.metrics.names import TABLE
from tests.unit.dashboard_queries import DASHBOARDS, ROOT

ALERTS = alerts()
ASKED = {
    "loss": "MirrortestLoss",
    "duplicates over threshold": "MirrortestDuplicates",
    "latency": "MirrortestLatencyHigh",
    "mirror stalled": "MirrortestMirrorStalled",
    "ledger silent": "MirrortestLedgerSilent",
    "consumer stalled": "MirrortestConsumerStalled",
    "producer behind schedule": "MirrortestProducerBehindSchedule",
    "clock skew beyond bound": "MirrortestClockSkew",
    "checker near its memory bound": "MirrortestCheckerNearBound",
}
"""What operators must be told of, and by which alert."""


def read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "deploy/alerts" / name).read_text())
    return loaded


def test_what_must_be_told_is_told() -> None:
    """Each by an alert of its own; names are unique."""
    names = [alert.name for alert in ALERTS]
    assert set(ASKED.values()) <= set(names)
    assert len(set(names)) == len(names)


def test_both_files_hold_the_same_rules() -> None:
    """Prometheus's own form, and the operator's."""
    assert read("rules.yaml") == rules() == prometheus_rule()["spec"]
    manifest = read("prometheusrule.yaml")
    assert manifest["spec"] == read("rules.yaml")
    assert (manifest["apiVersion"], manifest["kind"]) == (
        "monitoring.coreos.com/v1",
        "PrometheusRule",
    )


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_says_what_it_is_and_where_to_go_on(alert: Alert) -> None:
    """Severity, summary, description, a runbook that is there, a dashboard that is there."""
    rule = alert.rule()
    told = rule["annotations"]
    assert re.fullmatch(r"Mirrortest[A-Z]\w+", rule["alert"])
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert told["summary"].startswith("Run {{ $labels.run }}: ")
    assert told["description"].endswith(".")
    page = ROOT / told["runbook_url"]
    assert page.read_text().startswith(f"# {alert.name}\n\nSeverity: {alert.severity}.\n")
    assert told["dashboard"] in {f"/d/{each['uid']}" for each in DASHBOARDS.values()}
    index = (ROOT / "docs/runbooks/README.md").read_text()
    assert f"[{alert.name}]({alert.name}.md) | {alert.severity} |" in index


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_asks_for_metrics_that_there_are(alert: Alert) -> None:
    """And tells the labels that its text names."""
    known = {metric.full_name for metric in TABLE}
    for name in re.findall(r"\bmirrortest_\w+", alert.expression):
        assert re.sub(r"_(bucket|sum|count)$", "", name) in known
    for label in set(re.findall(r"\$labels\.(\w+)", alert.summary)):
        assert re.search(rf"by \([^)]*\b{label}\b", alert.expression)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_is_tested_both_ways(alert: Alert) -> None:
    """The cases of promtool have times at which it fires, and times at which it does not."""
    told = [
        bool(labels) for case in cases() if case.alert == alert.name
        for labels in case.firing.values()
    ]  # fmt: skip
    assert True in told
    assert False in told


def test_limits_change_the_rules_and_nothing_else() -> None:
    """Other thresholds, the same alerts: a test may be quicker, a site more patient."""
    usual, other = alerts(), alerts(Limits(latency=5, window="10s", patience="2s"))
    assert [alert.name for alert in usual] == [alert.name for alert in other]
    changed = {a.name for a, b in zip(usual, other, strict=True) if a.expression != b.expression}
    assert "MirrortestLatencyHigh" in changed
    assert "MirrortestLoss" not in changed
    assert {alert.patience for alert in other} == {"", "2s"}


def test_the_documents_examples_work(capsys: pytest.CaptureFixture[str]) -> None:
    """Of docs/how-to/watch.md: own limits make a rules file; what Prometheus reads is YAML."""
    text = (ROOT / "docs/how-to/watch.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(code, "watch.md", "exec"), {})
    made = yaml.safe_load(capsys.readouterr().out)
    found = {rule["alert"]: rule["expr"] for rule in made["groups"][0]["rules"]}
    assert found.keys() == {alert.name for alert in ALERTS}
    assert found["MirrortestLatencyHigh"].endswith("> 5")
    assert found["MirrortestDuplicates"].endswith("> 0")
    (config,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert yaml.safe_load(config)["scrape_configs"]
