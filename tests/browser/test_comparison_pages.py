"""Pages of comparisons and of trends are complete on every screen, as the report is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirrortest.compare.comparison import compare
from mirrortest.compare.page import render as render_comparison
from mirrortest.compare.page import render_trend
from mirrortest.compare.reading import read_side
from mirrortest.compare.repeat import Side
from mirrortest.compare.trend import trend
from tests.made_result import Made

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser


from tests.browser.sheet import CONTRAST, WIDTHS, Scheme, Sheet

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A comparison of three repeats with three others, and the trend of all six."""
    folder = tmp_path_factory.mktemp("compared")
    for number in range(6):
        made = Made(minutes=5, rate=600 * (1 + number), interval=5)
        made.write(folder / ("old", "new")[number // 3] / str(number))
    sides = [read_side(str(folder / name), with_logs=True) for name in ("old", "new")]
    files = [folder / "comparison.html", folder / "trend.html"]
    files[0].write_text(render_comparison(compare(sides[0], sides[1:]), sides))
    files[1].write_text(
        render_trend(trend(Side("all", [each for side in sides for each in side.repeats])))
    )
    return files


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
def test_pages_of_comparisons_are_whole_on_every_screen(
    browser: Browser, compared: list[Path], width: int, scheme: Scheme
) -> None:
    """No error, no request but for the file, every chart drawn, every text readable."""
    for file in compared:
        sheet = Sheet(browser, file, width=width, scheme=scheme)
        assert sheet.troubles == []
        assert sheet.requests == [file.as_uri()]
        assert sheet.overflow == 0
        assert min(sheet.page.evaluate(CONTRAST).values()) >= 4.5
        drawn = sheet.drawn
        places = sheet.page.locator(".chart").all()
        assert set(drawn) == {str(each.get_attribute("id"))[len("chart-") :] for each in places}
        for name, chart in drawn.items():
            assert any(chart["points"]), name
            assert chart["width"] == pytest.approx(chart["room"], abs=1), name
        times = [chart["points"] for name, chart in drawn.items() if name.startswith("time-")]
        assert bool(times) is (file is compared[0])
        assert all(len(points) == 6 and min(points) > 50 for points in times)
        sheet.page.close()
