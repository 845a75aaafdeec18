"""The figures of the report in plotly's JSON form. Colours of text and grid come from the page, by light or dark."""

from __future__ import annotations

import datetime as dt
import html
import math
from collections import defaultdict
from typing import Any, Final

from pidkeeper.pipeline.findings import NOTE, VIOLATION, WARNING
from pidkeeper.pipeline.report.aggregates import OTHERS, Drawn
from pidkeeper.protocol.ids import MAX_PRODUCER_ID, OWN

PALETTE: Final = (
    "#4c78e0", "#e8a317", "#e8604c", "#2fa98c", "#9b62d6", "#d9669f", "#5aa3d8", "#8a9a2b", "#b0764a", "#6f7b8c",
)  # fmt: skip
"""Ten hues that stand apart on white and on near-black."""
OTHERS_COLOUR: Final = "#b9c0cb"
"""Of all brokers that have no hue of their own."""
SEVERITY_COLOURS: Final = {VIOLATION: "#dc3b3b", WARNING: "#e8a317", NOTE: "#4c78e0"}
SEVERITY_SIGNS: Final = {VIOLATION: "x", WARNING: "triangle-up", NOTE: "circle"}
MAX_SIGN_PIXELS: Final = 26
_YEAR_MS: Final = 365.25 * 86_400_000
FORECAST_SPANS: Final = 1.0
"""The dashed line goes on for as long as what was seen."""

Figure = dict[str, Any]


def allocations(drawn: Drawn) -> Figure | None:
    """IDs allocated in each interval, stacked by broker."""
    if not drawn.allocations:
        return None
    by_broker: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in drawn.allocations:
        by_broker[row["broker_id"]].append(row)
    width = drawn.bucket_ms
    data = [
        {
            "type": "bar",
            "name": broker_name(broker),
            "x": [row["at_ms"] + width / 2 for row in rows],
            "y": [row["ids"] for row in rows],
            "width": width * 0.9,
            "customdata": [f"{row['ids']:,} IDs in {row['blocks']:,} blocks" for row in rows],
            "hovertemplate": "%{customdata}<extra>" + broker_name(broker) + "</extra>",
            "marker": {"color": OTHERS_COLOUR if broker == OTHERS else colour(position)},
        }
        for position, (broker, rows) in enumerate(sorted(by_broker.items(), key=_others_last))
    ]
    return {"data": data, "layout": _layout(f"IDs per {interval(width)}", 320) | {"barmode": "stack", "bargap": 0}}


def lifetimes(drawn: Drawn) -> Figure | None:
    """Who held which range when: a bar from a block's allocation to the next one of the same broker."""
    if not drawn.lifetimes:
        return None
    by_broker: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in drawn.lifetimes:
        by_broker[row["broker_id"]].append(row)
    data = []
    for position, (broker, rows) in enumerate(sorted(by_broker.items())):
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": broker_name(broker),
                "y": [broker_name(broker)] * len(rows),
                "base": [row["from_ms"] for row in rows],
                "x": [row["to_ms"] - row["from_ms"] for row in rows],
                "customdata": [_held(row) for row in rows],
                "hovertemplate": "%{customdata}<extra></extra>",
                "marker": {
                    "color": colour(position),
                    "opacity": [0.95 if number % 2 == 0 else 0.6 for number in range(len(rows))],
                    "pattern": {"shape": ["/" if row["open"] else "" for row in rows], "solidity": 0.25},
                    "line": {"width": 0},
                },
                "showlegend": False,
            }
        )
    layout = _layout("", 110 + 38 * len(by_broker)) | {"barmode": "overlay", "bargap": 0.35, "hovermode": "closest"}
    layout["yaxis"] |= {"type": "category", "categoryorder": "category descending", "showgrid": False}
    return {"data": data, "layout": layout}


def burn_down(drawn: Drawn) -> Figure | None:
    """The highest ID given out, and on at the same rate."""
    if not drawn.curve:
        return None
    times = [row["last_ms"] for row in drawn.curve]
    tops = [row["highest_id"] for row in drawn.curve]
    seen = {
        "type": "scatter",
        "mode": "lines+markers" if len(times) == 1 else "lines",
        "name": "handed out",
        "x": times,
        "y": tops,
        "line": {"shape": "hv", "color": PALETTE[0], "width": 2.5},
        "fill": "tozeroy",
        "fillcolor": "rgba(76,120,224,0.12)",
        "customdata": [f"{top:,}" for top in tops],
        "hovertemplate": "highest ID %{customdata}<extra></extra>",
    }
    data = [seen]
    span = times[-1] - times[0]
    if span > 0 and tops[-1] > tops[0]:
        rise = (tops[-1] - tops[0]) * FORECAST_SPANS
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "at this rate",
                "x": [times[-1], times[-1] + span * FORECAST_SPANS],
                "y": [tops[-1], min(tops[-1] + rise, MAX_PRODUCER_ID)],
                "line": {"dash": "dot", "color": PALETTE[1], "width": 2.5},
                "hovertemplate": "forecast %{y:,.0f}<extra></extra>",
            }
        )
    layout = _layout("highest producer ID", 300)
    layout["yaxis"] |= {"rangemode": "tozero"}
    return {"data": data, "layout": layout}


def anomalies(drawn: Drawn) -> Figure | None:
    """Findings on a time line, a row for each check."""
    if not drawn.anomalies:
        return None
    data = []
    for severity, tint in SEVERITY_COLOURS.items():
        rows = [row for row in drawn.anomalies if row["severity"] == severity]
        if rows:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": severity,
                    "x": [row["first_ms"] for row in rows],
                    "y": [_plain(row["check"]) for row in rows],
                    "customdata": [f"{row['findings']:,}: {_plain(row['subject'])}" for row in rows],
                    "hovertemplate": "%{y}: %{customdata}<extra>" + severity + "</extra>",
                    "marker": {
                        "color": tint,
                        "symbol": SEVERITY_SIGNS[severity],
                        "size": [min(11 + 3 * math.log2(row["findings"]), MAX_SIGN_PIXELS) for row in rows],
                        "line": {"width": 1, "color": "rgba(255,255,255,0.6)"},
                    },
                }
            )
    checks = len({row["check"] for row in drawn.anomalies})
    layout = _layout("", 130 + 34 * checks) | {"hovermode": "closest"}
    layout["yaxis"] |= {"type": "category", "automargin": True}
    edge = (drawn.last_ms - drawn.first_ms) * 0.03
    layout["xaxis"] |= {"range": [drawn.first_ms - edge, drawn.last_ms + edge]} if edge else {}
    return {"data": data, "layout": layout}


def forecast(drawn: Drawn) -> tuple[str, str]:
    """When the ID space ends at the rate that was seen: a figure and how it came about."""
    if not drawn.curve:
        return "-", "no blocks with a time"
    first, last = drawn.curve[0], drawn.curve[-1]
    span = last["last_ms"] - first["last_ms"]
    rise = last["highest_id"] - first["highest_id"]
    if span <= 0 or rise <= 0:
        return "-", "one moment only: no rate"
    left_ms = (MAX_PRODUCER_ID - last["highest_id"]) * span / rise
    return f"{_large(left_ms / _YEAR_MS)} years", f"at {_large(rise * 1000 / span)} IDs a second"


def colour(position: int) -> str:
    """The colour of a broker by its place in the order."""
    return PALETTE[position % len(PALETTE)]


def broker_name(broker: int) -> str:
    """As the figures say it."""
    if broker == OWN:
        return "the quorum, for transactions"
    return "other brokers" if broker == OTHERS else f"broker {broker}"


def interval(milliseconds: int) -> str:
    """A step of time for the eye: `15 s`, `2 h`."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds % size == 0:
            count = milliseconds // size
            return f"{count} {unit}"
    return f"{milliseconds} ms"


def moment(milliseconds: int | None) -> str:
    """A time in UTC for the eye; a dash without one."""
    if milliseconds is None or not 0 <= milliseconds < 253_402_300_800_000:
        return "-" if milliseconds is None else str(milliseconds)
    at = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S")


def _others_last(item: tuple[int, Any]) -> tuple[bool, int]:
    return item[0] == OTHERS, item[0]


def _held(row: dict[str, Any]) -> str:
    blocks = "" if row["blocks"] == 1 else f"{row['blocks']:,} blocks, "
    until = "the end of what was read" if row["open"] else moment(row["to_ms"])
    return (
        f"{broker_name(row['broker_id'])}<br>{blocks}IDs {row['first_id']:,} to {row['last_id']:,}"
        f"<br>{moment(row['from_ms'])} to {until}"
    )


def _large(value: float) -> str:
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:,.1f} {name}"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def _plain(text: str | None) -> str:
    # plotly reads a little markup in labels.
    return html.escape(text or "")


def _layout(y_title: str, height: int) -> dict[str, Any]:
    return {
        "height": height,
        "margin": {"l": 64, "r": 16, "t": 12, "b": 44},
        "hovermode": "closest",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "xaxis": {"type": "date", "automargin": True},
        "yaxis": {"title": {"text": y_title}, "automargin": True, "exponentformat": "SI", "separatethousands": True},
    }
