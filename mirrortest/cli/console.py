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
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.segment import Segment

from mirrortest.config.visible import visible, visible_lines
from mirrortest.errors import JavaMissingError, MirrortestError
from mirrortest.host.user_files import replace_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from rich.console import ConsoleOptions, RenderableType

_UNBOUNDED = 160
"""Columns of a file or a pipe, which have no width of their own: no table needs more."""


def _width() -> int | None:
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else _UNBOUNDED


class SafeConsole(Console):
    """Rich's, with what cannot be printed escaped in every text that it shows.

    `printing` is held from where a live display is to where it is again: Rich lets one thread
    print while another one renews the display, and each goes by what the other has not written.
    """

    def __init__(self, **look: Any) -> None:
        super().__init__(emoji=False, **look)  # :1: is of an address, not a picture
        self.printing = RLock()

    def print(self, *objects: Any, **how: Any) -> None:
        """See rich."""
        with self.printing:
            super().print(*objects, **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """See rich."""
        for segment in super().render(renderable, options):
            shown = segment.text if segment.control else visible_lines(segment.text)
            yield segment if shown == segment.text else Segment(shown, segment.style)


out = SafeConsole(width=_width(), soft_wrap=True, highlight=False)
err = SafeConsole(stderr=True, soft_wrap=True, highlight=False)

_EXTRAS = {"lab": "jgo", "report": "jinja2", "spark": "pyspark"}
"""Extra of the package -> a module that comes with it."""


def require(*extras: str) -> None:
    """Fail early, and not minutes later: MirrortestError names all that is to be installed.

    `extras` are those of the package that a verb will need. The one for Spark brings no Java, that
    for the lab does; `spark-submit` has one.
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
    """Print warnings; they may contain the user's own words."""
    for line in lines:
        err.print(f"[yellow]warning:[/] {escape(visible(line))}")


def show(
    summary: Mapping[str, object],
    view: RenderableType | None,
    *,
    as_json: bool,
    report: Path | None,
) -> None:
    """Print a result, for people or as JSON; and write its summary to the file of `--report`.

    Without a `view` all that people want has been printed.

    Raises:
        MirrortestError: the file cannot be written.
    """
    if as_json:
        out.print(json.dumps(summary), markup=False)
    elif view is not None:
        out.print(view)
    if report is not None:
        try:
            replace_text(report, json.dumps(summary, indent=2) + "\n")
        except OSError as error:
            raise MirrortestError(f"--report {report}: {error.strerror}") from error
