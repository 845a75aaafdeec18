"""The page of plots: what is drawn of a report, and that it stands alone."""

from __future__ import annotations

import re

from bench.plots import latencies, outages, page, throughput
from bench.report import Curve, Outage, Report

SPREAD = [float(number) for number in range(1, 11)]


def curve(system: str, callers: int, rate: float) -> Curve:
    return Curve(system=system, callers=callers, rate=rate, spread_ms=[rate * value for value in SPREAD])


CURVES = [
    curve("peer", 1, 5.0),
    curve("peer", 64, 50.0),
    *(curve("pidkeeper, HTTP", callers, rate) for rate in (7.0, 9.0, 8.0) for callers in (64, 1)),
]
OUTAGES = [
    Outage(system="peer", signal="kill -9", times_ms=[900.0]),
    Outage(system="pidkeeper", signal="kill -9", times_ms=[10.0]),
    Outage(system="pidkeeper", signal="kill -9", times_ms=[30.0, 20.0]),
    Outage(system="peer", signal="SIGSTOP", times_ms=[]),
]


def report(curves: list[Curve], found: list[Outage]) -> Report:
    facts = {"cores": "2"}
    return Report(machine=facts, settings={}, rows=[], violations=[], notes=[], curves=curves, outages=found)


def test_each_system_is_one_line_and_ours_is_first() -> None:
    lines = throughput(CURVES).data
    assert [line.name for line in lines] == ["pidkeeper, HTTP", "peer"]
    assert [list(line.x) for line in lines] == [[1, 64], [1, 64]]
    assert [list(line.y) for line in lines] == [[8.0, 8.0], [5.0, 50.0]], "of ours the one in the middle"


def test_latencies_are_drawn_for_one_caller_and_for_many() -> None:
    lines = latencies(CURVES).data
    assert [(line.name, line.y[0], line.showlegend) for line in lines] == [
        ("pidkeeper, HTTP", 8.0, True),
        ("pidkeeper, HTTP", 8.0, False),
        ("peer", 5.0, True),
        ("peer", 50.0, False),
    ]


def test_rounds_of_the_same_kind_are_put_together() -> None:
    bars = [one for one in outages(OUTAGES).data if one.type == "bar"]
    assert [(bar.y[0], bar.x[0]) for bar in bars] == [("pidkeeper", 20.0), ("peer", 900.0)]


def test_a_page_needs_no_network() -> None:
    drawn = page(report(CURVES, OUTAGES))
    assert drawn.count("plotly-graph-div") >= 3
    assert not re.search(r'<(script|link)[^>]+(src|href)="', drawn)


def test_what_has_nothing_to_draw_has_no_page() -> None:
    assert page(report([], [])) == ""
