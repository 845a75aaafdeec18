"""A picture of a run: which fault struck whom and when, when nobody was given a block, and who led."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import matplotlib as mpl
import msgspec

from tests.chaos.course import Happened
from tests.chaos.figures import Served

mpl.use("svg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

GAP_SECONDS: Final = 0.2
"""From here on a time without a block is drawn."""

ROW_INCHES: Final = 0.32
SECOND_INCHES: Final = 0.02
WIDTH_INCHES: Final = (12.0, 60.0)
"""The least and the most: a run of an hour is drawn smaller."""

SERVICE: Final = "no block given"
LEADERS: Final = "a leader elected"


class Elected(msgspec.Struct, frozen=True):
    """When somebody was first seen to lead in a term, and who."""

    time: float
    term: int
    leader: str


def draw(path: Path, happened: Sequence[Happened], served: Served, elected: Sequence[Elected], begun: float) -> None:
    """Write the timeline as SVG. `begun`: when the run began; all times are of `time.monotonic`."""
    victims = sorted({victim for one in happened for victim in one.victims})
    rows = {name: row for row, name in enumerate(reversed([SERVICE, LEADERS, *victims]))}
    seconds = max([one.whole for one in happened] + [*served.times[-1:]], default=begun) - begun
    width = min(max(seconds * SECOND_INCHES, WIDTH_INCHES[0]), WIDTH_INCHES[1])
    figure = Figure(figsize=(width, 1.6 + ROW_INCHES * len(rows)), layout="constrained")
    axes = figure.subplots()
    _draw_faults(axes, happened, rows, begun)
    _draw_gaps(axes, served, rows[SERVICE], begun)
    _draw_elections(axes, elected, rows[LEADERS], begun)
    axes.set_yticks(list(rows.values()), list(rows))
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_xlim(0, max(seconds, 1))
    axes.set_xlabel("seconds since the run began")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Text stays text: it can be searched for, and the file is a tenth as long.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "pidkeeper"}):
        figure.savefig(path, format="svg", metadata={"Date": None})


def _draw_faults(axes: Axes, happened: Sequence[Happened], rows: dict[str, int], begun: float) -> None:
    kinds = sorted({one.planned.kind for one in happened if one.victims})
    palette = mpl.colormaps["tab20"].resampled(max(len(kinds), 1))
    colours = {kind: palette(number) for number, kind in enumerate(kinds)}
    for one in happened:
        for victim in one.victims:
            span = (one.began - begun, max(one.ended - one.began, 0.2))
            axes.broken_barh([span], (rows[victim] - 0.38, 0.76), facecolors=colours[one.planned.kind], alpha=0.85)
    if kinds:
        axes.legend(
            handles=[Patch(color=colours[kind], label=kind) for kind in kinds],
            ncols=6,
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            frameon=False,
            fontsize="small",
        )


def _draw_gaps(axes: Axes, served: Served, row: int, begun: float) -> None:
    gaps = [(last - begun, next_ - last) for last, next_ in pairwise(served.times) if next_ - last >= GAP_SECONDS]
    axes.broken_barh(gaps, (row - 0.38, 0.76), facecolors="black")


def _draw_elections(axes: Axes, elected: Sequence[Elected], row: int, begun: float) -> None:
    axes.plot([one.time - begun for one in elected], [row] * len(elected), "|", markersize=10, color="black")
    for one in elected:
        axes.annotate(
            one.leader.removeprefix("controller-"),
            (one.time - begun, row),
            (2, 0),
            textcoords="offset points",
            fontsize=6,
        )
