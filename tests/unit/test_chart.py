"""The chart without a cluster: its values, its table, its schema, its copied files."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

import mirrortest
from helm import generated
from mirrortest.config.threshold import COUNTS, OPERATORS, Series, Threshold

if TYPE_CHECKING:
    from collections.abc import Iterator

CHART = Path(__file__).parents[2] / "helm" / "mirrortest"
VALUES = (CHART / "values.yaml").read_text()
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
CI = sorted((CHART / "ci").glob("*-values.yaml"))


def _leaves(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    """The dotted path of every value in the schema."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    if "properties" not in schema:
        yield ".".join(path)
        return
    for name, below in schema["properties"].items():
        yield from _leaves(below, (*path, name))


def _objects(schema: object) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for below in schema.values():
            yield from _objects(below)
    elif isinstance(schema, list):
        for below in schema:
            yield from _objects(below)


def test_the_chart_has_the_package_s_version() -> None:
    """So has its appVersion, which is the image's default tag."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == mirrortest.__version__


def test_the_readme_has_the_table_of_the_values() -> None:
    """`python -m helm.generated` writes it."""
    assert (CHART / "README.md").read_text() == generated.readme(
        generated.README.read_text(), VALUES
    )


def test_alerts_and_dashboards_are_those_of_the_repository() -> None:
    """A chart cannot read files outside itself: its generated copies are up to date."""
    files = {
        str(path.relative_to(CHART)): path.read_text()
        for path in (CHART / "files").rglob("*")
        if path.is_file()
    }
    assert files == generated.copies()
    assert "files/alerts.yaml" in files
    assert any(path.startswith("files/dashboards/") for path in files)


def test_the_schema_takes_the_thresholds_that_the_options_take() -> None:
    """`python -m helm.generated` writes its pattern: metrics by their names, and an operator."""
    assert (CHART / "values.schema.json").read_text() == generated.schema(
        generated.SCHEMA.read_text()
    )
    pattern = SCHEMA["definitions"]["thresholds"]["items"]["pattern"]
    series = ("", *(f"{name}." for name in Series))
    statistics = [f"{name}{of}" for name in series for of in ("p(99.9)", "min", "mean", "max")]
    for metric, bound in (
        *((name, "0") for name in COUNTS),
        *((name, "0.1 %") for name in COUNTS),
        *((name, "1m30s") for name in statistics),
    ):
        for operator in OPERATORS:
            for text in (f"{metric}{operator}{bound}", f" {metric} {operator} {bound}"):
                assert Threshold.parse(text)
                assert re.search(pattern, text)


def test_the_comparison_names_values_that_there_are() -> None:
    """docs/reference/chart.md names existing values, and all of monitor, rules and dashboards."""
    values = yaml.safe_load(VALUES)
    text = (CHART.parents[1] / "docs/reference/chart.md").read_text()
    named = {
        name for line in text.splitlines() if line.startswith("| ")
        for name in re.findall(r"`([^`]+)`", line.split(" | ")[0])
    }  # fmt: skip
    for name in named:
        parts = ("producers", "reconciliation") if name.startswith("PART.") else ("",)
        found = []
        for part in parts:
            with contextlib.suppress(KeyError):
                found.append(generated.at(values, name.replace("PART", part, 1)))
        assert found, name
    monitoring = {
        f"monitoring.{group}.{name}"
        for group in ("podMonitor", "prometheusRule", "dashboards")
        for name in values["monitoring"][group]
    }
    assert monitoring <= named


def test_every_value_is_described_by_itself_or_by_one_above() -> None:
    """Each description is of an existing value, too."""
    described = generated.described(VALUES)
    values = yaml.safe_load(VALUES)
    for path in described:
        generated.at(values, path)

    def undescribed(values: object, path: tuple[str, ...] = ()) -> Iterator[str]:
        if path and ".".join(path) in described:
            return
        if isinstance(values, dict) and values:
            for name, below in values.items():
                yield from undescribed(below, (*path, name))
        else:
            yield ".".join(path)

    assert list(undescribed(values)) == []


def test_the_schema_knows_the_values_and_no_others() -> None:
    """The schema allows exactly the values that values.yaml has."""
    values = yaml.safe_load(VALUES)
    free = {"global"}  # Helm's own
    optional = {"probes"}  # each field is the user's
    for path in set(_leaves(SCHEMA)) - free:
        if not optional & set(path.split(".")):
            generated.at(values, path)
    jsonschema.validate(values, SCHEMA)


def test_the_schema_lets_no_unknown_key_pass() -> None:
    """A typing error is reported at every level."""
    for known in _objects(SCHEMA):
        assert known["additionalProperties"] is False


@pytest.mark.parametrize("path", CI, ids=lambda path: path.stem)
def test_the_examples_are_valid(path: Path) -> None:
    """The schema accepts them, so they name only existing values."""
    jsonschema.validate(yaml.safe_load(path.read_text()), SCHEMA)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"consumer": {"enabled": True}}, "'consumer' was unexpected"),
        ({"producers": {"replica": 3}}, "'replica' was unexpected"),
        ({"producers": {"replicas": "three"}}, "'three' is not of type 'integer'"),
        ({"producers": {"kind": "Deployment"}}, "'Deployment' is not one of"),
        ({"producers": {"throughput": 0}}, "^0 is not valid"),
        ({"consumers": {"deadline": "soon"}}, "'soon' does not match"),
        ({"source": {"bootstrapServers": "dc1"}}, "'dc1' does not match"),
        ({"source": {"password": "secret"}}, "'password' was unexpected"),
        ({"run": "Nightly-1"}, "'Nightly-1' does not match"),
        *(
            ({part: {"thresholds": [wrong]}}, f"'{re.escape(wrong)}' does not match .*|lost|")
            for part in ("consumers", "reconciliation")
            for wrong in ("lst==0", "p99<2s", "lost=0", "lost", "late.p(99)<2s", "lost==")
        ),
        ({"logs": {"uri": "/a/path"}}, "'/a/path' does not match"),
    ],
)
def test_the_schema_refuses(wrong: dict[str, dict[str, Any] | str], message: str) -> None:
    """It refuses unknown keys, wrong types and values that no option takes."""
    with pytest.raises(jsonschema.ValidationError, match=message):
        jsonschema.validate(wrong, SCHEMA)
