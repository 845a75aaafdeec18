"""What all dashboards share: their variables, links and annotations, and the three kinds of panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Final, NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    DataSourceRef,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import ThresholdsMode

TAG: Final = "pidkeeper"
SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
WHERE: Final = 'cluster=~"$cluster",job=~"$job",instance=~"$instance"'
"""What `$where` stands for in a query: the processes that are chosen above the panels."""

GREEN, ORANGE, RED, GREY = "green", "orange", "red", "text"

IDLE: Final = models.SpecialValueMap(
    models.DashboardSpecialValueMapOptions(models.SpecialValueMatch.NA_N, models.ValueMappingResult("idle", GREY))
)
"""A quantile of nothing."""

Panel = Builder[models.Panel]
Steps = Sequence[tuple[float, str]]
"""A colour from each value on; GREEN below the first."""


class Query(NamedTuple):
    """PromQL with `$where`, and the legend of each of its series."""

    expr: str
    legend: str


class Row(NamedTuple):
    """A row of panels, the width of each of Grafana's 24 columns, and whether it is open at first."""

    title: str
    width: int
    panels: Sequence[Panel]
    open: bool = True


def tile(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str = "short",
    steps: Steps = (),
    decimals: int | None = None,
    legend: str = "",
) -> Panel:
    """A number that is read from across the room, or one for each series, named by `legend`."""
    panel = stat.Panel().title(title).description(description).datasource(SOURCE).height(4).unit(unit)
    panel = panel.thresholds(_thresholds(steps)).with_target(_target(Query(expr, legend), "A").instant())
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    panel = panel.mappings([IDLE])
    panel = panel.color_mode(BigValueColorMode.BACKGROUND if steps else BigValueColorMode.NONE)
    panel = panel.graph_mode(BigValueGraphMode.NONE).no_value("none")
    return panel if decimals is None else panel.decimals(decimals)


def graph(title: str, description: str, *queries: Query, unit: str = "short", steps: Steps = ()) -> Panel:
    """Curves over time, with a dashed line at each of `steps`: where an alert fires."""
    panel = timeseries.Panel().title(title).description(description).datasource(SOURCE).height(8).unit(unit).min(0)
    for ref, query in zip(ascii_uppercase, queries, strict=False):
        panel = panel.with_target(_target(query, ref))
    panel = panel.fill_opacity(8).show_points(VisibilityMode.NEVER).thresholds(_thresholds(steps))
    if steps:
        style = common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
        panel = panel.thresholds_style(style)
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.TABLE).placement(LegendPlacement.BOTTOM)
    tooltip = common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
    return panel.legend(legend.show_legend(True).calcs(["lastNotNull", "max"])).tooltip(tooltip)


def timeline(title: str, description: str, query: Query, states: Mapping[int, tuple[str, str]]) -> Panel:
    """One bar for each series, coloured by `states`: value to text and colour."""
    results = {str(value): models.ValueMappingResult(text, color) for value, (text, color) in states.items()}
    panel = statetimeline.Panel().title(title).description(description).datasource(SOURCE).height(6)
    return panel.mappings([models.ValueMap(results)]).show_value(VisibilityMode.NEVER).with_target(_target(query, "A"))


def quantiles(metric: str, by: str, legend: str) -> tuple[Query, Query]:
    """Half and 99 of a hundred of a histogram's observations, by a label."""
    buckets = f"sum by (le, {by}) (rate({metric}_bucket{{$where}}[$__rate_interval]))"
    return (
        Query(f"histogram_quantile(0.99, {buckets})", f"p99 {legend}"),
        Query(f"histogram_quantile(0.5, {buckets})", f"p50 {legend}"),
    )


def board(name: str, title: str, description: str, rows: Sequence[Row]) -> models.Dashboard:
    """A whole dashboard. `name`: of its file, and its address in Grafana."""
    link = dashboard.DashboardLink("pidkeeper").type(models.DashboardLinkType.DASHBOARDS).tags([TAG])
    made = (
        dashboard.Dashboard(title)
        .uid(f"pidkeeper-{name}")
        .description(description)
        .tags([TAG])
        .timezone("browser")
        .refresh("30s")
        .time("now-1h", "now")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(link.include_vars(True).keep_time(True))
        .annotation(_alerts())
        .variables([_sources(), *(_label(label) for label in ("cluster", "job", "instance"))])
    )
    for row in rows:
        made = made.with_row(_row(row)) if row.open else made.with_row(_row(row, row.panels).collapsed(True))
        for panel in row.panels if row.open else ():
            made = made.with_panel(_sized(panel, row.width))
    return _numbered(made.build())


def _row(row: Row, panels: Sequence[Panel] = ()) -> dashboard.Row:
    made = dashboard.Row(row.title)
    for panel in panels:
        made = made.with_panel(_sized(panel, row.width))
    return made


def _sized(panel: Panel, width: int) -> Panel:
    assert isinstance(panel, stat.Panel | timeseries.Panel | statetimeline.Panel)
    return panel.span(width)


def _numbered(made: models.Dashboard) -> models.Dashboard:
    """Grafana tells panels apart by numbers."""
    number = 0
    for panel in made.panels or []:
        for one in (panel, *(panel.panels if isinstance(panel, models.RowPanel) else ())):
            number += 1
            one.id_val = number
    return made


def _thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    limits = [models.Threshold(None, GREEN), *(models.Threshold(value, color) for value, color in steps)]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(limits)


def _target(query: Query, ref: str) -> prometheus.Dataquery:
    expr = query.expr.replace("$where", WHERE)
    return prometheus.Dataquery().ref_id(ref).datasource(SOURCE).expr(expr).legend_format(query.legend)


def _sources() -> dashboard.DatasourceVariable:
    return dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _label(label: str) -> dashboard.QueryVariable:
    """All values by default; where no series has the label, "all" finds those without it."""
    chosen = {"cluster": "", "job": 'cluster=~"$cluster"', "instance": 'cluster=~"$cluster",job=~"$job"'}[label]
    everything = models.VariableOption(selected=True, text=["All"], value=["$__all"])
    variable = dashboard.QueryVariable(label).label(label.capitalize()).datasource(SOURCE)
    variable = variable.query(f"label_values(pidkeeper_build_info{{{chosen}}}, {label})")
    variable = variable.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    variable = variable.sort(models.VariableSort.ALPHABETICAL_ASC).multi(True).include_all(True)
    return variable.all_value(".*").current(everything)


def _alerts() -> dashboard.AnnotationQuery:
    firing = 'ALERTS{alertname=~"Pidkeeper.+",alertstate="firing",cluster=~"$cluster"}'
    query = dashboard.AnnotationQuery().name("Alerts").datasource(SOURCE).enable(True).icon_color(RED)
    return query.expr(firing).title_format("{{alertname}}").text_format("{{instance}}")
