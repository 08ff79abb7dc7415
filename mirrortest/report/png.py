"""The report's charts as PNG files, drawn by a headless browser."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from mirrortest.errors import MirrortestError

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_WIDTH, _HEIGHT, _DENSITY = 1100, 900, 2
_TIMEOUT_MS = 120_000.0


def write_pngs(report: str, directory: Path) -> list[Path]:
    """Write each chart of a report into a directory, which is created; returns the files.

    Raises:
        MirrortestError: Playwright or a browser is missing, or a file cannot be written.
    """
    try:
        from playwright.sync_api import Error, sync_playwright  # noqa: PLC0415  # an extra
    except ImportError:
        raise MirrortestError("--png needs Playwright: pip install 'mirrortest[png]'") from None
    # Chromium refuses to run as root in its own sandbox.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=next(filter(None, map(shutil.which, BROWSERS)), None),
                args=arguments,
            )
        except Error as error:
            raise MirrortestError(
                "--png needs Chromium: install it, or run `playwright install chromium` "
                f"({_first_line(error)})"
            ) from None
        try:
            return draw_charts(browser, report, directory)
        except Error as error:
            raise MirrortestError(f"--png: the browser failed: {_first_line(error)}") from None
        finally:
            browser.close()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def draw_charts(browser: Browser, report: str, directory: Path) -> list[Path]:
    """Draw the charts with a running browser; see `write_pngs`."""
    page = browser.new_page(
        viewport={"width": _WIDTH, "height": _HEIGHT}, device_scale_factor=_DENSITY
    )
    page.set_default_timeout(_TIMEOUT_MS)  # each chart is redrawn, without a GPU
    page.set_content(report)
    page.add_style_tag(content="nav { display: none !important; }")  # it would cover the charts
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for figure in page.locator("figure:has(.chart)").all():
            name = figure.locator(".chart").get_attribute("id") or ""
            written.append(directory / f"{name.removeprefix('chart-')}.png")
            figure.screenshot(path=written[-1], animations="disabled")
    except OSError as error:
        raise MirrortestError(f"{directory}: cannot be written: {error.strerror}") from error
    finally:
        page.close()
    return written
