"""The consoles: results go to stdout, everything else to stderr.

Rich honours NO_COLOR, and prints no colours where the stream is not a terminal. `SafeConsole`
escapes control characters in every text.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from threading import RLock
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.markup import escape
from rich.segment import Segment

from mirrortest.config.visible import visible, visible_lines
from mirrortest.errors import JavaMissingError, MirrortestError
from mirrortest.host.user_files import replace_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import ConsoleOptions, RenderableType

    from mirrortest.cli.options import Output

_UNBOUNDED = 160
"""Columns for a file or a pipe, which has no width of its own: no table needs more."""


def _on_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()  # None: it is closed


def _width() -> int | None:
    return None if _on_terminal(sys.stdout) or "COLUMNS" in os.environ else _UNBOUNDED


class SafeConsole(Console):
    """A rich console that escapes unprintable characters in every text.

    `printing` is locked while a text is printed, and while a live display is refreshed. Rich lets
    one thread print while another refreshes the display, and neither allows for the other's output.
    """

    def __init__(self, **keywords: Any) -> None:
        super().__init__(emoji=False, **keywords)  # :1: is part of an address, not an emoji
        self.printing = RLock()

    def print(self, *objects: Any, **keywords: Any) -> None:
        """See rich."""
        with self.printing:
            super().print(*objects, **keywords)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """See rich."""
        for segment in super().render(renderable, options):
            shown = segment.text if segment.control else visible_lines(segment.text)
            yield segment if shown == segment.text else Segment(shown, segment.style)


out = SafeConsole(width=_width(), soft_wrap=True, highlight=False)
err = SafeConsole(
    stderr=True,
    soft_wrap=True,
    highlight=False,
    # Else FORCE_COLOR, which pipelines set, would draw the live screen into their logs.
    force_interactive=None if _on_terminal(sys.stderr) else False,
)

_EXTRAS = {"lab": "jgo", "report": "jinja2", "spark": "pyspark"}
"""Extra of the package -> a module that comes with it."""


def require(*extras: str) -> None:
    """Fail early if an extra of the package is missing, or the Java that Spark needs.

    The extra for Spark does not bring Java, the one for the lab does. `spark-submit` has its own.

    Raises:
        MirrortestError: something is missing; the text names everything to install.
    """
    from mirrortest.reconcile.jvm import spark_java
    from mirrortest.reconcile.spark_session import given_by_spark_submit

    missing = [extra for extra in extras if importlib.util.find_spec(_EXTRAS[extra]) is None]
    java = ""
    if "spark" in extras and "lab" not in missing and not given_by_spark_submit():
        try:
            spark_java()
        except JavaMissingError as error:
            java = str(error)
    if missing:
        what = "an extra is" if len(missing) == 1 else "extras are"
        install = f"{what} not installed: pip install 'mirrortest[{','.join(missing)}]'"
        raise MirrortestError(f"{install}; {java}" if java else install)
    if java:
        raise JavaMissingError(java)


def warn(lines: Iterable[str]) -> None:
    """Print warnings, each once, escaped: they can contain text that the user typed."""
    for line in dict.fromkeys(lines):
        err.print(f"[yellow]warning:[/] {escape(visible(line))}")


def show(summary: Mapping[str, object], view: RenderableType | None, output: Output) -> None:
    """Print a result, for people or as JSON, and write its summary to the file of `--report`.

    Without a `view`, everything for people has been printed before.

    Raises:
        MirrortestError: the file cannot be written.
    """
    if output.as_json:
        out.print(json.dumps(summary), markup=False)
    elif view is not None:
        out.print(view)
    if output.report is not None:
        try:
            replace_text(output.report, json.dumps(summary, indent=2) + "\n")
        except OSError as error:
            raise MirrortestError(f"--report {output.report}: {error.strerror}") from error
