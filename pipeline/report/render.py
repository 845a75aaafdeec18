"""The page: what was drawn, and the verdict, through the template beside this module.

The page loads nothing, and its policy would not let it: it runs the two scripts whose sums it names, and no other. What
came from files is escaped, in HTML and in JSON, by the template.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources
from typing import Any, Final

import jinja2
from markupsafe import Markup

from pidkeeper.pipeline.report import figures, plotly_js
from pidkeeper.pipeline.report.aggregates import Drawn
from pidkeeper.pipeline.verdict import Verdict, covered_text
from pidkeeper.protocol.ids import MAX_PRODUCER_ID

MAX_CELL_CHARACTERS: Final = 600
"""Foreign text is cut here; the tables have all of it."""
SHOWN_PARTS: Final = 3
"""Names at the end of a path that are shown: member, folder and file. The tables have all of it."""


def render(verdict: Verdict, drawn: Drawn) -> str:
    """One HTML file."""
    plots = {
        "anomalies": figures.anomalies(drawn),
        "allocations": figures.allocations(drawn),
        "lifetimes": figures.lifetimes(drawn),
        "burndown": figures.burn_down(drawn),
    }
    script = _beside("report.js")
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            verdict=verdict,
            drawn=drawn,
            plots={name: figure for name, figure in plots.items() if figure is not None},
            plotly=Markup(plotly_js.packed()),  # noqa: S704 - base64
            script=Markup(script),  # noqa: S704 - ours
            sums=[_sum(script), _sum(plotly_js.script())],
            forecast=figures.forecast(drawn),
            covered=covered_text(verdict.coverage),
            used=(verdict.highest_id or 0) / MAX_PRODUCER_ID,
        )
    )


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_beside),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.filters |= {"count": _count, "interval": figures.interval, "moment": figures.moment, "tail": _tail}
    return environment


def _beside(name: str) -> str:
    """A file of this package, be it in a folder, a wheel or a zip that Spark passes on."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _sum(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _shown(value: Any) -> Any:
    """How the template writes any value, before it escapes it."""
    if isinstance(value, str) and not isinstance(value, Markup) and len(value) > MAX_CELL_CHARACTERS:
        return value[:MAX_CELL_CHARACTERS] + "…"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else value


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" + "s" * (number != 1)


def _tail(path: str) -> str:
    parts = path.rsplit("/", SHOWN_PARTS)
    return path if len(parts) <= SHOWN_PARTS or not parts[0] else "…/" + "/".join(parts[1:])
