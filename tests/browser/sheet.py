"""A page that is open in a browser, and what its scripts report about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Dialog, FloatRect, Locator

Scheme: TypeAlias = Literal["light", "dark"]
WIDTHS = {"phone": 390, "desk": 1280}

DRAWN = """() => {
    const drawn = (chart) => {
        const { series } = chart.getOption();
        const dom = chart.getDom();
        return {
            points: series.filter((each) => !["events", "failing"].includes(each.name))
                .map((each) => each.data.filter((item) => item[1] !== null).length),
            failing: series.filter((each) => each.name === "failing")
                .map((each) => each.data.length),
            marks: series.filter((each) => each.name === "events").map((each) => each.data.length),
            shapes: dom.querySelectorAll("svg path").length,
            width: dom.querySelector("svg").getBoundingClientRect().width,
            room: dom.getBoundingClientRect().width,
        };
    };
    const { charts } = mirrortest;
    return Object.fromEntries(Object.keys(charts).map((name) => [name, drawn(charts[name])]));
}"""

# Whether each chart is as wide as its container.
FITTED = """() => Object.values(mirrortest.charts).every((chart) => {
    const [room, drawing] = [chart.getDom(), chart.getDom().querySelector("svg")]
        .map((each) => each.getBoundingClientRect().width);
    return Math.abs(room - drawing) <= 1;
})"""

# For every element with its own text: the contrast of its colour with its background.
CONTRAST = """() => {
    const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (colour) => {
        const [r, g, b] = channels(colour).slice(0, 3).map((value) => {
            const part = value / 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = getComputedStyle(at).backgroundColor;
            const [, , , opaque = 1] = channels(colour);
            if (opaque === 1) return colour;
        }
        return "rgb(255, 255, 255)";
    };
    const found = {};
    for (const element of document.querySelectorAll("body *:not(svg *)")) {
        const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (!own || !element.checkVisibility()) continue;
        const [a, b] = [getComputedStyle(element).color, ground(element)];
        const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
        found[`${a} on ${b}`] = (high + 0.05) / (low + 0.05);
    }
    return found;
}"""


def _keep(kept: list[str], word: str) -> None:
    kept.append(word)


def room_of(of: Locator) -> FloatRect:
    """The bounding box of an element on the page, in pixels."""
    found = of.bounding_box()
    assert found is not None
    return found


class Sheet:
    """An open page, with its requests, and its errors, console messages and dialogs."""

    def __init__(
        self, browser: Browser, file: Path, *, width: int = 1280, scheme: Scheme = "light"
    ) -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self.page.on("dialog", self._dismiss)
        self.page.on("console", lambda message: _keep(self.troubles, message.text))
        self.page.on("pageerror", lambda error: _keep(self.troubles, str(error)))
        self.page.on("request", lambda request: _keep(self.requests, request.url))
        self.page.goto(file.as_uri())
        self.page.wait_for_function("() => window.mirrortest")

    def _dismiss(self, dialog: Dialog) -> None:
        self.troubles.append(dialog.message)
        dialog.dismiss()

    @property
    def drawn(self) -> dict[str, Any]:
        """By chart: points, failing stretches and events by series, SVG shapes, and widths."""
        drawn: dict[str, Any] = self.page.evaluate(DRAWN)
        return drawn

    @property
    def overflow(self) -> int:
        """How much wider the page is than its window, in pixels."""
        pixels: int = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        return pixels
