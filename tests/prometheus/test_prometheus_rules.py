"""promtool on the committed rules, and Grafana's linter on the committed dashboards."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from grafana.alerts import alerts
from tests.prometheus import tools
from tests.tools import ToolMissingError
from tests.unit.dashboard_queries import DASHBOARDS, ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.prometheus
PLACE = ROOT / "deploy/alerts"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a tool; all that it says is in `stdout`, in its order."""
    return subprocess.run(
        [*map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_the_rules_are_rules(promtool: Path) -> None:
    """The tool checks them, linting included."""
    done = run(promtool, "check", "rules", "--lint-fatal", PLACE / "rules.yaml")
    assert done.returncode == 0, done.stdout
    assert f"{len(alerts())} rules found" in done.stdout


def test_the_rules_pass_their_tests(promtool: Path) -> None:
    """The tool runs them all."""
    done = run(promtool, "test", "rules", PLACE / "rules.test.yaml")
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module", params=["vector(1) == 0", "vector(1)"], ids=["never", "always"])
def told_of_wrong(
    promtool: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, str]:
    """What the tool says of each alert's tests when its rule is this; the others are as they are.

    One process for all: its start takes longer than the tests.
    """
    folder = tmp_path_factory.mktemp("wrong")
    tests = yaml.safe_load((PLACE / "rules.test.yaml").read_text())
    rules = (PLACE / "rules.yaml").read_text()
    files: dict[str, Path] = {}
    for alert in alerts():
        changed = yaml.safe_load(rules)
        for rule in changed["groups"][0]["rules"]:
            if rule["alert"] == alert.name:
                rule["expr"] = request.param
        (folder / f"{alert.name}.rules.yaml").write_text(yaml.safe_dump(changed))
        cases = [case for case in tests["tests"] if case["name"].startswith(f"{alert.name}:")]
        names = [f"{alert.name}.rules.yaml"]
        files[alert.name] = folder / f"{alert.name}.test.yaml"
        files[alert.name].write_text(yaml.safe_dump({**tests, "rule_files": names, "tests": cases}))
    done = run(promtool, "test", "rules", *files.values())
    assert done.returncode != 0
    sections = done.stdout.split("Unit Testing:")[1:]
    said = {section.split(maxsplit=1)[0]: section for section in sections}
    return {name: said[str(file)] for name, file in files.items()}


@pytest.mark.parametrize("name", [alert.name for alert in alerts()])
def test_a_wrong_rule_fails_its_tests(told_of_wrong: dict[str, str], name: str) -> None:
    """An alert that never fires is found, and one that always does."""
    assert "FAILED" in told_of_wrong[name]
    assert f'alertname="{name}"' in told_of_wrong[name]


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_grafanas_linter_has_nothing_to_say(name: str) -> None:
    """With the exclusions of grafana/dashboards/.lint, each with its reason."""
    try:
        linter = tools.dashboard_linter()
    except ToolMissingError as error:
        pytest.skip(str(error))
    done = run(linter, "lint", "--strict", ROOT / f"grafana/dashboards/{name}.json")
    assert done.returncode == 0, done.stdout
