"""What deploy/ has for Prometheus and Grafana: its rules, its panels, and the series that they look at."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import promql_parser
import yaml

from tests.support.metrics_page import listed

DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
PROMETHEUS: Final = DEPLOY / "prometheus"
DASHBOARDS: Final = DEPLOY / "grafana" / "dashboards"
SECTIONS: Final = (
    "Controllers and agents",
    "Controllers",
    "Kafka's protocol at controllers",
    "The leader",
    "Agents",
    "Agents with partition logs",
    "Consumer groups at agents",
    "With TLS",
    "With ZooKeeper",
)
PROMETHEUS_OWN: Final = frozenset({"up", "ALERTS"})

VARIABLES: Final = {
    "$__rate_interval": "5m",
    "$cluster": ".*",
    "$job": ".*",
    "$instance": ".*",
}
"""What Grafana puts in place of them while "all" is chosen."""

Rule = dict[str, Any]


class Panel(msgspec.Struct, frozen=True):
    """A panel with queries. `json`: as Grafana reads it."""

    board: str
    title: str
    queries: list[str]
    json: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.board}: {self.title}"


@functools.cache
def rules() -> list[Rule]:
    """All rules, in order."""
    groups = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, Rule]:
    """The alerts by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def panels() -> list[Panel]:
    """All panels that have queries, of all dashboards, those of closed rows included."""
    found = []
    for file in sorted(DASHBOARDS.glob("*.json")):
        for panel in flattened(json.loads(file.read_text())):
            if panel["type"] != "row":
                queries = [as_grafana_asks(target["expr"]) for target in panel["targets"]]
                found.append(Panel(file.stem, panel["title"], queries, panel))
    return found


def flattened(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows and panels."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", [])


def as_grafana_asks(expr: str) -> str:
    """The query with all variables replaced."""
    for name, value in VARIABLES.items():
        expr = expr.replace(name, value)
    return expr


def series(expr: str) -> set[str]:
    """The selectors in a query, without ranges. Raises ValueError if it cannot be parsed."""
    return {str(one) for one in _selectors(expr)}


def names(expr: str) -> set[str]:
    """The names of the metrics in a query. Raises ValueError if it cannot be parsed."""
    found = {one.name for one in _selectors(expr)}
    assert None not in found, f"a selector without a name in {expr}"
    return {name for name in found if name is not None}


@functools.cache
def known_names() -> set[str]:
    """The series that members and agents expose, those that the rules record, and Prometheus's own."""
    known = {rule["record"] for rule in rules() if "record" in rule} | PROMETHEUS_OWN
    for section in SECTIONS:
        for row in listed(section).values():
            suffixes = ("_bucket", "_sum", "_count") if row.kind == "histogram" else ("",)
            known |= {row.name + suffix for suffix in suffixes}
    return known


def _selectors(expr: str) -> list[promql_parser.VectorSelector]:
    found: list[promql_parser.VectorSelector] = []

    def visit(one: promql_parser.Expr) -> None:
        if isinstance(one, promql_parser.MatrixSelector):
            found.append(one.vector_selector)
        elif isinstance(one, promql_parser.VectorSelector):
            found.append(one)

    promql_parser.walk(promql_parser.parse(expr), visit)
    return found
