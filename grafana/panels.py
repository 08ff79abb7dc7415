"""The kinds of panels, each with what all of its kind have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    text,
    timeseries,
)
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.text import TextMode

from grafana.links import runbook_within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DATASOURCE = common_models.DataSourceRef(type_val="prometheus", uid="$datasource")
COLUMNS = 24
GREEN, AMBER, RED, GREY = "green", "orange", "red", "#808080"


class Query(NamedTuple):
    """A line of a panel, or several: PromQL, and how each is called (``{{run}} {{topic}}``)."""

    expression: str
    legend: str


class Link(NamedTuple):
    """Where a cell of a table leads: the menu's words, and an address within Grafana."""

    title: str
    address: str


class Step(NamedTuple):
    """From this value on, this colour."""

    value: float
    colour: str


class State(NamedTuple):
    """A value, the word that is shown for it, and its colour."""

    value: int
    word: str
    colour: str


Panel = (
    timeseries.Panel | stat.Panel | heatmap.Panel | table.Panel | statetimeline.Panel | text.Panel
)
P = TypeVar("P", timeseries.Panel, stat.Panel, heatmap.Panel, table.Panel, statetimeline.Panel)


def lines(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    span: int = 12,
    height: int = 8,
    logarithmic: bool = False,
    runbook: str = "",
    negative: bool = False,
) -> timeseries.Panel:
    """Values over time."""
    panel = (
        _framed(timeseries.Panel(), title, description, span, height, runbook)
        .unit(unit)
        .line_width(1)
        .fill_opacity(8)
        .show_points(common_models.VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .display_mode(common_models.LegendDisplayMode.TABLE)
            .placement(common_models.LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
    )
    if logarithmic:
        scale = common_models.ScaleDistribution.LOG
        panel.scale_distribution(common.ScaleDistributionConfig().type(scale).log(10))
    elif not negative:
        panel.min(0)
    return _asked(panel, queries)


def number(
    title: str,
    description: str,
    unit: str,
    query: Query,
    *,
    steps: Sequence[Step] = (),
    states: Sequence[State] = (),
    span: int = 4,
    decimals: int | None = None,
    runbook: str = "",
) -> stat.Panel:
    """The newest value, large; coloured by steps or by what it stands for."""
    panel = (
        _framed(stat.Panel(), title, description, span, 4, runbook)
        .unit(unit)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_mode(common_models.BigValueColorMode.BACKGROUND_SOLID)
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .thresholds(_thresholds(steps))
        .no_value("none")
    )
    if not steps and not states:
        panel.color_mode(common_models.BigValueColorMode.NONE)
    if states:
        panel.mappings([_mapping(states)])
    if decimals is not None:
        panel.decimals(decimals)
    return _asked(panel, [query])


def warmth(
    title: str, description: str, query: Query, *, span: int = 24, height: int = 9
) -> heatmap.Panel:
    """A histogram over time; the query's series are buckets by ``le``."""
    panel = (
        _framed(heatmap.Panel(), title, description, span, height, "")
        .calculate(calculate=False)
        .y_axis(heatmap.YAxisConfig().unit("s"))
        .cell_values(heatmap.CellValues().unit("short"))
        .cell_gap(1)
        .color(
            heatmap.HeatmapColorOptions()
            .mode(heatmap_models.HeatmapColorMode.SCHEME)
            .scheme("Oranges")
            .scale(heatmap_models.HeatmapColorScale.EXPONENTIAL)
            .exponent(0.5)
            .steps(64)
        )
        .hide_legend()
    )
    return _asked(panel, [query], kind=PromQueryFormat.HEATMAP)


def rows(
    title: str,
    description: str,
    columns: Mapping[str, str],
    *,
    units: Mapping[str, str] | None = None,
    hidden: Sequence[str] = (),
    steps: Mapping[str, Sequence[Step]] | None = None,
    links: Mapping[str, Sequence[Link]] | None = None,
    span: int = 24,
    height: int = 8,
    runbook: str = "",
) -> table.Panel:
    """A table of the newest values: a column for each query, a row for each set of labels.

    `links` lead from the cells of a column, which may also be a label, with the row's values.
    """
    panel = _framed(table.Panel(), title, description, span, height, runbook)
    panel.filterable(filterable=True).unit("locale")
    letters = [chr(ord("A") + n) for n in range(len(columns))]
    names = {"Value": next(iter(columns))}
    for letter, (column, expression) in zip(letters, columns.items(), strict=True):
        panel.with_target(
            prometheus.Dataquery()
            .datasource(DATASOURCE)
            .expr(expression)
            .instant()
            .format(PromQueryFormat.TABLE)
            .ref_id(letter)
        )
        names[f"Value #{letter}"] = column
        settings: list[models.DynamicConfigValue] = []
        if units and column in units:
            settings.append(models.DynamicConfigValue("unit", units[column]))
        if steps and column in steps:
            settings += [
                models.DynamicConfigValue("thresholds", _thresholds(steps[column]).build()),
                models.DynamicConfigValue(
                    "custom.cellOptions", {"type": "color-background", "mode": "basic"}
                ),
            ]
        if settings:
            panel.override_by_name(column, settings)
    for column, leads in (links or {}).items():
        panel.override_by_name(column, [models.DynamicConfigValue("links", _leading(leads))])
    panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    unwanted = dict.fromkeys(["Time", "__name__", "job", *hidden], True)
    panel.with_transformation(
        models.DataTransformerConfig(
            id_val="organize", options={"excludeByName": unwanted, "renameByName": names}
        )
    )
    return panel


def timeline(
    title: str,
    description: str,
    states: Sequence[State],
    *queries: Query,
    span: int = 24,
    height: int = 6,
    runbook: str = "",
) -> statetimeline.Panel:
    """Which state each was in, and when."""
    panel = (
        _framed(statetimeline.Panel(), title, description, span, height, runbook)
        .merge_values(merge_values=True)
        .show_value(common_models.VisibilityMode.NEVER)
        .fill_opacity(80)
        .mappings([_mapping(states)])
        .thresholds(_thresholds(()))
    )
    return _asked(panel, queries)


def page(title: str, markdown: str, *, span: int = 24, height: int = 13) -> text.Panel:
    """A page of text."""
    panel = text.Panel().title(title).span(span).height(height)
    return panel.mode(TextMode.MARKDOWN).content(markdown)


def _leading(links: Sequence[Link]) -> list[dict[str, str]]:
    return [{"title": link.title, "url": link.address} for link in links]


def _framed(panel: P, title: str, description: str, span: int, height: int, runbook: str) -> P:
    if runbook:
        link = dashboard.DashboardLink(f"Runbook: {runbook}")
        panel.links([link.type(models.DashboardLinkType.LINK).url(runbook_within(runbook))])
    panel.title(title).description(description).datasource(DATASOURCE).span(span).height(height)
    return panel


def _asked(
    panel: P, queries: Sequence[Query], *, kind: PromQueryFormat = PromQueryFormat.TIME_SERIES
) -> P:
    for number_, query in enumerate(queries):
        panel.with_target(
            prometheus.Dataquery()
            .datasource(DATASOURCE)
            .expr(query.expression)
            .legend_format(query.legend)
            .format(kind)
            .range()
            .ref_id(chr(ord("A") + number_))
        )
    return panel


def _thresholds(steps: Sequence[Step]) -> dashboard.ThresholdsConfig:
    first = models.Threshold(value=None, color=GREEN)
    further = [models.Threshold(value=step.value, color=step.colour) for step in steps]
    return (
        dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps([first, *further])
    )


def _mapping(states: Sequence[State]) -> Any:
    return models.ValueMap(
        options={
            str(state.value): models.ValueMappingResult(
                text=state.word, color=state.colour, index=number_
            )
            for number_, state in enumerate(states)
        }
    )
