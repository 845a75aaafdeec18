"""The figures of the report, as plotly.js takes them. Colours of text and grid come from the page, by light or dark.

They are plain dictionaries: plotly's classes for the same take a tenth of a second to import and fill.
"""

from __future__ import annotations

import datetime as dt
import html
import itertools
import math
from typing import Any, Final

from pidkeeper.pipeline.findings import NOTE, VIOLATION, WARNING
from pidkeeper.pipeline.report.aggregates import OTHERS, Drawn, Row
from pidkeeper.protocol.ids import MAX_PRODUCER_ID, OWN

PALETTE: Final = (
    "#4c78e0", "#e8a317", "#e8604c", "#2fa98c", "#9b62d6", "#d9669f", "#5aa3d8", "#8a9a2b", "#b0764a", "#6f7b8c",
)  # fmt: skip
"""Ten hues that stand apart on white and on near-black."""
OTHERS_COLOUR: Final = "#b9c0cb"
"""Of all brokers that have no hue of their own."""
SIGNS: Final = {VIOLATION: ("#dc3b3b", "x"), WARNING: ("#e8a317", "triangle-up"), NOTE: ("#4c78e0", "circle")}
MAX_SIGN_PIXELS: Final = 26
MAX_LABEL_CHARACTERS: Final = 160
"""Foreign text beside the pointer is cut here: a thousand labels of a page each are a file too large."""
_YEAR_MS: Final = 365.25 * 86_400_000
_LARGE: Final = ((1e12, " trillion"), (1e9, " billion"), (1e6, " million"))
_UNITS_MS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))
_FIRST_ABOVE: Final = {"type": "category", "categoryorder": "trace", "autorange": "reversed", "showgrid": False}
_LEGEND: Final = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"}

Figure = dict[str, Any]
"""`data`, a list of traces, and `layout`, by plotly.js's names."""


def allocations(drawn: Drawn) -> Figure | None:
    """IDs allocated in each interval, stacked by broker."""
    width = drawn.bucket_ms
    by_broker = _by_broker(sorted(drawn.allocations, key=lambda row: (row["broker_id"] == OTHERS, row["broker_id"])))
    bars = [
        {
            "type": "bar",
            "name": broker_name(broker),
            "x": [row["at_ms"] + width / 2 for row in rows],
            "y": [row["ids"] for row in rows],
            "width": width * 0.9,
            "customdata": [row["blocks"] for row in rows],
            "hovertemplate": "%{y:,} IDs in %{customdata:,} blocks<extra>%{fullData.name}</extra>",
            "marker": {"color": OTHERS_COLOUR} if broker == OTHERS else {},
        }
        for broker, rows in by_broker
    ]
    return _figure(bars, 320, {}, barmode="stack", bargap=0)


def lifetimes(drawn: Drawn) -> Figure | None:
    """Who held which range when: a bar from a block's allocation to the next one of the same broker."""
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "name": broker_name(broker),
            "y": [broker_name(broker)] * len(rows),
            "base": [row["from_ms"] for row in rows],
            "x": [row["to_ms"] - row["from_ms"] for row in rows],
            "customdata": [_held(row) for row in rows],
            "hovertemplate": "%{customdata}<extra>%{fullData.name}</extra>",
            "marker": {
                "opacity": [0.95 if number % 2 == 0 else 0.6 for number in range(len(rows))],
                "pattern": {"shape": ["/" if row["next_ms"] is None else "" for row in rows], "solidity": 0.25},
                "line": {"width": 0},
            },
            "showlegend": False,
        }
        for broker, rows in _by_broker(drawn.lifetimes)
    ]
    return _figure(bars, 80 + 38 * len(bars), _FIRST_ABOVE, barmode="overlay", bargap=0.35)


def burn_down(drawn: Drawn) -> Figure | None:
    """The highest ID given out, and on for as long again at the same rate."""
    times = [row["last_ms"] for row in drawn.curve]
    tops = [row["highest_id"] for row in drawn.curve]
    seen: Figure = {
        "type": "scatter",
        "mode": "lines+markers" if len(times) == 1 else "lines",
        "name": "handed out",
        "x": times,
        "y": tops,
        "line": {"shape": "hv", "width": 2.5},
        "fill": "tozeroy",
        "fillcolor": "rgba(76,120,224,0.12)",
        "customdata": [f"{top:,}" for top in tops],  # a browser's whole numbers end at 2^53
        "hovertemplate": "highest ID %{customdata}<extra></extra>",
    }
    lines = [seen] if times else []
    if _rate(drawn):
        onward = {
            "type": "scatter",
            "mode": "lines",
            "name": "at this rate",
            "x": [times[-1], 2 * times[-1] - times[0]],
            "y": [tops[-1], min(2 * tops[-1] - tops[0], MAX_PRODUCER_ID)],
            "line": {"dash": "dot", "width": 2.5},
            "hovertemplate": "forecast %{y:,.0f}<extra></extra>",
        }
        lines.append(onward)
    return _figure(lines, 300, {"rangemode": "tozero"})


def anomalies(drawn: Drawn) -> Figure | None:
    """Findings on a time line, a row for each check."""
    signs = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": severity,
            "x": [row["first_ms"] for row in rows],
            "y": [_plain(row["check"]) for row in rows],
            "customdata": [f"{row['findings']:,}: {_plain(row['subject'])}" for row in rows],
            "hovertemplate": "%{y}: %{customdata}<extra>%{fullData.name}</extra>",
            "marker": {
                "color": tint,
                "symbol": symbol,
                "size": [min(11 + 3 * math.log2(row["findings"]), MAX_SIGN_PIXELS) for row in rows],
                "line": {"width": 1, "color": "rgba(255,255,255,0.6)"},
            },
        }
        for severity, (tint, symbol) in SIGNS.items()
        if (rows := [row for row in drawn.anomalies if row["severity"] == severity])
    ]
    first, last = drawn.seen_ms
    edge = max((last - first) * 0.03, 1000)
    checks = len({row["check"] for row in drawn.anomalies})
    return _figure(signs, 110 + 34 * checks, _FIRST_ABOVE, xaxis={"range": [first - edge, last + edge]})


def forecast(drawn: Drawn) -> tuple[str, str]:
    """When the ID space ends at the rate that was seen: a figure and how it came about."""
    rate = _rate(drawn)
    if rate is None:
        return "-", "one moment only: no rate" if drawn.curve else "no blocks with a time"
    left_ms = (MAX_PRODUCER_ID - drawn.curve[-1]["highest_id"]) / rate
    return f"{_large(left_ms / _YEAR_MS)} years", f"at {_large(rate * 1000)} IDs a second"


def broker_name(broker: int) -> str:
    """As the figures say it."""
    return {OWN: "the quorum, for transactions", OTHERS: "other brokers"}.get(broker, f"broker {broker}")


def interval(milliseconds: int) -> str:
    """A step of time for the eye: `15 s`, `2 h`."""
    return next(f"{milliseconds // size} {unit}" for size, unit in _UNITS_MS if milliseconds % size == 0)


def moment(milliseconds: int | None) -> str:
    """A time in UTC for the eye; a dash without one."""
    if milliseconds is None or not 0 <= milliseconds < 253_402_300_800_000:
        return "-" if milliseconds is None else str(milliseconds)
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _by_broker(rows: list[Row]) -> list[tuple[int, list[Row]]]:
    return [(broker, list(own)) for broker, own in itertools.groupby(rows, key=lambda row: row["broker_id"])]


def _held(row: Row) -> str:
    blocks = "" if row["blocks"] == 1 else f"{row['blocks']:,} blocks, "
    until = "the end of what was read" if row["next_ms"] is None else moment(row["to_ms"])
    return f"{blocks}IDs {row['first_id']:,} to {row['last_id']:,}<br>{moment(row['from_ms'])} to {until}"


def _rate(drawn: Drawn) -> float | None:
    """IDs a millisecond; None where there is none to see."""
    first, last = (drawn.curve[0], drawn.curve[-1]) if drawn.curve else ({}, {})
    span, rise = (last.get(name, 0) - first.get(name, 0) for name in ("last_ms", "highest_id"))
    return rise / span if span > 0 and rise > 0 else None


def _large(value: float) -> str:
    size, name = next(((size, name) for size, name in _LARGE if value >= size), (1, ""))
    return f"{value / size:,.0f}" if not name and value >= 100 else f"{value / size:,.1f}{name}"


def _plain(text: str | None) -> str:
    # plotly reads a little markup in labels.
    return html.escape((text or "")[:MAX_LABEL_CHARACTERS])


def _figure(traces: list[Figure], height: int, yaxis: dict[str, Any], **layout: Any) -> Figure | None:
    if not traces:
        return None
    all_have = {
        "height": height,
        "margin": {"l": 48, "r": 16, "t": 12, "b": 44},
        "legend": _LEGEND,
        "colorway": PALETTE,
        "hovermode": "closest",
        "xaxis": {"type": "date", "automargin": True, "tickangle": 0} | layout.pop("xaxis", {}),
        "yaxis": {"automargin": True, "exponentformat": "SI", "separatethousands": True} | yaxis,
    }
    return {"data": traces, "layout": all_have | layout}
