"""Pictures of a real run, for README and tutorial: `python -m docs.screenshots [DIRECTORY]`.

Runs the demo, or takes the run that `mirrortest run demo --output DIRECTORY` has left there, and
writes docs/images: the HTML report, and what a terminal shows of the result, as the program
renders both now.
"""  # noqa: INP001  # a tool beside the pages, no package

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, DIMMED_MONOKAI, TerminalTheme

from mirrortest.report.html import render
from mirrortest.report.result import Result, read_result
from mirrortest.report.terminal import run_result
from mirrortest.seqlog.location import Location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from playwright.sync_api import Browser
    from rich.console import RenderableType

IMAGES = Path(__file__).parent / "images"
COLUMNS = 88
SECONDS = 90
"""How long producers send: the mirror's outage is the smaller part, on a busy machine, too."""
Scheme = Literal["light", "dark"]
THEMES: Mapping[Scheme, TerminalTheme] = {
    "light": DEFAULT_TERMINAL_THEME,
    "dark": DIMMED_MONOKAI,
}
_PAGE = (
    "<body style='margin:0;color:{foreground};background:{background}'><pre style="
    "'margin:0;padding:16px;display:inline-block;font:13px/15px DejaVu Sans Mono,monospace'>"
    "{code}</pre></body>"
)


def run_demo(directory: Path) -> None:
    """Run the demo. Raises CalledProcessError where it fails."""
    subprocess.run(
        [
            *(sys.executable, "-m", "mirrortest", "run", "demo"),
            *("--output", str(directory), "--set", f"produce.duration={SECONDS}s"),
        ],
        check=True,
    )


def newest_result(directory: Path) -> Result | None:
    """The result of the newest run of the demo there; None where there is none."""
    found = sorted(
        directory.glob("point-*/logs/run=*/result"), key=lambda place: place.stat().st_mtime
    )
    return read_result(Location.parse(found[-1])) if found else None


def terminal_page(view: RenderableType, theme: TerminalTheme) -> str:
    """What a terminal shows of this, as a page of HTML."""
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        color_system="truecolor",
        force_terminal=True,
    )
    console.print(view)
    return console.export_html(theme=theme, code_format=_PAGE, inline_styles=True)


def take(browser: Browser, result: Result) -> None:
    """Write the four pictures of a result."""
    IMAGES.mkdir(exist_ok=True)
    report = render(result)
    place = f"mirrortest-demo/point-001/logs/run={result.summary.run}/result"  # of no one machine
    view = run_result(result.summary.model_copy(update={"tables": place})).view(details=False)
    for scheme, theme in THEMES.items():
        page = browser.new_page(color_scheme=scheme, viewport={"width": 1000, "height": 640})
        page.set_content(report)
        page.screenshot(path=IMAGES / f"report-{scheme}.png", animations="disabled")
        page.set_content(terminal_page(view, theme))
        page.locator("pre").screenshot(path=IMAGES / f"terminal-{scheme}.png")
        page.close()


def main(arguments: list[str]) -> None:
    """Take all pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("docs.screenshots: no Chromium in PATH; install chromium")
    with tempfile.TemporaryDirectory(prefix="mirrortest-demo-") as temporary:
        directory = Path(arguments[0] if arguments else temporary)
        if newest_result(directory) is None:
            run_demo(directory)
        result = newest_result(directory)
        if result is None:
            sys.exit(f"docs.screenshots: {directory} has no result")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            take(browser, result)
            browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
