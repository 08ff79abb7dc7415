"""The committed alerts: one source, a runbook each, cases that fire and cases that do not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from grafana.__main__ import main
from grafana.alert_cases import cases
from grafana.alerts import Alert, Limits, alerts, prometheus_rule, rules
from grafana.links import Addresses
from mirrortest.metrics.names import TABLE
from tests.unit.dashboard_queries import DASHBOARDS, ROOT, resolved

if TYPE_CHECKING:
    from pathlib import Path

ALERTS = alerts()
ASKED = {
    "loss": "MirrortestLoss",
    "duplicates over threshold": "MirrortestDuplicates",
    "messages that cannot be judged": "MirrortestInconclusive",
    "latency": "MirrortestLatencyHigh",
    "a process that cannot be scraped": "MirrortestTargetDown",
    "mirror stalled": "MirrortestMirrorStalled",
    "ledger silent": "MirrortestLedgerSilent",
    "consumer stalled": "MirrortestConsumerStalled",
    "producer behind schedule": "MirrortestProducerBehindSchedule",
    "clock skew beyond bound": "MirrortestClockSkew",
    "checker near its memory bound": "MirrortestCheckerNearBound",
}
"""The conditions that operators must learn of, and the alert for each."""


def read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "deploy/alerts" / name).read_text())
    return loaded


def test_what_must_be_told_is_told() -> None:
    """Every condition has an alert, and the alerts' names are unique."""
    names = [alert.name for alert in ALERTS]
    assert set(ASKED.values()) <= set(names)
    assert len(set(names)) == len(names)


def test_both_files_hold_the_same_rules() -> None:
    """The file for Prometheus and the one for its operator have the same rules."""
    assert read("rules.yaml") == rules() == prometheus_rule()["spec"]
    manifest = read("prometheusrule.yaml")
    assert manifest["spec"] == read("rules.yaml")
    assert (manifest["apiVersion"], manifest["kind"]) == (
        "monitoring.coreos.com/v1",
        "PrometheusRule",
    )


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_says_what_it_is_and_where_to_go_on(alert: Alert) -> None:
    """It has a severity, a summary, a description and an existing runbook."""
    rule = alert.rule(Addresses())
    rule_annotations = rule["annotations"]
    assert re.fullmatch(r"Mirrortest[A-Z]\w+", rule["alert"])
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule_annotations["summary"].startswith("Run {{ $labels.run }}: ")
    assert rule_annotations["description"].endswith(".")
    page = ROOT / f"docs/runbooks/{alert.name}.md"
    assert page.read_text().startswith(f"# {alert.name}\n\nSeverity: {alert.severity}.\n")
    index = (ROOT / "docs/runbooks/README.md").read_text()
    assert f"[{alert.name}]({alert.name}.md) | {alert.severity} |" in index


@pytest.mark.parametrize("address", ["http://localhost:3000", "https://grafana.example/sub/"])
@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_leads_to_a_dashboard_a_panel_and_a_runbook(alert: Alert, address: str) -> None:
    """Its links are absolute, and their targets exist, also if Grafana is below a path."""
    rule_annotations = alert.rule(Addresses(address))["annotations"]
    root = address.rstrip("/")
    titles = {each["uid"]: each["title"] for each in DASHBOARDS.values()}
    uid = f"mirrortest-{alert.dashboard}"
    assert resolved(rule_annotations["dashboard_url"], grafana=root) == (uid, titles[uid])
    assert resolved(rule_annotations["panel_url"], grafana=root) == (uid, alert.panel)
    page = resolved(rule_annotations["runbook_url"], grafana=root)
    assert page == ("mirrortest-runbooks", alert.name)
    filled = set(re.findall(r"\$labels\.(\w+)", rule_annotations["dashboard_url"]))
    assert filled == {"run", "topic"}
    assert re.search(r"by \([^)]*\brun\b", alert.expression)


def test_runbooks_may_be_elsewhere() -> None:
    """Their address has a placeholder for the alert's name; the dashboards stay in Grafana."""
    rule = ALERTS[0].rule(Addresses(runbook="https://docs.example/{alert}.html"))["annotations"]
    assert rule["runbook_url"] == "https://docs.example/MirrortestLoss.html"
    assert rule["dashboard_url"].startswith("http://localhost:3000/d/")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--grafana-url", "grafana.example"], "grafana: 'grafana.example' is not an address"),
        (["--grafana-url", ""], "grafana: the address is empty"),
        (["--runbook-url", "docs/runbooks/{alert}.md"], "is not an address; use https://HOST/"),
        (["--runbook-url", "https://docs.example/"], "does not say where the alert's name goes"),
    ],
)
def test_addresses_that_cannot_be_are_refused(
    options: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An invalid address gets an error that says what is wrong; no file is written."""
    with pytest.raises(SystemExit) as ended:
        main([*options, "--output", str(tmp_path)])
    assert ended.value.code == 2
    assert line in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_generator_writes_other_addresses_elsewhere(tmp_path: Path) -> None:
    """A site gets its own rules without a change in the repository; `--check` compares them."""
    addresses = ["--grafana-url", "https://g.example", "--runbook-url", "https://r.example/{alert}"]
    assert main([*addresses, "--output", str(tmp_path)]) == 0
    made = yaml.safe_load((tmp_path / "deploy/alerts/rules.yaml").read_text())
    for rule in made["groups"][0]["rules"]:
        rule_annotations = rule["annotations"]
        assert rule_annotations["runbook_url"] == f"https://r.example/{rule['alert']}"
        assert rule_annotations["panel_url"].startswith("https://g.example/d/mirrortest-")
    assert main([*addresses, "--output", str(tmp_path), "--check"]) == 0
    assert main(["--output", str(tmp_path), "--check"]) == 1


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_asks_for_metrics_that_there_are(alert: Alert) -> None:
    """Its metrics exist, and it keeps the labels that its summary names."""
    known = {metric.full_name for metric in TABLE}
    for name in re.findall(r"\bmirrortest_\w+", alert.expression):
        assert re.sub(r"_(bucket|sum|count)$", "", name) in known
    for label in set(re.findall(r"\$labels\.(\w+)", alert.summary)):
        assert re.search(rf"by \([^)]*\b{label}\b", alert.expression)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_is_tested_both_ways(alert: Alert) -> None:
    """The promtool cases have times at which it fires, and times at which it does not."""
    fires = [
        bool(labels) for case in cases() if case.alert == alert.name
        for labels in case.firing.values()
    ]  # fmt: skip
    assert True in fires
    assert False in fires


def test_limits_change_the_rules_and_nothing_else() -> None:
    """Other limits leave the alerts the same: a test may be quicker, a site more patient."""
    usual, other = alerts(), alerts(Limits(latency=5, window="10s", patience="2s", absence="4s"))
    assert [alert.name for alert in usual] == [alert.name for alert in other]
    changed = {a.name for a, b in zip(usual, other, strict=True) if a.expression != b.expression}
    assert "MirrortestLatencyHigh" in changed
    assert "MirrortestLoss" not in changed
    assert {alert.patience for alert in other} == {"", "2s", "4s"}


def test_the_documents_examples_work(capsys: pytest.CaptureFixture[str]) -> None:
    """In docs/how-to/watch.md, own limits give a rules file; the scrape configuration is YAML."""
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
