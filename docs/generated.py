"""What the reference has from the code: `python -m docs.generated` writes it, `make reference`.

Whole pages and schemas are files of their own. In pages that are written by hand, a generated part
is between two comments with its name.
"""  # noqa: INP001  # a tool beside the pages, no package

from __future__ import annotations

import json
import re
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from typer.main import get_command

from mirrortest.cli import main
from mirrortest.cli.help_layout import BY_ENVIRONMENT, Program, aliases_of, group_of
from mirrortest.compare.document import Comparison
from mirrortest.compare.figures import FIGURES as COMPARED
from mirrortest.compare.trend import Trend
from mirrortest.config.option_file import schema_of
from mirrortest.config.threshold import COUNTS, Series, thresholds
from mirrortest.consume.consume_summary import ConsumeSummary
from mirrortest.errors import MirrortestError
from mirrortest.faults.ground_truth import Truth
from mirrortest.faults.spec import Spec
from mirrortest.metrics import names
from mirrortest.model import failure
from mirrortest.model.findings import DEFINITIONS
from mirrortest.model.load import FIGURES
from mirrortest.model.observed import TABLES
from mirrortest.produce.produce_summary import ProduceSummary
from mirrortest.produce.workload import WholeWorkload
from mirrortest.results.status_document import ConsumeDocument, ProduceDocument
from mirrortest.results.summary import Summary
from mirrortest.scenario.outcome import SeriesOutcome
from mirrortest.scenario.specification import Scenario
from mirrortest.selftest.calibration import Calibration
from mirrortest.seqlog import schema
from mirrortest.seqlog.events import Event
from mirrortest.seqlog.observation import Observation
from mirrortest.seqlog.session import Session
from mirrortest.verify import anomaly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


REFERENCE = Path(__file__).parent / "reference"
SCHEMAS: dict[str, Any] = {
    "summary": Summary,
    "produce-summary": ProduceSummary,
    "consume-summary": ConsumeSummary,
    "session": Session,
    "event": Event,
    "observation": Observation,
    "produce-status": ProduceDocument,
    "consume-status": ConsumeDocument,
    "calibration": Calibration,
    "comparison": Comparison,
    "trend": Trend,
    "fault-specification": Spec,
    "fault-truth": Truth,
    "scenario": Scenario,
    "scenario-result": SeriesOutcome,
}
_COMMAND_LINE = """# Command line

Generated from the program: `mirrortest COMMAND --help` shows the same.

- An option with an environment variable is read from it if it is not given.
- DURATION is a number with its unit: `500us`, `20ms`, `90s`, `5m`, `1h`.
- [Exit codes](exit-codes.md), [thresholds](thresholds.md) and [shapes of load](load-shapes.md) have
  pages of their own.
"""


def program() -> Any:
    """The whole command line, as typer's command."""
    app = Program(help=main.app.info.help, epilog=main.app.info.epilog)
    app.callback()(main.main)
    for verb in main._VERBS:  # noqa: SLF001  # the list of the verbs, which only the program needs
        main.add_verb(app, verb)
    return get_command(app)


def files() -> dict[Path, str]:
    """Every file below docs/reference that has something generated: path -> text.

    Raises ValueError where a page lacks the place for a part.
    """
    written = {
        Path("command-line.md"): _COMMAND_LINE + "".join(_command(program(), ["mirrortest"])),
        Path("findings.md"): anomaly.markdown(),
    }
    schemas = {
        name: TypeAdapter(model).json_schema(mode="serialization")
        for name, model in SCHEMAS.items()
    }
    schemas["workload"] = schema_of(WholeWorkload)
    for name, content in schemas.items():
        written[Path("schemas") / f"{name}.schema.json"] = json.dumps(content, indent=1) + "\n"
    for page, parts in PARTS.items():
        text = (REFERENCE / page).read_text()
        for name, make in parts.items():
            text = _replaced(text, name, make())
        written[Path(page)] = text
    return written


def _replaced(page: str, name: str, part: str) -> str:
    begin, end = f"<!-- {name}: make reference -->\n", f"<!-- end of {name} -->\n"
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"no place for {name}")
    return f"{before}{begin}\n{part}\n{end}{after}"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *([_cell(each) for each in row] for row in rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _command(command: Any, path: list[str]) -> Iterator[str]:
    """A command's section, then those of the commands below it."""
    yield f"\n{'#' * max(len(path), 2)} {' '.join(path)}\n\n"
    yield from _help(command.help or "")
    groups: dict[str, list[Any]] = {}
    for parameter in command.params:
        if "completion" not in parameter.opts[0] and not parameter.hidden:
            groups.setdefault(group_of(parameter), []).append(parameter)
    for group, parameters in groups.items():
        rows = ((_name(each), _default(each), _meaning(each)) for each in parameters)
        yield f"\n**{group}**\n\n" + _table(("option", "default", "meaning"), rows)
    for name, below in getattr(command, "commands", {}).items():
        yield from _command(below, [*path, name])


def _help(text: str) -> Iterator[str]:
    """A help's paragraphs; what is indented like a command, and its continuation, as code."""
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        if lines and all(line.startswith("    ") for line in lines):
            code = "\n".join(line.removeprefix("    ") for line in lines)
            language = "sh" if code.startswith("mirrortest ") else "text"
            yield f"```{language}\n{code}\n```\n\n"
        elif paragraph.strip() == "Examples:":
            yield "**Examples**\n\n"
        else:
            yield "\n".join(line.strip() for line in lines).replace("<", r"\<") + "\n\n"


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    named = ", ".join([*parameter.opts, *parameter.secondary_opts, *aliases_of(parameter)])
    return f"`{named}`" if parameter.is_flag else f"`{named} {parameter.metavar or 'VALUE'}`"


def _default(parameter: Any) -> str:
    default = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
    if parameter.required:
        return "required"
    if default is None or default is False or callable(default):
        return ""
    return f"`{default}`" if str(default) else "empty"


def _meaning(parameter: Any) -> str:
    text = (parameter.help or "").removesuffix(BY_ENVIRONMENT).replace("<", r"\<")
    return f"{text} (`{parameter.envvar}`)" if parameter.envvar else text


def _counts() -> str:
    meanings = {each.finding.label: each.meaning for each in DEFINITIONS}
    others = {
        "delivered": "acknowledged, and seen at least once",
        "acked": "sends that the brokers acknowledged",
        "failed": "sends of which it is certain that nothing was written",
        "unknown": "sends without an answer: the message may or may not be written",
        "negative_latency": "latencies below zero: clocks disagree, or were set",
    }
    return _table(
        ("count", "messages"), ((f"`{name}`", (meanings | others)[name]) for name in COUNTS)
    )


def _series() -> str:
    spans = {
        Series.LATENCY: "the intended time to the arrival at the consumer",
        Series.SENT_LATENCY: "the actual send to the arrival at the consumer",
        Series.ACK_LATENCY: "the actual send to the broker's acknowledgement",
        Series.SCHEDULE_LAG: "the intended time to the actual send",
    }
    return _table(("latency", "from"), ((f"`{each}`", spans[each]) for each in Series))


def _defaults() -> str:
    return _table(
        ("", "thresholds"),
        (
            (title, ", ".join(f"`{each}`" for each in thresholds([], exactly_once=strict)))
            for title, strict in (("by default", False), ("with `--exactly-once`", True))
        ),
    )


def _kinds() -> str:
    """The table of the module that has the columns."""
    rows = re.findall(r"^\|.*\|$", (schema.__doc__ or "").replace("\\\n", ""), re.MULTILINE)
    return "\n".join(rows) + "\n"


def _columns() -> str:
    return _table(
        ("column", "type", "null"),
        (
            (f"`{column.name}`", f"`{column.type}`", "possible" if column.nullable else "never")
            for column in schema.ROWS
        ),
    )


def _figures() -> str:
    return _table(
        ("column", "type", "of", "unit", "meaning"),
        (
            (f"`{each.name}`", f"`{each.type}`", each.writer.value, each.unit, each.meaning)
            for each in FIGURES
        ),
    )


def _observed() -> str:
    """A section for each table of an observation."""
    return "\n".join(
        f"## {table.name}\n\n"
        + _table(
            ("column", "type", "unit", "meaning"),
            (
                (f"`{each.name}`", f"`{each.type}`", each.unit, each.meaning)
                for each in table.columns
            ),
        )
        for table in TABLES
    )


def _compared() -> str:
    return _table(
        ("figure", "unit", "worse if", "meaning"),
        ((f"`{each.name}`", each.unit.value, each.worse.value, each.meaning) for each in COMPARED),
    )


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "metrics.md": {"metrics": names.markdown},
    "observations.md": {
        "observed": _observed,
        "observer metrics": lambda: names.markdown(names.OBSERVER_TABLE),
    },
    "thresholds.md": {"counts": _counts, "latencies": _series, "defaults": _defaults},
    "sequence-log.md": {
        "kinds": _kinds,
        "columns": _columns,
        "figures": _figures,
        "failures": failure.markdown,
    },
    "comparison.md": {"compared": _compared},
}


def write() -> None:
    """Write everything; schemas of models that are no more go."""
    made = files()
    for old in (REFERENCE / "schemas").glob("*.json"):
        old.unlink()
    for path, text in made.items():
        (REFERENCE / path).parent.mkdir(exist_ok=True)
        (REFERENCE / path).write_text(text)


if __name__ == "__main__":
    try:
        write()
    except (MirrortestError, ValueError) as error:
        sys.exit(f"docs.generated: {error}")
