"""The result as JUnit XML, for CI servers: a test case for each condition and finding.

A failed condition is a failure, an undecided one an error. A finding fails if a condition on it
failed; otherwise it passes, with its number. What made the run inconclusive is an error of the
case `the run could be judged`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET  # only written here, never read

from mirrortest.config.units import number
from mirrortest.config.visible import visible
from mirrortest.results.conditions import condition_result
from mirrortest.results.words import FINDINGS, meaning_of, rank, readable_name

if TYPE_CHECKING:
    from mirrortest.results.conditions import ConditionResult
    from mirrortest.results.summary import Summary


def junit(summary: Summary) -> str:
    """The XML document."""
    rows = [condition_result(each) for each in summary.thresholds]
    suites = ET.Element("testsuites", name=f"mirrortest run {summary.run}")
    for name, suite in (
        ("verdict", _verdict(summary)),
        ("conditions", [_condition(row) for row in rows]),
        ("findings", _findings(summary, rows)),
    ):
        element = ET.SubElement(
            suites,
            "testsuite",
            name=name,
            tests=str(len(suite)),
            failures=str(sum(case.find("failure") is not None for case in suite)),
            errors=str(sum(case.find("error") is not None for case in suite)),
            skipped="0",
            time="0",
        )
        for case in suite:
            case.set("classname", f"mirrortest.{summary.run}.{name}")
            case.set("time", "0")
            element.append(case)
    for total in ("tests", "failures", "errors"):
        suites.set(total, str(sum(int(each.get(total, "0")) for each in suites)))
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _verdict(summary: Summary) -> list[ET.Element]:
    case = _case("the run could be judged")
    if summary.inconclusive:
        reasons = summary.inconclusive
        _mark(
            case,
            "error",
            f"{number(len(reasons), 'reason')} why not",
            "\n".join(map(visible, reasons)),
        )
    return [case]


def _condition(row: ConditionResult) -> ET.Element:
    case = _case(row.expression)
    if row.ended != "met":
        kind = "failure" if row.ended == "failed" else "error"
        _mark(case, kind, f"{row.expression}: {row.measured}")
    return case


def _findings(summary: Summary, rows: list[ConditionResult]) -> list[ET.Element]:
    broken = {row.metric: row.expression for row in rows if row.ended == "failed"}
    cases = []
    for name in sorted(set(FINDINGS) & set(summary.counts), key=rank):
        case = _case(readable_name(name))
        count = summary.counts[name]
        text = f"{number(count)}: {meaning_of(name)}"
        if name in broken:
            _mark(case, "failure", f"{text}; {broken[name]}")
        elif count:
            ET.SubElement(case, "system-out").text = visible(text)
        cases.append(case)
    return cases


def _case(name: str) -> ET.Element:
    return ET.Element("testcase", name=visible(name))


def _mark(case: ET.Element, kind: str, message: str, text: str = "") -> None:
    """Add a failure or an error; XML cannot contain unprintable characters, not even escaped."""
    shown = visible(message)
    ET.SubElement(case, kind, message=shown, type=kind).text = text or shown
