"""Makes what the chart has of others: `python -m helm.generated` writes it.

The table of values in its README is made of values.yaml: a comment that begins with `# --`
describes the value below it, and all that lies under that value unless it is described itself.
Dashboards are copies, as a chart reads no file beside it, and alerts are the same rules with
markers where values.yaml has limits, as `@latency@`. The schema has the metrics that thresholds may
name.
"""  # noqa: INP001  # a tool beside the chart, no package

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import yaml

from grafana.alerts import Limits, rules
from grafana.written import as_yaml
from mirrortest.config.threshold import COUNTS, OPERATORS, Series

CHART = Path(__file__).parent / "mirrortest"
README = CHART / "README.md"
SCHEMA = CHART / "values.schema.json"
ROOT = CHART.parents[1]
DASHBOARDS = ROOT / "grafana" / "dashboards"
BEGIN, END = "<!-- values: python -m helm.generated -->\n", "<!-- end of values -->\n"

_KEY = re.compile(r"^( *)([A-Za-z][A-Za-z0-9]*):")
_COMMENT = re.compile(r"^ *# -- (.*)$")


def described(text: str) -> dict[str, str]:
    """Path of each value that has a comment, dotted -> the comment, in the file's order."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    comment = None
    for line in text.splitlines():
        if match := _COMMENT.match(line):
            comment = match[1]
        elif match := _KEY.match(line):
            depth = len(match[1])
            path = [*(step for step in path if step[0] < depth), (depth, match[2])]
            if comment is not None:
                found[".".join(name for _, name in path)] = comment
            comment = None
    return found


def at(values: Any, path: str) -> Any:
    """The value at a dotted path. Raises KeyError."""
    for name in path.split("."):
        values = values[name]
    return values


def table(text: str) -> str:
    """The table, in Markdown."""
    values = yaml.safe_load(text)
    lines = ["| value | default | meaning |", "|---|---|---|"]
    for path, comment in described(text).items():
        default = json.dumps(at(values, path), separators=(",", ":"))
        cells = (f"`{path}`", f"`{default}`", comment)
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def readme(old: str, values: str) -> str:
    """The README with the table of these values. Raises ValueError where it has no place for it."""
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{README.name} has no place for the table")
    return before + BEGIN + table(values) + END + after


def schema(old: str) -> str:
    """The schema with the present metrics in the pattern of thresholds."""
    changed = json.loads(old)
    counts, series, operators = ("|".join(each) for each in (COUNTS, Series, OPERATORS))
    statistic = rf"(({series})\.)?(min|mean|max|p\([0-9.]+\))"
    pattern = rf"^\s*({counts}|{statistic})\s*({operators})\s*[0-9]"
    changed["definitions"]["thresholds"]["items"]["pattern"] = pattern
    return json.dumps(changed, indent=2) + "\n"


class _Marker(float):
    """A limit that a rule's text names instead of its number."""

    name: str

    def __new__(cls, name: str) -> Self:
        marker = super().__new__(cls, 1)
        marker.name = name
        return marker

    def __format__(self, specification: str) -> str:
        return f"@{self.name}@"


def alerts() -> str:
    """The alerts' rules, with a marker for each limit."""
    markers: dict[str, Any] = {
        each.name: f"@{each.name}@" if isinstance(each.default, str) else _Marker(each.name)
        for each in fields(Limits)
    }
    return "# Made by `python -m helm.generated` of grafana/alerts.py: change that.\n" + as_yaml(
        rules(Limits(**markers))
    )


def copies() -> dict[str, str]:
    """What the chart's files are to hold: path below the chart -> content."""
    dashboards = {
        f"files/dashboards/{path.name}": path.read_text() for path in DASHBOARDS.glob("*.json")
    }
    return {"files/alerts.yaml": alerts(), **dashboards}


def write() -> None:
    """Write everything; copies of what is no more go."""
    README.write_text(readme(README.read_text(), (CHART / "values.yaml").read_text()))
    SCHEMA.write_text(schema(SCHEMA.read_text()))
    for old in (CHART / "files").rglob("*.*"):
        old.unlink()
    for path, content in copies().items():
        (CHART / path).parent.mkdir(parents=True, exist_ok=True)
        (CHART / path).write_text(content)


if __name__ == "__main__":
    write()
