"""The report of a run as one page: throughput by callers, latencies at their quantiles, and outages of leaders.

It needs no network, and no other file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import plotly.graph_objects as go
from plotly.colors import qualitative
from plotly.io import to_html
from plotly.subplots import make_subplots

from bench.closed_loop import QUANTILES
from bench.report import Curve, Outage, Report, median

MANY: Final = 64
OURS: Final = "pidkeeper"
_FONT: Final = "system-ui, sans-serif"
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>pidkeeper: benchmark</title>
<style>body {{ margin: 1rem; font-family: {font}; }} p {{ margin: 0.2rem 0; color: #444; font-size: 0.85rem; }}</style>
</head>
<body>
<h1>pidkeeper beside its peers</h1>
{facts}
{figures}
</body>
</html>
"""


def page(report: Report) -> str:
    """HTML of the figures that the report has data for; empty if it has none."""
    figures = []
    if report.curves:
        figures += [throughput(report.curves), latencies(report.curves)]
    if report.outages:
        figures.append(outages(report.outages))
    if not figures:
        return ""
    parts = [to_html(one, full_html=False, include_plotlyjs=number == 0) for number, one in enumerate(figures)]
    facts = "\n".join(f"<p>{name}: {fact}</p>" for name, fact in (report.machine | report.settings).items())
    return _PAGE.format(font=_FONT, facts=facts, figures="\n".join(parts))


def throughput(curves: Sequence[Curve]) -> go.Figure:
    """Blocks a second by how many callers there are."""
    figure = go.Figure()
    for system, ours, colour in _systems(curve.system for curve in curves):
        points = sorted((one.callers, one.rate) for one in _widest(curves, system))
        x, y = zip(*points, strict=True)
        figure.add_scatter(x=x, y=y, name=system, mode="lines+markers", line=_line(ours, colour))
    figure.update_xaxes(type="log", tickvals=sorted({one.callers for one in curves}))
    return _dressed(figure, "Blocks a second by callers", "callers, one request in flight each", "blocks/s")


def latencies(curves: Sequence[Curve]) -> go.Figure:
    """Latency at each quantile, with one caller and with many."""
    figure = make_subplots(cols=2, subplot_titles=("1 caller", f"{MANY} callers"), shared_yaxes=True)
    labels = [f"{100 * fraction:g} %" for fraction in QUANTILES]
    for system, ours, colour in _systems(curve.system for curve in curves):
        shown = True
        for column, callers in enumerate((1, MANY), start=1):
            for one in (one for one in _widest(curves, system) if one.callers == callers):
                figure.add_scatter(
                    x=labels,
                    y=one.spread_ms,
                    name=system,
                    legendgroup=system,
                    showlegend=shown,
                    mode="lines+markers",
                    line=_line(ours, colour),
                    row=1,
                    col=column,
                )
                shown = False
    return _dressed(figure, "Latency of an allocation", "share of the requests that took at most that", "ms")


def outages(found: Sequence[Outage]) -> go.Figure:
    """From what happened to the leader until the next block of another: a bar to the median, and a mark each round."""
    signals = list(dict.fromkeys(one.signal for one in found))
    figure = make_subplots(rows=len(signals), subplot_titles=signals, shared_xaxes=True, vertical_spacing=0.12)
    colours = {system: (ours, colour) for system, ours, colour in _systems(one.system for one in found)}
    for row, name in enumerate(signals, start=1):
        for system, (ours, colour) in colours.items():
            times = [time for one in found if (one.system, one.signal) == (system, name) for time in one.times_ms]
            if not times:
                continue
            bar = {"x": [median(times)], "y": [system], "orientation": "h", "marker_color": colour}
            figure.add_bar(**bar, opacity=1.0 if ours else 0.6, showlegend=False, row=row, col=1)
            marks = {"x": times, "y": [system] * len(times), "mode": "markers"}
            figure.add_scatter(**marks, marker={"color": "black", "size": 5}, showlegend=False, row=row, col=1)
    figure.update_yaxes(autorange="reversed")
    dressed = _dressed(figure, "Without a leader", "", "", log_y=False)
    dressed.update_xaxes(type="log", title_text="")
    dressed.update_xaxes(title_text="ms until the next block, one mark a round", row=len(signals), col=1)
    dressed.update_layout(height=160 + 180 * len(signals))
    return dressed


def _systems(names: Iterable[str]) -> list[tuple[str, bool, str]]:
    """Each system once, ours first: its name, whether it is ours, and its colour."""
    ordered = sorted(dict.fromkeys(names), key=lambda name: not name.startswith(OURS))
    palette = qualitative.Dark24
    return [(name, name.startswith(OURS), palette[number % len(palette)]) for number, name in enumerate(ordered)]


def _widest(curves: Sequence[Curve], system: str) -> list[Curve]:
    """Of ours there is one beside each peer; the one in the middle stands for all."""
    chosen = []
    for callers in sorted({one.callers for one in curves if one.system == system}):
        same = sorted(
            (one for one in curves if (one.system, one.callers) == (system, callers)), key=lambda one: one.rate
        )
        chosen.append(same[len(same) // 2])
    return chosen


def _line(ours: bool, colour: str) -> dict[str, Any]:
    return {"color": colour, "width": 4 if ours else 2, "dash": "solid" if ours else "dot"}


def _dressed(figure: go.Figure, title: str, x: str, y: str, *, log_y: bool = True) -> go.Figure:
    figure.update_layout(
        title=title, template="plotly_white", font_family=_FONT, legend={"orientation": "h", "y": -0.25}, height=560
    )
    figure.update_xaxes(title_text=x)
    if log_y:
        figure.update_yaxes(type="log", title_text=y, minor_ticks="outside")
    return figure
