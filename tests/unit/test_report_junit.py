"""JUnit XML: how a CI server shows a run."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from mirrortest.model.verdict import Verdict
from mirrortest.report.junit import junit
from tests.made_result import Made, failed_run

if TYPE_CHECKING:
    from pathlib import Path


def cases(document: str) -> dict[tuple[str | None, str | None], list[str]]:
    """The tags of each case's children (such as `failure`), by suite and name."""
    return {
        (suite.get("name"), case.get("name")): [child.tag for child in case]
        for suite in ET.fromstring(document.encode())
        for case in suite
    }


def test_a_failed_run_fails_its_conditions_and_findings(tmp_path: Path) -> None:
    """Each condition and finding is a case; the totals are those of the cases."""
    document = junit(failed_run().summary(tmp_path))
    found = cases(document)
    assert found["conditions", "lost==0"] == ["failure"]
    assert found["conditions", "p(99)<2s"] == ["failure"]
    assert found["conditions", "phantom==0"] == []
    assert found["conditions", "ack_latency.p(99)<1s"] == ["error"]
    assert found["findings", "lost"] == ["failure"]
    assert found["findings", "duplicated"] == ["system-out"]
    assert found["findings", "phantom"] == []
    assert found["verdict", "the run could be judged"] == ["error"]
    root = ET.fromstring(document.encode())
    all_tags = [tag for tags in found.values() for tag in tags]
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == (
        str(len(found)),
        str(all_tags.count("failure")),
        str(all_tags.count("error")),
    )
    for suite in root:
        assert int(suite.get("tests", "")) == len(suite)


def test_a_clean_run_has_no_trouble(tmp_path: Path) -> None:
    """Everything passes, and the run could be judged."""
    assert {tuple(tags) for tags in cases(junit(Made().summary(tmp_path))).values()} == {()}


def test_any_text_makes_a_document(tmp_path: Path) -> None:
    """Markup is escaped; characters that XML forbids are shown as escapes."""
    made = Made(verdict=Verdict.INCONCLUSIVE, inconclusive=["a\x00b <&> \ud800 ]]>"])
    root = ET.fromstring(junit(made.summary(tmp_path).model_copy()).encode())
    (error,) = root.iter("error")
    assert error.text == "a\\x00b <&> \\ud800 ]]>"
