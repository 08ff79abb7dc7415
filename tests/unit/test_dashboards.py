"""The dashboards as committed: made by the code, by the linter's rules, about real metrics."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from grafana.catalogue import dashboards
from grafana.frame import TAG
from grafana.process import PROCESS_METRICS
from grafana.written import files
from mirrortest.lab import jars
from mirrortest.metrics.names import (
    OBSERVED,
    OBSERVED_LINES,
    OBSERVED_PAUSES,
    OBSERVER_TABLE,
    TABLE,
    Kind,
)
from mirrortest.model.observed import PARTITION
from tests.unit.dashboard_queries import (
    DASHBOARDS,
    ROOT,
    filled_in,
    panels_of,
    queries_of,
    resolved,
)

BY_NAME = pytest.mark.parametrize("name", sorted(DASHBOARDS))
DOCUMENTED = {
    name
    for page in ("metrics", "observations")
    for name in re.findall(
        r"^\| `(mirrortest_\w+)`",
        (ROOT / f"docs/reference/{page}.md").read_text(),
        re.MULTILINE,
    )
}
COUNTERS = {metric.full_name for metric in (*TABLE, *OBSERVER_TABLE) if metric.kind is Kind.COUNTER}
EXPORTED = {
    rule["name"].replace("$4", kind)
    for rule in yaml.safe_load(Path(jars.__file__).with_name("jmx_exporter.yaml").read_text())[
        "rules"
    ]
    if "name" in rule
    for kind in ("avg", "max")
}
OTHERS = {"up", "ALERTS", *PROCESS_METRICS}
SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{([^}]*)\})?(\[[^\]]+\])?")
WORDS = {
    "by", "on", "or", "and", "unless", "group_left", "without", "bool", "sum", "max", "min", "avg",
    "count", "rate", "increase", "histogram_quantile", "max_over_time", "min_over_time",
    "sum_over_time", "timestamp", "sort_desc",
}  # fmt: skip
ANCESTOR = {
    "broker bytes in and out": [("mirror", "Bytes in"), ("mirror", "Bytes out")],
    "produced and consumed bytes per second": [("overview", "Bytes produced and consumed")],
    "produced and consumed messages": [("overview", "Produced and consumed")],
    "skipped": [("overview", "Lost"), ("overview", "Lost and wrong")],
    "repeated": [("overview", "Duplicated"), ("overview", "Duplicated and reordered")],
    "latency gauge": [("overview", "p50 now"), ("overview", "p90 now"), ("overview", "p99 now")],
    "arrival latency": [
        ("overview", "Mirror latency"), ("overview", "Mirror latency, all messages"),
    ],
    "totals": [("overview", "Acked in all"), ("overview", "Delivered in all")],
    "configuration: pods": [("overview", "Producers"), ("overview", "Consumers")],
    "configuration: topics, partitions": [("overview", "Topics"), ("overview", "Partitions")],
    "throttled messages": [
        ("producer", "Behind schedule"), ("producer", "Messages due and not sent"),
    ],
    "send errors": [("producer", "Outcomes"), ("producer", "Failed or unknown")],
    "in flight": [("producer", "In flight")],
    "under-replicated partitions": [("mirror", "Partitions in trouble")],
    "request handler idle": [("mirror", "Request handlers idle")],
    "testers' CPU, memory, network": [
        ("producer", "CPU"), ("producer", "Memory"), ("producer", "Bytes"),
        ("consumer", "CPU"), ("consumer", "Memory"), ("consumer", "Bytes"),
    ],
    "the mirror's own": [("mirror", "Copied, by topic"), ("mirror", "Behind the source")],
}  # fmt: skip
"""The ancestor's panels, and what shows the same here, with rates where it had none."""


def selectors(query: str) -> list[tuple[str, str, str]]:
    """(metric, matchers, range) of each selector of a query."""
    found = []
    # Lists of labels are no metrics; nor is what stands in quotes.
    bare = re.sub(r"\b(?:by|on|without|group_left)\s*\([^)]*\)", "", query)
    quoted = re.sub(r'"[^"]*"', '""', bare)
    for match in SELECTOR.finditer(quoted):
        name = match[1]
        after = quoted[match.end() : match.end() + 1]
        # A unit behind a number (`[5m]`) and a function are none.
        if name in WORDS or after == "(" or quoted[: match.start()][-1:].isdigit():
            continue
        if re.search(r"\{[^}]*$|\[[^\]]*$", quoted[: match.start()]):
            continue
        found.append((name, match[2] or "", match[3] or ""))
    return found


def base_name(name: str) -> str:
    """A histogram's samples are documented under its own name."""
    return name if name in EXPORTED else re.sub(r"_(bucket|sum|count)$", "", name)


def test_the_files_are_what_the_code_makes() -> None:
    """Dashboards, rules, the operator's manifest, promtool's tests; `python -m grafana` writes."""
    stale = [
        str(path)
        for path, text in files().items()
        if not (ROOT / path).exists() or (ROOT / path).read_text() != text
    ]
    assert stale == []
    assert DASHBOARDS.keys() == dashboards().keys()


@BY_NAME
def test_every_metric_is_documented(name: str) -> None:
    """Ours in docs/reference/metrics.md, the mirror's in the exporter's configuration."""
    for title, query in queries_of(DASHBOARDS[name]):
        asked = selectors(query)
        assert asked, (title, query)
        for metric, _, _ in asked:
            known = DOCUMENTED | EXPORTED | OTHERS
            assert base_name(metric) in known, (title, metric)


def test_every_metric_of_ours_is_shown_somewhere() -> None:
    """What is published is looked at."""
    shown = {
        base_name(metric)
        for dashboard in DASHBOARDS.values()
        for _, query in queries_of(dashboard)
        for metric, _, _ in selectors(query)
    }
    assert {metric.full_name for metric in TABLE} - shown == set()
    # Of what is observed each table; not every machine has all figures of one.
    for table, metrics in OBSERVED.items():
        if table is PARTITION:
            continue  # only with --by-partition
        assert shown & {metric.full_name for metric in metrics.values()}
    assert {OBSERVED_PAUSES.full_name, OBSERVED_LINES.full_name} <= shown


@BY_NAME
def test_every_query_is_of_the_chosen_jobs_and_instances(name: str) -> None:
    """But for Prometheus's own ALERTS; a rate takes Grafana's interval, a counter a rate."""
    for title, query in queries_of(DASHBOARDS[name]):
        for metric, matchers, over in selectors(query):
            if metric == "ALERTS":
                continue
            plain = matchers.replace('""', "")
            assert plain.startswith("job=~, instance=~"), (title, query)
            if metric in COUNTERS:
                assert over, (title, metric)
        for over in re.findall(r"\brate\([^[]*\[([^\]]+)\]", query):
            assert over == "$__rate_interval", (title, query)
        filled_in(query, window="1m", over="1h", step="10s")  # no variable that nobody sets


@BY_NAME
def test_every_panel_says_what_it_shows(name: str) -> None:
    """Title, description, unit, the chosen data source, and at least one query."""
    for panel in panels_of(DASHBOARDS[name]):
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "$datasource"}
        assert panel["targets"]
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"]
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] in {"timeseries", "stat", "table"}:
            assert defaults["unit"], panel["title"]
        elif panel["type"] == "statetimeline":
            assert defaults["mappings"], panel["title"]


@BY_NAME
def test_variables_are_as_the_ecosystem_has_them(name: str) -> None:
    """One data source; the others of several values, All among them, asked anew with the time."""
    datasource, *others = DASHBOARDS[name]["templating"]["list"]
    assert (datasource["name"], datasource["label"]) == ("datasource", "Data source")
    own = ["partition"] if name == "consumer" else []
    assert [each["name"] for each in others] == ["job", "run", "instance", "topic", *own]
    for each in others:
        everything = ".*" if each["name"] in own else ".+"
        assert (each["multi"], each["includeAll"], each["allValue"]) == (True, True, everything)
        assert each["label"] == each["name"].title()
        assert each["refresh"] == 2
        assert each["datasource"]["uid"] == "$datasource"


@BY_NAME
def test_panels_do_not_overlap_and_fill_their_rows(name: str) -> None:
    """24 columns; ids are unique."""
    dashboard = DASHBOARDS[name]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    rows: dict[int, int] = {}
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            continue
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
        rows[at["y"]] = rows.get(at["y"], 0) + at["w"]
    assert set(rows.values()) == {24}, {y: w for y, w in rows.items() if w != 24}


def test_dashboards_are_told_apart_and_lead_to_each_other() -> None:
    """Stable uids, one tag, a menu by the tag."""
    uids = [dashboard["uid"] for dashboard in DASHBOARDS.values()]
    assert sorted(uids) == sorted(f"mirrortest-{name}" for name in DASHBOARDS)
    for dashboard in DASHBOARDS.values():
        assert dashboard["tags"] == [TAG]
        assert not dashboard["editable"]
        assert any(link["type"] == "dashboards" for link in dashboard["links"])


@BY_NAME
def test_runs_and_faults_are_marked(name: str) -> None:
    """Begin and end of each: an annotation lasts as long as its query has a value."""
    marked = {each["name"] for each in DASHBOARDS[name]["annotations"]["list"]}
    assert {"Runs", "Faults", "Outages", "Noted faults"} <= marked


def test_panels_lead_to_runbooks_that_exist() -> None:
    """And each runbook of an alert is led to by a panel."""
    led = set()
    for dashboard in DASHBOARDS.values():
        for panel in panels_of(dashboard):
            for link in panel.get("links", ()):
                found = resolved(link["url"])
                assert link["title"] == f"Runbook: {found.title}", panel["title"]
                led.add(found.title)
    pages = {path.stem for path in (ROOT / "docs/runbooks").glob("Mirrortest*.md")}
    assert pages - led <= {"MirrortestClockUnbounded"}  # it stands beside MirrortestClockSkew


def test_every_runbook_is_a_page_of_the_dashboard() -> None:
    """The whole page; its links lead to panels that exist, and nowhere outside."""
    shown = {panel["title"]: panel["options"] for panel in DASHBOARDS["runbooks"]["panels"]}
    texts = {path.stem: path.read_text() for path in (ROOT / "docs/runbooks").glob("M*.md")}
    assert shown.keys() == texts.keys()
    links = 0
    for title, options in shown.items():
        assert options["mode"] == "markdown"
        page = f"# {title}\n\n{options['content']}\n"
        unlinked = re.compile(r"\[([^\]]+)\]\([^)]+\)")
        assert unlinked.sub(r"\1", page) == unlinked.sub(r"\1", texts[title])
        for name, address in re.findall(r"\[([^\]]+)\]\(([^)]+)\)", options["content"]):
            assert resolved(f"/d/mirrortest-runbooks{address}").title == name
            links += 1
    assert links


def test_runbooks_name_dashboards_and_panels_that_exist() -> None:
    """What they have in italics: a dashboard, the heading of a row, or a panel."""
    there = {each["title"].removeprefix("mirrortest / ") for each in DASHBOARDS.values()}
    there |= {panel["title"] for each in DASHBOARDS.values() for panel in each["panels"]}
    for path in (ROOT / "docs/runbooks").glob("*.md"):
        named = set(re.findall(r"(?<![*\w])\*([^*\n]+)\*(?!\*)", path.read_text()))
        assert named <= there, (path.name, named - there)


def test_rows_of_tables_lead_to_panels_and_set_their_variables() -> None:
    """Dashboard, panel and variables exist, and so do the labels that they are set from."""
    leading: dict[tuple[str, str], list[tuple[str, str, set[str]]]] = {}
    for dashboard in DASHBOARDS.values():
        for panel in panels_of(dashboard):
            queries = " ".join(target["expr"] for target in panel["targets"])
            for override in panel["fieldConfig"]["overrides"]:
                for setting in override["properties"]:
                    if setting["id"] != "links":
                        continue
                    for link in setting["value"]:
                        found = resolved(link["url"])
                        labels = set(re.findall(r"\$\{__data\.fields\.(\w+)\}", link["url"]))
                        for label in labels:
                            assert re.search(rf"\b{label}\b", queries), (panel["title"], label)
                        at = dashboard["uid"], panel["title"]
                        leading.setdefault(at, []).append((found.uid, found.title, labels))
    assert (
        leading["mirrortest-overview", "Which lanes are wrong"]
        == [("mirrortest-consumer", "Wrong messages, by partition", {"run", "topic", "partition"})]
        * 3
    )
    tables = {
        (each["uid"], panel["title"])
        for each in DASHBOARDS.values()
        for panel in panels_of(each)
        if panel["type"] == "table"
    }
    assert leading.keys() == tables


@pytest.mark.parametrize("theirs", sorted(ANCESTOR))
def test_the_ancestors_panels_have_their_counterpart(theirs: str) -> None:
    """Each of them."""
    titles = {
        (name, panel["title"]) for name, each in DASHBOARDS.items() for panel in panels_of(each)
    }
    assert set(ANCESTOR[theirs]) <= titles


def test_latency_is_shown_by_four_quantiles_and_as_a_heatmap() -> None:
    """p50, p90, p99, p99.9 beside the whole distribution, in the same row of the overview."""
    panels = {panel["title"]: panel for panel in panels_of(DASHBOARDS["overview"])}
    asked = " ".join(target["expr"] for target in panels["Mirror latency"]["targets"])
    shares = [float(share) for share in re.findall(r"histogram_quantile\(([\d.]+)", asked)]
    assert shares == [0.5, 0.9, 0.99, 0.999]
    (heat,) = [panel for panel in panels.values() if panel["type"] == "heatmap"]
    assert [target["format"] for target in heat["targets"]] == ["heatmap"]
    assert all(low < high for low, high in pairwise(shares))
