"""The report: one HTML file that needs no other file, no network and no server.

Everything that comes from messages, logs or users goes through Jinja's autoescaping, or as JSON
into a script element that no browser runs. A content security policy names the scripts that can
run by their hashes, and forbids the page any request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib import resources
from typing import TYPE_CHECKING, Any

from mirrortest import __version__
from mirrortest.config.visible import visible
from mirrortest.errors import MirrortestError
from mirrortest.report.html.breakdown import short
from mirrortest.report.html.page import page
from mirrortest.results.words import readable_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Environment

    from mirrortest.report.result import Result

ECHARTS_VERSION = "6.1.0"
_LIBRARY = ("echarts/echarts.min.js", "drawing.js")
_TEMPLATES = (
    "report.html.j2",
    "observed.html.j2",
    "parts.html.j2",
    "points.html.j2",
    "comparison.html.j2",
    "trend.html.j2",
)


def render(result: Result) -> str:
    """Render the report as an HTML document.

    Raises:
        MirrortestError: Jinja is not installed.
        SequenceLogError: a table or a log cannot be read.
    """
    environment_of_templates()  # if Jinja is missing, fail before the work
    return render_page(
        _TEMPLATES[0], ("latency.js", "panels.js", "page.js", "copy.js"), page(result)
    )


def render_page(template: str, scripts: Sequence[str], variables: Mapping[str, Any]) -> str:
    """Render a page with charts; `scripts` follow the chart library and the charts' shared code.

    Raises MirrortestError if Jinja is not installed.
    """
    environment = environment_of_templates()
    from markupsafe import Markup  # noqa: PLC0415  # comes with Jinja, which is an extra

    texts = [read_asset(name) for name in (*_LIBRARY, *scripts)]
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in texts)
    return environment.get_template(template).render(
        **variables,
        version=__version__,
        echarts_version=ECHARTS_VERSION,
        policy=(
            f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ),
        style=Markup(read_asset("page.css")),  # noqa: S704  # ours
        scripts=[Markup(script) for script in texts],  # noqa: S704  # ours, and the library
    )


def environment_of_templates() -> Environment:
    """Jinja with the templates; raises MirrortestError if it is not installed."""
    try:
        import jinja2  # noqa: PLC0415  # an extra
    except ImportError:
        raise MirrortestError(
            "the HTML report needs Jinja: pip install 'mirrortest[report]'"
        ) from None

    environment = jinja2.Environment(
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.DictLoader({name: read_asset(name) for name in _TEMPLATES}),
    )
    environment.policies["json.dumps_function"] = _dumps
    environment.filters |= {
        "n": "{:,}".format,
        "short": short,
        "readable_name": readable_name,
    }
    return environment


def _shown(value: Any) -> Any:
    """A value as a template writes it: text is made safe to show, but not our own markup."""
    return visible(value) if type(value) is str else value


def _dumps(value: Any, **how: Any) -> str:
    """JSON for the page's scripts, which show its texts unchanged."""
    return json.dumps(_visible_in(value), **how)


def _visible_in(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {_visible_in(key): _visible_in(each) for key, each in value.items()}
    return [_visible_in(each) for each in value] if isinstance(value, list | tuple) else value


def read_asset(name: str) -> str:
    """A style, script or template of the page; raises MirrortestError if a script is unsafe."""
    # These would break the script element, even in a comment like that of the library's licence.
    text = resources.files("mirrortest.report").joinpath("assets", name).read_text("utf-8")
    if name.endswith(".js") and re.search(r"</script|<!--", text, re.IGNORECASE):
        raise MirrortestError(f"{name} must not contain a script's end")
    return text


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
