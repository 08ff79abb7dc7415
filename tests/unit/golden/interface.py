"""What users and their programs rely on: metrics, exit codes, thresholds, verbs and options."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from docs import generated
from mirrortest import errors
from mirrortest.cli.help_layout import aliases_of
from mirrortest.config.threshold import COUNTS, Series, thresholds
from mirrortest.errors import InterruptedRunError, MirrortestError
from mirrortest.metrics.names import OBSERVER_TABLE, TABLE
from mirrortest.model.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator


def document() -> dict[str, Any]:
    """Everything, as JSON's types."""
    return {
        "exit codes": {
            "verdicts": {verdict.value: verdict.exit_code for verdict in Verdict},
            "errors": _exit_codes(),
        },
        "metrics": _metrics(),
        "thresholds": {
            "by default": [str(each) for each in thresholds([])],
            "exactly once": [str(each) for each in thresholds([], exactly_once=True)],
            "counts": list(COUNTS),
            "latencies": [series.value for series in Series],
        },
        "options": dict(_options(generated.program(), ["mirrortest"])),
    }


def _exit_codes() -> dict[str, int]:
    codes = {
        name: error.exit_code
        for name, error in vars(errors).items()
        if isinstance(error, type) and issubclass(error, MirrortestError)
    }
    del codes["InterruptedRunError"]
    return codes | {
        f"InterruptedRunError by signal {number}": InterruptedRunError("", number).exit_code
        for number in (2, 15)
    }


def _metrics() -> list[str]:
    return sorted(
        f"{metric.full_name} {metric.kind} of {metric.side}: {', '.join(metric.labels) or '-'}"
        for metric in (*TABLE, *OBSERVER_TABLE)
    )


def _options(command: Any, path: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The parameters of a command and its subcommands, without those for shell completion."""
    yield (
        " ".join(path),
        sorted(_option(each) for each in command.params if "completion" not in each.opts[0]),
    )
    for name, below in getattr(command, "commands", {}).items():
        yield from _options(below, [*path, name])


def _option(parameter: Any) -> str:
    """Names, default, environment variable; whether it is required, repeatable or hidden."""
    default = parameter.default
    if isinstance(default, Enum):
        default = default.value
    names = ", ".join([*parameter.opts, *parameter.secondary_opts, *aliases_of(parameter)])
    parts = [names if parameter.param_type_name == "option" else f"argument {names}"]
    if parameter.required:
        parts.append("required")
    if default is not None:
        parts.append("default computed" if callable(default) else f"default {default!r}")
    if getattr(parameter, "multiple", False) or parameter.nargs != 1:
        parts.append("repeated")
    if parameter.envvar:
        parts.append(str(parameter.envvar))
    if parameter.hidden:
        parts.append("hidden")
    return "; ".join(parts)
