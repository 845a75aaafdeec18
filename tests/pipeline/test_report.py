"""The report in a real browser: it draws, it complains of nothing, and foreign text stays text."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pidkeeper.pipeline.report import figures
from pidkeeper.pipeline.report.aggregates import MAX_BROKERS, MAX_BUCKETS, OTHERS, Drawn, bucket_ms
from pidkeeper.pipeline.report.verdict import BadFile, CheckCount, Coverage, Verdict, Watermark
from pidkeeper.protocol.ids import MAX_PRODUCER_ID

HOSTILE = "</script><script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\">"
START_MS = 1_700_000_000_000
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
BROWSER_SECONDS = 60.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--v=0",
    "--virtual-time-budget=10000",
    "--dump-dom",
)

pytestmark = pytest.mark.skipif(importlib.util.find_spec("plotly") is None, reason="no report: plotly not installed")


def verdict(**changes: Any) -> Verdict:
    known = Verdict(
        verdict="violations",
        violations=1,
        warnings=0,
        notes=0,
        checks={"overlap": CheckCount(violations=1), "gap": CheckCount()},
        files_read=3,
        files_bad=1,
        bad_files=[BadFile(HOSTILE, "torn", 5, HOSTILE)],
        blocks=4,
        ids=4000,
        batches=12,
        brokers=2,
        highest_id=3999,
        first_ms=START_MS,
        last_ms=START_MS + 40_000,
        watermark=Watermark({HOSTILE: 9}, {HOSTILE: 9}, 1),
        coverage=Coverage(["1"], 1, 0, 9),
        pidkeeper_version="1",
    )
    return msgspec.structs.replace(known, **changes)


def full() -> Drawn:
    finding = {"check": "overlap", "severity": "violation", "subject": HOSTILE, "detail": HOSTILE}
    block = {"broker_id": 1, "first_id": 0, "last_id": 999, "blocks": 1}
    return Drawn(
        first_ms=START_MS,
        last_ms=START_MS + 40_000,
        bucket_ms=10_000,
        allocations=[{"broker_id": broker, "at_ms": START_MS, "ids": 1000, "blocks": 1} for broker in (OTHERS, 1)],
        lifetimes=[block | {"from_ms": START_MS, "to_ms": START_MS + 9000, "open": False}],
        blocks_per_bar=1,
        curve=[{"last_ms": START_MS + at * 10_000, "highest_id": at * 1000 + 999} for at in range(4)],
        anomalies=[finding | {"findings": 3, "first_ms": START_MS}],
        timeless=0,
        findings=[finding | {"timestamp_ms": START_MS, "member": HOSTILE, "file": HOSTILE, "position": 48}],
        bad_files=[
            {"file": HOSTILE, "member": HOSTILE, "kinds": "torn", "problems": 1, "first_position": 5, "detail": HOSTILE}
        ],
        sources=[{"source": "archive", "member": HOSTILE, "files": 1, "bytes": 5, "rows": 4, "bad": 1}],
        partitions=[
            {"topic": HOSTILE, "partitions": 1, "batches": 1, "records": 1, "first_ms": None, "last_ms": START_MS}
        ],
    )


def empty() -> Drawn:
    return Drawn(0, 0, 1000, [], [], 1, [], [], 0, [], [], [], [])


def render(told: Verdict, drawn: Drawn) -> str:
    from pidkeeper.pipeline.report.markup import render as render_page

    return render_page(told, drawn)


def open_in_browser(page: str, directory: Path) -> tuple[str, list[str]]:
    """The document after its scripts ran, and what the console shows."""
    if BROWSER is None:
        pytest.skip("no chromium")
    file = directory / "report.html"
    file.write_text(page, encoding="utf-8")
    command = [BROWSER, *FLAGS, f"--user-data-dir={directory / 'profile'}", file.as_uri()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=BROWSER_SECONDS, check=True)
    return ran.stdout, [line for line in ran.stderr.splitlines() if "CONSOLE" in line]


def test_a_browser_draws_every_figure_and_complains_of_nothing(tmp_path: Path) -> None:
    document, console = open_in_browser(render(verdict(), full()), tmp_path)
    assert console == []
    for name in ("allocations", "lifetimes", "burndown", "anomalies"):
        assert re.search(
            rf'id="{name}"[^>]*class="[^"]*js-plotly-plot|class="[^"]*js-plotly-plot[^>]*id="{name}"', document
        )
    assert document.count('class="main-svg"') >= 4
    assert "<title>pidkeeper audit: violations</title>" in document


def test_a_browser_shows_an_audit_of_nothing(tmp_path: Path) -> None:
    nothing = verdict(
        verdict="clean", violations=0, checks={}, bad_files=[], files_bad=0, first_ms=None, highest_id=None
    )
    document, console = open_in_browser(render(nothing, empty()), tmp_path)
    assert console == []
    assert document.count("Nothing to draw.") == 4
    assert "No findings." in document


def test_foreign_text_is_escaped_and_nothing_is_loaded() -> None:
    page = render(verdict(), full())
    own, _, rest = page.partition('<script type="application/json"')
    data = rest.partition("</script>")[0]
    assert "<img" not in own + data
    assert "<script" not in own + data
    assert "&lt;img src=x" in own
    assert not re.search(r'(src|href)="(?!data:)', own)
    assert "default-src 'none'" in own


def test_times_are_cut_into_a_bounded_number_of_round_steps() -> None:
    for span in (1, 1000, 59_000, 3_600_000, 10**9, 10**12):
        step = bucket_ms(span)
        assert span / step <= MAX_BUCKETS
        assert step <= 10 or span / step > MAX_BUCKETS / 4
    assert [figures.interval(step) for step in (500, 1000, 900_000, 7_200_000)] == ["500 ms", "1 s", "15 min", "2 h"]


def test_the_forecast_is_what_is_left_at_the_rate_that_was_seen() -> None:
    drawn = full()
    drawn.curve[-1]["highest_id"] = 3_000_999
    years = (MAX_PRODUCER_ID - 3_000_999) / 100_000 / (365.25 * 86_400)
    assert figures.forecast(drawn) == (f"{years / 1e6:.1f} million years", "at 100,000 IDs a second")
    assert figures.forecast(empty()) == ("-", "no blocks with a time")


def test_no_two_brokers_have_one_colour() -> None:
    brokers = (OTHERS, *range(MAX_BROKERS))
    drawn = full()
    drawn.allocations = [{"broker_id": one, "at_ms": START_MS, "ids": 1000, "blocks": 1} for one in brokers]
    drawing = figures.allocations(drawn)
    assert drawing is not None
    assert len({bars["marker"]["color"] for bars in drawing["data"]}) == len(brokers)
