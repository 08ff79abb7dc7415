"""Screenshots of a real run, for README and tutorial: `python -m docs.screenshots [DIRECTORY]`.

Runs the demo, or takes what `mirrortest demo --directory DIRECTORY` has left there, and writes
docs/images. The terminal's text is what the demo printed, drawn by Rich as a page.
"""  # noqa: INP001  # a tool beside the pages, no package

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from playwright.sync_api import Browser

IMAGES = Path(__file__).parent / "images"
OUTPUT = "terminal.txt"
"""What the demo printed, beside its logs."""
COLUMNS, LINES = 100, 36
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
    """Run the demo on a terminal of our width. Raises CalledProcessError where it fails."""
    environment = {
        **os.environ,
        "COLUMNS": str(COLUMNS),
        "FORCE_COLOR": "1",
        "TERM": "xterm-256color",
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mirrortest", "demo"),
            *("--directory", str(directory), "--seconds", str(SECONDS)),
        ],
        env=environment,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        sys.stderr.buffer.write(done.stderr)
        raise subprocess.CalledProcessError(done.returncode, "mirrortest demo")
    directory.mkdir(exist_ok=True)
    (directory / OUTPUT).write_bytes(done.stdout)


def shorten(printed: str, directory: Path) -> str:
    """The last lines of what was printed, which are the result, without this machine's paths."""
    shown = printed.replace(f"{directory}/", "mirrortest-demo/").splitlines()
    return "\n".join([*(["…"] if len(shown) > LINES else []), *shown[-LINES:]])


def terminal_page(printed: str, theme: TerminalTheme) -> str:
    """The text of a terminal as a page of HTML."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor")
    console.print(Text.from_ansi(printed))
    return console.export_html(theme=theme, code_format=_PAGE, inline_styles=True)


def take(browser: Browser, directory: Path) -> None:
    """Write the four pictures of the run in this directory. Raises ValueError without a report."""
    reports = sorted(directory.glob("logs/run=*/result/report.html"))
    if not reports:
        raise ValueError(f"{directory} has no report: run mirrortest demo --directory {directory}")
    printed = shorten((directory / OUTPUT).read_text(), directory)
    IMAGES.mkdir(exist_ok=True)
    for scheme, theme in THEMES.items():
        page = browser.new_page(color_scheme=scheme, viewport={"width": 1000, "height": 640})
        page.goto(reports[-1].resolve().as_uri())
        page.wait_for_function("document.readyState === 'complete'")
        page.screenshot(path=IMAGES / f"report-{scheme}.png", animations="disabled")
        page.set_content(terminal_page(printed, theme))
        page.locator("pre").screenshot(path=IMAGES / f"terminal-{scheme}.png")
        page.close()


def main(arguments: list[str]) -> None:
    """Take all pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("docs.screenshots: no Chromium in PATH; install chromium")
    with tempfile.TemporaryDirectory(prefix="mirrortest-demo-") as temporary:
        directory = Path(arguments[0] if arguments else temporary)
        if not (directory / OUTPUT).exists():
            run_demo(directory)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            take(browser, directory)
            browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
