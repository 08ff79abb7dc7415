"""Untrusted text is shown, and has no effect, in every output of the program."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import unicodedata
from xml.etree import ElementTree as ET

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.console import Group
from rich.table import Table
from rich.text import Text

from mirrortest.cli import console
from mirrortest.cli.live import LiveLines
from mirrortest.config.visible import visible, visible_json, visible_lines
from mirrortest.consume.consume_report import ConsumeReport
from mirrortest.consume.statistics import ReadFigures
from mirrortest.model.findings import Outcome
from mirrortest.produce.produce_report import ProduceReport
from mirrortest.produce.recording import TopicNumbers
from mirrortest.report.html import environment_of_templates
from mirrortest.report.junit import junit
from mirrortest.report.terminal import run_result
from mirrortest.results.summary import Summary
from mirrortest.timing.histogram import Histogram

HOSTILE = (
    "p\n2026-01-01T00:00:00Z [error] forged\r\x1b[2J\x1b]0;t\x07\x9b31m\u202egnp\u2066\u2028\x00"
)
"""A producer's name that clears the screen, forges a line, and reverses the text after it."""
SHOWN = visible(HOSTILE)
_OBEYED = re.compile("[^\n -~\xa0-\uffff]|[\u200b-\u200f\u2028-\u202e\u2060-\u2069]")


def harmless(text: str) -> bool:
    """Whether a terminal obeys no character of it, and no line of it is forged."""
    lines = text.splitlines()
    return not _OBEYED.search(text) and not any(line.startswith("2026-01-01") for line in lines)


def summary(**more: object) -> Summary:
    """A summary full of untrusted text."""
    fields = {
        "run": "r1", "verdict": "inconclusive", "exit_code": 3, "counts": {"acked": 1, "lost": 1},
        "inconclusive": [f"no log of {HOSTILE}"], "notes": [HOSTILE], "tables": HOSTILE,
        "partitions": [{"topic": HOSTILE, "partition": 0, "counts": {"lost": 1}}],
    }  # fmt: skip
    return Summary.model_validate(fields | more)


@given(st.text(st.characters(exclude_categories=[])))
def test_a_text_is_one_line_that_says_what_it_was(text: str) -> None:
    """Every character of it is printable, and harmless characters stay."""
    shown = visible(text)
    allowed = {"\xa0", "\u202f"}
    assert all(each.isprintable() or each in allowed for each in shown)
    shown.encode()
    assert visible(shown) == shown
    if all(unicodedata.category(each)[0] not in "CZ" for each in text):
        assert shown == text
    assert visible_lines(text).replace("\n", "") == visible(text.replace("\n", ""))


@given(st.recursive(st.text(st.characters(exclude_categories=[])), st.lists, max_leaves=4))
def test_a_document_says_the_same(value: object) -> None:
    """Unprintable characters have JSON's own escapes, even those that JSON allows unescaped."""
    text = json.dumps(value, ensure_ascii=False, indent=1)
    assume(not re.search("[\ud800-\udbff][\udc00-\udfff]", text))  # JSON reads one character
    assert json.loads(visible_json(text)) == value
    assert all(each == "\n" or each.isprintable() for each in visible_json(text))


def test_a_console_shows_what_it_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints, tables, texts and live lines have nothing that a terminal would obey."""
    shown = console.SafeConsole(file=sys.stdout, soft_wrap=True, highlight=False)
    table = Table("name", title=HOSTILE.replace("\n", ""))
    table.add_row(HOSTILE.replace("\n", ""))
    shown.print(Group(table, Text(HOSTILE.replace("\n", ""))))
    shown.print(HOSTILE.replace("\n", ""), markup=False)
    with LiveLines(shown) as live:
        live.show(HOSTILE)
    assert harmless(capsys.readouterr().out)


@pytest.mark.parametrize("colours", [False, True])
def test_a_coloured_console_keeps_its_own_colours(colours: bool) -> None:
    """It has its own escape sequences; those in texts are escaped."""
    shown = console.SafeConsole(
        force_terminal=colours, color_system="standard" if colours else None, highlight=False
    )
    with shown.capture() as captured:
        shown.print("[red]bad[/] \x1b[31m")
    assert captured.get().count("\x1b") == (2 if colours else 0)
    assert "\\x1b[31m" in captured.get()


_LOGS = f"""
import logging, structlog
from mirrortest.model.findings import Outcome
from mirrortest.cli import console
from mirrortest.cli.log_output import configure_logging
hostile = {HOSTILE!r}
configure_logging()
structlog.get_logger().warning(hostile, producer=hostile, all=[hostile], at=(hostile, 1))
logging.getLogger("library").error("it says %s", hostile)
try:
    raise ValueError(hostile)
except ValueError:
    structlog.get_logger().exception("failed")
    logging.getLogger("library").exception("failed")
console.warn([hostile])
"""


def test_logs_have_no_forged_line() -> None:
    """Events, values, what libraries log, tracebacks and warnings cannot forge one."""
    run = subprocess.run([sys.executable, "-c", _LOGS], capture_output=True, text=True, check=True)
    assert harmless(run.stderr)
    assert run.stderr.count("forged") >= 7
    begun = [line for line in run.stderr.splitlines() if line[:1].isdigit()]
    assert len(begun) == 4


def test_an_error_is_one_line() -> None:
    """It is one, whatever reason a broker gave."""
    code = f"""
import sys
sys.argv = ["mirrortest", "synth"]
from mirrortest.cli import main
from mirrortest.errors import ClusterError
def app(**_):
    raise ClusterError({HOSTILE!r})
main.app = app
main._register = main.compiled.check = lambda *_: None
main.run()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr == f"error: {SHOWN}\n"


def test_a_summary_has_no_forged_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the terminal nor the JSON has one, and the JSON decodes to the same summary."""
    hostile = summary()
    console.SafeConsole(file=sys.stdout, width=300).print(run_result(hostile).view(details=True))
    assert harmless(capsys.readouterr().out)
    assert harmless(hostile.encode())
    assert Summary.model_validate_json(hostile.encode()) == hostile


def test_a_consumers_verdict_has_no_forged_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Topics, reasons and notes cannot forge one in the result of a run."""
    latency = Histogram()
    latency.add([1_000_000])
    report = ConsumeReport(
        run="r1", name="c", counts={"acked": 1}, copies=0, verdicts={}, thresholds=(),
        latency={HOSTILE: (latency, latency)}, inconclusive=[HOSTILE], notes=[HOSTILE],
        reading=ReadFigures(messages=1), log="logs", backlog={HOSTILE: 1},
    )  # fmt: skip
    console.SafeConsole(file=sys.stdout, width=300).print(report.result().view(details=True))
    output = capsys.readouterr().out
    assert harmless(output)
    assert output.count(SHOWN) == 5


def test_a_producers_lines_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """A broker's reason, a topic and a note cannot break them."""
    numbers = TopicNumbers(100)
    numbers.steady.outcomes[Outcome.ACKED] = 1
    numbers.steady.span(1, 10)
    numbers.steady.from_intended.histogram.add([1000])
    report = ProduceReport(
        run="r1", name="p", session="s", log="logs", numbers={HOSTILE: numbers}, lanes=[],
        reasons={HOSTILE: 1}, behind_ns={HOSTILE: 10**9}, warmup_records=0, notes=[HOSTILE],
    )  # fmt: skip
    console.SafeConsole(file=sys.stdout, width=300).print(report.result().view())
    output = capsys.readouterr().out
    assert harmless(output)
    assert output.count(SHOWN) == 3
    assert len(output.splitlines()) == 6


def test_reports_show_what_strangers_wrote() -> None:
    """JUnit XML and HTML show it escaped; their own line ends are allowed."""
    document = junit(summary())
    assert harmless(document)
    root = ET.fromstring(document.encode())
    (error,) = root.iter("error")
    assert error.text == f"no log of {SHOWN}"
    template = environment_of_templates().from_string("<b>{{ name }}</b>{{ data | tojson }}")
    page = template.render(name=f"<{HOSTILE}", data={HOSTILE: [HOSTILE, 1]})
    assert page.startswith(f"<b>&lt;{SHOWN}</b>")
    assert harmless(page)
    assert json.loads(page.partition("</b>")[2]) == {SHOWN: [SHOWN, 1]}
