"""The report in a real browser: no error, no request, every chart drawn, every screen fits."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from mirrortest.cli import report as report_verb
from mirrortest.report import png
from mirrortest.report.html import render
from mirrortest.report.result import read_result
from mirrortest.seqlog.location import Location
from tests import documented
from tests.lab.harness import run_here
from tests.made_observation import everything, write_observation
from tests.made_result import RUN, Made, failed_run, note_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser

    from tests.documented import Shown

from tests.browser.sheet import CONTRAST, FITTED, WIDTHS, Scheme, Sheet, room_of

pytestmark = pytest.mark.browser

OBSERVED = ("machine-0", "jvms", "brokers", "log-lines")
CHARTS = ("strips", "percentiles", "heat", "curve", "load", *OBSERVED)
# By chart: a series, the minute or the number of one of its items, and what the tooltip shows.
TIPS = {
    "strips": (2, 71, ["11:51 to 11:52", "480 lost"]),
    "percentiles": (0, 71, ["11:51 to 11:52", "max  360 s", "p90  353 s", "p50  330 s"]),
    "heat": (0, 71, ["11:51 to 11:52", "274 s to 410 s", "1,200 messages"]),
    "curve": (0, -1, ["all topics: 100 % within 420 s", "orders: 100 % within 420 s"]),
    "load": (0, 71, ["11:51 to 11:52", "messages/s", "sent  3K", "arrived  0"]),
    "machine-0": (0, 71, ["11:51 to 11:52", "CPU, % of all CPUs", "at work  30 %"]),
    "jvms": (2, 0, ["10:40 to 10:41", "longest pause", "A1-gc  20 ms"]),
    "brokers": (0, 71, ["11:51 to 11:52", "messages written/s", "A1  0.3", "B1  0.2"]),
    "log-lines": (0, 0, ["10:40 to 10:41", "entries", "warning  2"]),
}
PLACE_OF = """([name, series, item]) => {
    const chart = mirrortest.charts[name];
    const { type, data } = chart.getOption().series[series];
    const axis = { seriesIndex: series };
    if (type !== "custom") return chart.convertToPixel(axis, data.at(item));
    const [minute, low, high] = data.find((each) => each[0] === item);
    return chart.convertToPixel(axis, [drawing.from(minute + 0.5), (low + high) / 2]);
}"""
SHOWN = """([name, lines]) => {
    const texts = [...document.querySelectorAll(`#chart-${name} svg text`)];
    return lines.every((line) => texts.some((text) => text.textContent.startsWith(line)));
}"""
HOSTILE = "</script><img src=x onerror=alert(1)>{{7*7}}{a|b}"


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run with many findings."""
    made, folder = replace(failed_run(), interval=5), tmp_path_factory.mktemp("failed")
    write_observation(folder / "observations", everything(60 * made.minutes, 60))
    return _report(made, folder / "logs")


@pytest.fixture(scope="module")
def opened(browser: Browser, failed: Path) -> Iterator[Callable[[int, Scheme], Sheet]]:
    """Opens that report at a width and in a scheme, once for all tests that do not change it.

    Drawing it takes most of a test's CPU.
    """
    sheets: dict[tuple[int, Scheme], Sheet] = {}

    def sheet(width: int, scheme: Scheme) -> Sheet:
        if (width, scheme) not in sheets:
            sheets[width, scheme] = Sheet(browser, failed, width=width, scheme=scheme)
        return sheets[width, scheme]

    yield sheet
    for each in sheets.values():
        each.page.close()


@pytest.fixture
def sheet(opened: Callable[[int, Scheme], Sheet]) -> Sheet:
    """That report on a desktop screen, in light colours."""
    return opened(WIDTHS["desk"], "light")


def _report(made: Made, folder: Path, *events: tuple[float, str, str]) -> Path:
    place = made.write(folder)
    note_events(folder, *(events or ((70.2, "kill", "mirror"), (75.1, "ready", "mirror"))))
    file = folder / "report.html"
    file.write_text(render(read_result(Location.parse(place))))
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
def test_it_is_whole_on_every_screen(
    opened: Callable[[int, Scheme], Sheet], failed: Path, width: int, scheme: Scheme
) -> None:
    """No error, no request but for the file, every chart with data, nothing wider than the page."""
    sheet = opened(width, scheme)
    assert sheet.troubles == []
    assert sheet.requests == [failed.as_uri()]
    assert sheet.overflow == 0
    drawn = sheet.drawn
    assert set(drawn) == set(CHARTS)
    for name, chart in drawn.items():
        assert all(chart["points"]), name
        assert chart["shapes"] > 5, name
        assert chart["width"] == pytest.approx(chart["room"], abs=1), name
    # Seven strips: acknowledged messages and six findings. Each marks the mirror's two events and
    # the start and end of producers and of consumers. One stretch failed the latency threshold.
    assert len(drawn["strips"]["points"]) == 7
    assert drawn["strips"]["points"][:3] == [180, 2, 1]
    assert drawn["strips"]["marks"] == [6] * 7
    assert drawn["strips"]["failing"] == drawn["percentiles"]["failing"] == [1]
    assert drawn["percentiles"]["marks"] == [6]
    # Eight panels: no send failed. A point is a minute of three hours.
    assert drawn["load"]["marks"] == [6] * 8
    assert set(drawn["load"]["points"]) == {180}
    for name, panels in zip(OBSERVED, (16, 3, 20, 1), strict=True):
        assert drawn[name]["marks"] == [6] * panels


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(opened: Callable[[int, Scheme], Sheet], scheme: Scheme) -> None:
    """Every text's contrast is at least 4.5 to 1 (WCAG AA)."""
    contrast = opened(WIDTHS["desk"], scheme).page.evaluate(CONTRAST)
    assert len(contrast) > 5
    assert {pair: ratio for pair, ratio in contrast.items() if ratio < 4.5} == {}


def test_colours_follow_the_users_choice_while_it_is_open(sheet: Sheet) -> None:
    """A chart is redrawn in other colours when dark mode is switched on, and off."""
    drawn_in = "mirrortest.charts.percentiles.getOption().series[0].lineStyle.color"
    light = sheet.page.evaluate(drawn_in)
    sheet.page.emulate_media(color_scheme="dark")
    sheet.page.wait_for_function(f"(light) => {drawn_in} !== light", arg=light)
    sheet.page.emulate_media(color_scheme="light")
    sheet.page.wait_for_function(f"(light) => {drawn_in} === light", arg=light)


def test_a_topic_can_be_chosen(sheet: Sheet) -> None:
    """Both selectors change together, and the charts show the chosen topic only."""
    choices = sheet.page.locator("select.topic")
    names = ["all topics", "clicks.eu", "orders", "payments.settled"]
    assert choices.first.locator("option").all_inner_texts() == names
    sum_of = "() => mirrortest.charts.strips.getOption().title[1].text"
    assert sheet.page.evaluate(sum_of) == "lost: 511"
    choices.first.select_option("1")
    assert sheet.page.evaluate(sum_of) == "lost: 0"
    choices.last.select_option("2")
    assert sheet.page.evaluate(sum_of) == "lost: 511"
    assert choices.first.input_value() == "2"
    choices.first.select_option(names[0])
    assert sheet.page.evaluate(sum_of) == "lost: 511"
    assert sheet.troubles == []


def test_pointing_tells_the_figures(sheet: Sheet) -> None:
    """Hovering anywhere causes no error; over what is drawn, each chart shows its figures there."""
    for name in CHARTS:
        box = sheet.page.locator(f"#chart-{name}")
        box.scroll_into_view_if_needed()
        for share in (0.2, 0.45, 0.5, 0.7):
            size = room_of(box)
            box.hover(position={"x": size["width"] * share, "y": size["height"] * share})
        series, item, shown = TIPS[name]
        x, y = sheet.page.evaluate(PLACE_OF, [name, series, item])
        box.hover(position={"x": x, "y": y})
        sheet.page.wait_for_function(SHOWN, arg=[name, shown])
    assert sheet.troubles == []


def test_names_from_outside_do_nothing(browser: Browser, tmp_path: Path) -> None:
    """Markup in the names of a topic, a producer and an event, and in a note, is shown as text."""
    made = Made(
        topics=(HOSTILE, "orders"), producer=HOSTILE, wrong={"lost": [(3, 0, 2)]}, notes=[HOSTILE]
    )
    sheet = Sheet(browser, _report(made, tmp_path, (2, HOSTILE, HOSTILE)))
    sheet.page.locator("select.topic").first.select_option("1")
    x, y = sheet.page.evaluate(PLACE_OF, ["curve", 1, -1])
    sheet.page.locator("#chart-curve").hover(position={"x": x, "y": y})
    sheet.page.wait_for_function(SHOWN, arg=["curve", [re.sub("[{}|]", " ", HOSTILE)]])
    assert sheet.page.locator("img").count() == 0
    assert sheet.page.locator("select.topic option").nth(1).inner_text() == HOSTILE
    assert sheet.overflow == 0
    assert sheet.troubles == []
    assert len(sheet.requests) == 1
    sheet.page.close()


def test_the_policy_holds(browser: Browser, failed: Path, tmp_path: Path) -> None:
    """The page's content security policy blocks an injected script and an injected image."""
    worse = tmp_path / "worse.html"
    worse.write_text(
        failed.read_text().replace(
            "<main>", "<main><script>document.title = 'ran'</script><img src='http://127.0.0.1:9/'>"
        )
    )
    sheet = Sheet(browser, worse)
    assert sheet.page.title() != "ran"
    for _ in range(600):  # the browser reports it asynchronously
        if len(sheet.troubles) >= 2:
            break
        sheet.page.wait_for_timeout(50)
    assert len([trouble for trouble in sheet.troubles if "Content Security Policy" in trouble]) == 2
    sheet.page.close()


def test_where_scripts_are_forbidden_charts_are_words(
    browser: Browser, failed: Path, tmp_path: Path
) -> None:
    """Where scripts are blocked, as on a build server, a short text replaces each chart."""
    bare = tmp_path / "bare.html"
    bare.write_text(failed.read_text().replace("sha256-", "sha256-no"))
    page = browser.new_page()
    page.goto(bare.as_uri())
    contents = page.evaluate(
        """[...document.querySelectorAll(".chart")]
        .map((each) => getComputedStyle(each, "::after").content)"""
    )
    assert len(contents) == len(CHARTS)
    assert [text for text in contents if "This chart needs JavaScript." not in text] == []
    heights = [room_of(box)["height"] for box in page.locator(".chart").all()]
    assert all(10 < height < 150 for height in heights)
    page.close()


@pytest.mark.parametrize(
    "made",
    [
        Made(minutes=1, topics=("t",)),
        Made(minutes=2, latency=False),
        Made(minutes=0, latency=False),
        Made(minutes=1, rate=1, topics=("t",), wrong={"lost": [(0, 0, 1)]}),
        Made(minutes=1, topics=("t",), interval=60),
    ],
    ids=["one minute", "no latencies", "no times", "one message", "one interval"],
)
def test_what_is_not_there_is_not_drawn(browser: Browser, tmp_path: Path, made: Made) -> None:
    """A chart without data is left out; short and empty runs cause no error."""
    sheet = Sheet(browser, _report(made, tmp_path))
    shown = {
        str(element.get_attribute("id")).removeprefix("chart-")
        for element in sheet.page.locator(".chart").all()
    }
    drawn = sheet.drawn
    assert set(drawn) == shown
    assert all(all(chart["points"]) for chart in drawn.values())
    assert sheet.overflow == 0
    assert sheet.troubles == []
    sheet.page.close()


@pytest.mark.parametrize("shown", documented.commands("report", only="--png"), ids=str)
def test_each_chart_is_written_as_a_png(
    browser: Browser, failed: Path, tmp_path: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documented command writes each chart, as wide as the page's column, in double density."""
    places = {name: str(tmp_path / name) for name in ("r.html", "r.xml", "charts")}
    # Playwright is running already, and starts only once in a process.
    monkeypatch.setattr(png, "write_pngs", lambda *what: png.draw_charts(browser, *what))
    places |= {"n20261127": RUN, "mirrortest-logs": str(failed.parent)}
    words = documented.adapted(shown.words[1:], places)
    assert run_here(report_verb.report, *words).code == 0
    written = list((tmp_path / "charts").iterdir())
    assert {path.stem for path in written} == set(CHARTS)
    for path in written:
        kind, width, height = struct.unpack(">8s8xII", path.read_bytes()[:24])
        assert kind == b"\x89PNG\r\n\x1a\n"
        assert width > 1800
        assert height > 200


def test_headings_tables_and_charts_have_names(sheet: Sheet) -> None:
    """For screen readers: headings in order, a caption or label on each, one main element."""
    levels = sheet.page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4')].map((each) => Number(each.tagName[1]))"
    )
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    nameless = """(query) => [...document.querySelectorAll(query)].filter((each) => !(
        each.getAttribute("aria-label") || each.caption?.textContent || each.labels?.length
    )).length"""
    for query in ("table", "[role=img]", "[role=region]", "nav", "select"):
        assert sheet.page.locator(query).count() > 0, query
        assert sheet.page.evaluate(nameless, query) == 0, query
    label = sheet.page.locator("#chart-percentiles").get_attribute("aria-label")
    assert "p99 was highest at" in str(label)
    assert sheet.page.locator("html").get_attribute("lang") == "en"
    assert sheet.page.locator("main").count() == 1


def test_figures_are_downloaded_and_commands_copied(sheet: Sheet) -> None:
    """Downloads and copy buttons work in a file, under the page's content security policy."""
    with sheet.page.expect_download() as waiting:
        sheet.page.get_by_role("link", name="counts and percentiles over time").click()
    text = Path(waiting.value.path()).read_text()
    assert text.startswith("from_utc,topic,acked,")
    button = sheet.page.locator(".command button").first
    button.click()
    expect(button).to_have_text(re.compile("Copied|Selected"))
    assert not sheet.troubles


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
def test_the_list_of_sections_stays_in_sight(
    opened: Callable[[int, Scheme], Sheet], width: int
) -> None:
    """The list stays at the top, and does not cover a heading that it links to."""
    sheet = opened(width, "light")
    links = sheet.page.get_by_role("navigation")
    links.get_by_role("link", name="All counts").click()
    bar, heading = room_of(links), room_of(sheet.page.locator("#counts h2"))
    assert bar["y"] == 0
    assert heading["y"] >= bar["height"]


def test_on_paper_the_charts_are_as_wide_as_the_text(browser: Browser, failed: Path) -> None:
    """Printed from dark mode: a white background, no navigation, no chart cut off."""
    sheet = Sheet(browser, failed, scheme="dark")
    sheet.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    sheet.page.emulate_media(media="print", color_scheme="dark")
    sheet.page.set_viewport_size({"width": 700, "height": 900})
    page = sheet.page
    page.wait_for_function(FITTED)  # a chart is resized in the next frame
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("nav").is_hidden()
    for name in CHARTS:
        text = room_of(page.locator(f"#chart-{name}"))
        drawing = room_of(page.locator(f"#chart-{name} svg").first)
        assert drawing["width"] == pytest.approx(text["width"], abs=1)
        assert drawing["height"] > 80
    assert len(page.pdf(format="A4")) > 50_000
    assert sheet.troubles == []
    sheet.page.close()
