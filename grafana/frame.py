"""What all dashboards have in common: variables, annotations, links, rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders import dashboard, prometheus
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

from grafana.links import uid as uid_of
from grafana.panels import DATASOURCE
from grafana.promql import DASHBOARD
from mirrortest.metrics import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grafana.panels import Panel

TAG = "mirrortest"
_GRAFANA = common_models.DataSourceRef(type_val="grafana", uid="-- Grafana --")
_ALL = models.VariableOption(selected=True, text=["All"], value=["$__all"])

Row = tuple[str, "Sequence[Panel]"]
"""A heading, and the panels below it; without a heading where that is empty."""


def framed(
    uid: str,
    title: str,
    description: str,
    rows: Sequence[Row],
    *,
    known_by: str = names.RUN_INFO.full_name,
    more: Sequence[dashboard.QueryVariable] = (),
) -> models.Dashboard:
    """A dashboard of these rows.

    `known_by` is a regular expression of the metrics whose jobs and instances can be chosen, `more`
    are variables besides those that all dashboards have.
    """
    made = (
        dashboard.Dashboard(f"mirrortest / {title}")
        .uid(uid_of(uid))
        .description(description)
        .tags([TAG])
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("10s")
        .readonly()
        .link(
            dashboard.DashboardLink("mirrortest")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(as_dropdown=True)
            .include_vars(include_vars=True)
            .keep_time(keep_time=True)
        )
    )
    made.with_variable(
        dashboard.DatasourceVariable("datasource")
        .label("Data source")
        .type("prometheus")
        .current(models.VariableOption(selected=False, text="default", value="default"))
    )
    for each in [*_variables(known_by), *more]:
        made.with_variable(each)
    for annotation in _annotations():
        made.annotation(annotation)
    for heading, panels in rows:
        if heading:
            made.with_row(dashboard.Row(heading))
        for panel in panels:
            made.with_panel(panel)
    whole = made.build()
    for number, placed in enumerate(whole.panels or (), start=1):
        placed.id_val = number
    return whole


def panel_id(built: models.Dashboard, title: str) -> int:
    """A panel's id. Raises ValueError where there is not exactly one panel of this title."""
    found = [
        panel.id_val
        for panel in built.panels or ()
        if isinstance(panel, models.Panel) and panel.title == title and panel.id_val is not None
    ]
    if len(found) != 1:
        raise ValueError(f"{built.title}: {len(found)} panels are called {title!r}")
    return found[0]


def _variables(known_by: str) -> list[dashboard.QueryVariable]:
    run, topic = names.RUN_INFO.full_name, names.CONSUMER_MESSAGES.full_name
    produced = names.PRODUCER_MESSAGES.full_name
    known = f'__name__=~"{known_by}"'
    return [
        variable("job", "Job", f"label_values({{{known}}}, job)"),
        variable("run", "Run", f'label_values({run}{{job=~"$job"}}, run)'),
        variable("instance", "Instance", f'label_values({{{known}, job=~"$job"}}, instance)'),
        variable(
            "topic",
            "Topic",
            f'label_values({{__name__=~"{topic}|{produced}", job=~"$job"}}, topic)',
        ),
    ]


def variable(
    name: str, label: str, query: str, *, everything: str = ".+"
) -> dashboard.QueryVariable:
    """A variable of several values; *All* stands for the regular expression `everything`."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query({"query": query, "refId": name})
        .definition(query)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(everything)
        .current(_ALL)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )


def _annotations() -> list[dashboard.AnnotationQuery]:
    scope = DASHBOARD
    down = f"{scope.one(names.LAB_PART_UP)} == 0"
    away = f"max by (run, name) ({scope.of_run(scope.one(names.CONSUMER_UNREACHABLE))}) == 1"
    return [
        _noted(
            "Runs", "blue", f"max by (run) ({scope.info()})", "run {{run}}", "from begin to end"
        ),
        _noted("Faults", "red", f"({down}) + 1", "{{part}} down", "a part of the lab is down"),
        _noted("Outages", "orange", away, "{{name}}", "the cluster that it reads does not answer"),
        # Whoever breaks things may note it by Grafana's own API, with these tags.
        dashboard.AnnotationQuery()
        .name("Noted faults")
        .datasource(_GRAFANA)
        .enable(enable=True)
        .icon_color("purple")
        .target(_Tagged(["mirrortest", "fault"])),  # type: ignore[arg-type]  # see there
    ]


def _noted(
    name: str, colour: str, expression: str, title: str, text: str
) -> dashboard.AnnotationQuery:
    """An annotation from the first to the last time that the expression has a value."""
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(DATASOURCE)
        .enable(enable=True)
        .icon_color(colour)
        .expr(expression)
        .title_format(title)
        .text_format(text)
        .step("10s")
        .target(prometheus.Dataquery().expr(expression).ref_id("Anno").interval("10s"))
    )


class _Tagged:
    """A query of annotations by their tags; the SDK's own has no place in its own query."""

    def __init__(self, tags: list[str]) -> None:
        self._tags = tags

    def build(self) -> _Tagged:
        return self

    def to_json(self) -> dict[str, object]:
        """As Grafana's own data source reads it."""
        return {
            "limit": 100, "matchAny": False, "tags": self._tags, "type": "tags", "refId": "Anno",
        }  # fmt: skip
