"""The page: it draws in a real browser and complains of nothing, and foreign text stays text."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.verdict import BadFile, CheckCount, Coverage, Verdict, Watermark
from pidkeeper.protocol.ids import MAX_PRODUCER_ID

pytest.importorskip("duckdb")
pytest.importorskip("jinja2")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
graph_objects = pytest.importorskip("plotly.graph_objects")
offline = pytest.importorskip("plotly.offline")
aggregates = pytest.importorskip("pidkeeper.pipeline.report.aggregates")
figures = pytest.importorskip("pidkeeper.pipeline.report.figures")
plotly_js = pytest.importorskip("pidkeeper.pipeline.report.plotly_js")
draw = pytest.importorskip("pidkeeper.pipeline.report.draw").draw
render = pytest.importorskip("pidkeeper.pipeline.report.render").render
parquet = pytest.importorskip("pidkeeper.pipeline.files.parquet")
tables = pytest.importorskip("pidkeeper.pipeline.report.tables")

ROOT: Final = Path(__file__).parents[4]
MAX_BYTES: Final = 1_500_000
HOSTILE: Final = (
    "</script><script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\">\u2028{{ 7*7 }}"
)
START_MS: Final = 1_700_000_000_000
BROWSER: Final = shutil.which("chromium") or shutil.which("google-chrome")
BROWSER_SECONDS: Final = 60.0
FLAGS: Final = (
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


def full() -> Any:
    finding = {"check": "overlap", "severity": "violation", "subject": HOSTILE, "detail": HOSTILE}
    block = {"broker_id": 1, "first_id": 0, "last_id": 999, "blocks": 1}
    place = {"member": HOSTILE, "file": HOSTILE}
    return aggregates.Drawn(
        seen_ms=(START_MS, START_MS + 40_000),
        bucket_ms=10_000,
        allocations=[{"broker_id": broker, "at_ms": START_MS, "ids": 1000, "blocks": 1} for broker in (-2, 1)],
        lifetimes=[block | {"from_ms": START_MS, "to_ms": START_MS + 9000, "next_ms": None}],
        bar_ms=0,
        curve=[{"last_ms": START_MS + at * 10_000, "highest_id": at * 1000 + 999} for at in range(4)],
        anomalies=[finding | {"findings": 3, "first_ms": START_MS}],
        timeless=0,
        findings=[finding | place | {"timestamp_ms": START_MS, "position": 48}],
        bad_files=[place | {"kinds": "torn", "problems": 1, "first_position": 5, "detail": HOSTILE}],
        sources=[{"source": "archive", "member": HOSTILE, "files": 1, "bytes": 5, "rows": 4, "bad": 1}],
        partitions=[
            {"topic": HOSTILE, "partitions": 1, "batches": 1, "records": 1, "first_ms": None, "last_ms": START_MS}
        ],
    )


def empty() -> Any:
    return aggregates.Drawn((0, 0), 1000, [], [], 0, [], [], 0, [], [], [], [])


def fullest() -> Any:
    """As many rows as may be fetched of each kind, of the length that they have."""
    brokers, detail = range(aggregates.MAX_BROKERS), "both were given these IDs, at offsets 1 and 2; " * 6
    file = "/var/lib/pidkeeper/cluster/member-1/archive/00000000000000000000-00000000000000000099.arc"
    finding = {"check": "replicas_disagree", "severity": "violation", "subject": "IDs 1,000,000 to 1,000,999"}
    block = {"first_id": 10**9, "last_id": 10**9 + 999, "from_ms": START_MS, "to_ms": START_MS + 1, "next_ms": None}
    cell = {"at_ms": START_MS, "ids": 10**7, "blocks": 10**4}
    bad = {"file": file, "member": "1", "kinds": "checksum, torn", "problems": 9, "first_position": 10**6}
    topic = {"partitions": 12, "batches": 10**6, "records": 10**8, "first_ms": START_MS, "last_ms": START_MS}
    return msgspec.structs.replace(
        full(),
        allocations=[cell | {"broker_id": one} for one in brokers for _ in range(aggregates.MAX_BUCKETS)],
        lifetimes=[block | {"broker_id": one, "blocks": 9} for one in brokers for _ in range(80)],
        anomalies=[finding | {"findings": 99, "first_ms": START_MS}] * aggregates.MAX_ANOMALIES,
        findings=[finding | {"detail": detail, "timestamp_ms": 1, "member": "1", "file": file, "position": 10**6}]
        * aggregates.MAX_FINDINGS,
        bad_files=[bad | {"detail": detail}] * aggregates.MAX_BAD_FILES,
        partitions=[topic | {"topic": "payments.settled.eu-central"}] * aggregates.MAX_BAD_FILES,
    )


def in_browser(page: str, directory: Path) -> tuple[str, list[str]]:
    """The document after its scripts ran, and what the console shows."""
    if BROWSER is None:
        pytest.skip("no chromium")
    file = directory / "report.html"
    file.write_text(page, encoding="utf-8")
    command = [BROWSER, *FLAGS, f"--user-data-dir={directory / 'profile'}", file.as_uri()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=BROWSER_SECONDS, check=True)
    return ran.stdout, [line for line in ran.stderr.splitlines() if "CONSOLE" in line]


def banner(page: str) -> str:
    found = re.search(r'<div class="verdict (.*?)</div>', page, re.DOTALL)
    assert found is not None
    return " ".join(re.sub(r"<[^>]*>", " ", found[1]).split())


def test_a_browser_draws_every_figure_and_complains_of_nothing(tmp_path: Path) -> None:
    document, console = in_browser(render(verdict(), full()), tmp_path)
    assert console == []
    for name in ("allocations", "lifetimes", "burndown", "anomalies"):
        assert re.search(rf'<div class="[^"]*js-plotly-plot"[^>]*id="{name}"', document)
    assert document.count('class="main-svg"') >= 4
    assert len(re.findall(r'<g class="trace bars"', document)) == 3
    assert len(re.findall(r'<g class="trace scatter ', document)) == 3
    assert "<title>pidkeeper audit: violations</title>" in document


def test_a_browser_shows_an_audit_of_nothing(tmp_path: Path) -> None:
    nothing = verdict(verdict="clean", violations=0, checks={}, files_bad=0, first_ms=None, highest_id=None)
    document, console = in_browser(render(nothing, empty()), tmp_path)
    assert console == []
    assert document.count("Nothing to draw.") == 4
    for text in ("No findings.", "No files.", "No check ran.", "Every file was whole.", "no times"):
        assert text in document


def test_a_browser_that_cannot_unpack_the_script_says_so(tmp_path: Path) -> None:
    document, console = in_browser(render(verdict(), full()).replace(plotly_js.packed(), "AAAA"), tmp_path)
    assert len(console) == 1
    assert document.count("Not drawn: that needs a browser of 2023 or newer.") == 4 + 1  # and in the script itself
    assert "main-svg" not in document


def test_the_policy_lets_no_other_script_run(tmp_path: Path) -> None:
    page = render(verdict(), full()).replace("</main>", "<script>document.title='stolen'</script></main>")
    document, console = in_browser(page, tmp_path)
    assert "<title>pidkeeper audit: violations</title>" in document
    assert len(console) == 1
    assert "Content Security Policy" in console[0]
    assert document.count('class="main-svg"') >= 4


def test_foreign_text_is_escaped_and_nothing_is_loaded() -> None:
    page = render(verdict(coverage=Coverage([HOSTILE], 1, 0, 9), pidkeeper_version=HOSTILE), full())
    own, _, rest = page.partition('<script type="application/json" id="figures">')
    data, _, scripts = rest.partition("</script>")
    assert "<img" not in own + data
    assert "<script" not in own + data
    assert own.count("&lt;img src=x") == 12  # every place where foreign text is shown
    assert "{{ 7*7 }}" in own
    assert not set(data) & set("<>&'\u2028\u2029")
    assert json.loads(data)["anomalies"]["data"][0]["customdata"][0].startswith("3: &lt;/script&gt;")
    assert len(re.findall("<script", scripts)) == 2
    assert not re.search(r'(src|href)="(?!data:)', own)
    assert "default-src 'none'" in own


COVERED: Final = "Covered: member 1 of a quorum with 1 voters, log offsets 0 to 8."
CLEAN: Final = f"Clean No check found the promise broken: no producer ID twice in what was read. {COVERED}"
INCOMPLETE: Final = (
    "Incomplete Nothing wrong was seen, but not everything was: no log of member 2; a &lt; b. Covered: no member of "
    "the quorum. Also: 2 notes; 1 malformed file, read as far as possible."
)
VIOLATIONS: Final = (
    f"1,200 violations Broken by: a, b. {COVERED} Also: 1 warning; 1 malformed file, read as far as possible."
)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"verdict": "clean", "violations": 0, "files_bad": 0}, CLEAN),
        (
            {"verdict": "incomplete", "notes": 2, "coverage": Coverage(unseen=["no log of member 2", "a < b"])},
            INCOMPLETE,
        ),
        (
            {"violations": 1200, "warnings": 1, "checks": {n: CheckCount(int(n != "gap")) for n in ("a", "gap", "b")}},
            VIOLATIONS,
        ),
    ],
    ids=["clean", "incomplete", "violations"],
)
def test_the_banner_tells_the_verdict_and_what_was_covered(changes: dict[str, Any], says: str) -> None:
    told = verdict(**changes)
    assert banner(render(told, full())) == f'{told.verdict}"> {says}'


def test_figures_and_cells_are_written_for_the_eye() -> None:
    deep = "/a/b/member-1/archive/7.arc"
    row = {"check": "gap", "severity": "note", "subject": None, "detail": "x" * 2000, "timestamp_ms": None}
    finding = row | {"member": "1", "file": deep, "position": 1_234_567}
    drawn = msgspec.structs.replace(full(), findings=[finding, finding | {"file": None}], bar_ms=900_000, timeless=2)
    drawn.sources[0] |= {"bytes": 3 << 20, "rows": None}
    page = render(verdict(notes=1000, highest_id=MAX_PRODUCER_ID), drawn)
    assert f'<span title="{deep}">…/member-1/archive/7.arc</span>, byte 1,234,567' in page
    assert '<td class="path">member 1</td>' in page
    assert f'<td class="widest">{"x" * 600}…</td>' in page
    assert '<td class="n">3.0 MiB</td><td class="n">-</td>' in page
    assert "<b>9,223,372,036,854,775,807</b><small>1 of the space</small>" in page
    assert "The worst 2 of 1,001; the Parquet table has all." in page
    assert "A bar stands for a broker&#39;s blocks of 15 min." in page
    assert "2 findings without a time: see the table." in page


def test_the_file_is_small_however_much_was_found() -> None:
    assert len(render(verdict(), full()).encode()) < 600_000
    assert len(render(verdict(violations=10**6), fullest()).encode()) < MAX_BYTES


def test_what_is_left_of_plotly_js_is_whole_and_anothers_bundle_is_left_alone() -> None:
    whole = offline.get_plotlyjs()
    cut = plotly_js.script()
    assert len(cut) < len(whole) / 4
    assert cut.startswith(whole[:1000])
    assert cut.endswith(whole[-1000:])
    assert plotly_js.cut("var Plotly = {};") == "var Plotly = {};"
    assert plotly_js.cut(whole.replace(".register([", ".enlist([")) == whole.replace(".register([", ".enlist([")


def test_the_page_is_drawn_from_arrow_tables_and_files(tmp_path: Path) -> None:
    given = [{"first_id": at * 1000, "last_id": at * 1000 + 999, "broker_id": 7, "timestamp_ms": at} for at in (1, 2)]
    schema = tables.TABLES["blocks"]
    for number, block in enumerate(given):
        pq.write_table(pa.Table.from_pylist([block], schema=schema), tmp_path / f"{number}.parquet")
    there = {name: tables.TABLES[name].empty_table() for name in tables.WRITTEN}
    blocks = parquet.ParquetFiles([locate(tmp_path / f"{number}.parquet") for number in (0, 1)], schema)
    page = draw(verdict(), there, blocks)
    plots = json.loads(page.partition('id="figures">')[2].partition("</script>")[0])
    assert set(plots) == {"allocations", "burndown", "lifetimes"}
    assert plots["burndown"]["data"][0]["y"] == [2999]
    assert [bar["name"] for bar in plots["lifetimes"]["data"]] == ["broker 7"]


def test_the_page_is_made_from_a_zip_too(tmp_path: Path) -> None:
    """As Spark passes packages on, and as a wheel on the path is."""
    with zipfile.ZipFile(tmp_path / "pidkeeper.zip", "w") as archive:
        archive.write(ROOT / "pidkeeper" / "__init__.py", "pidkeeper/__init__.py")
        for file in (
            file for package in ("pipeline", "protocol", "snapshots") for file in (ROOT / package).rglob("*.*")
        ):
            archive.write(file, Path("pidkeeper") / file.relative_to(ROOT))
    (tmp_path / "made.json").write_bytes(msgspec.json.encode([verdict(), full()]))
    code = (
        "import sys, msgspec; sys.path.insert(0, 'pidkeeper.zip')\n"
        "from pidkeeper.pipeline.report.render import Drawn, Verdict, __file__, render\n"
        "assert 'pidkeeper.zip' in __file__\n"
        "sys.stdout.write(render(*msgspec.json.decode(open('made.json').read(), type=tuple[Verdict, Drawn])))"
    )
    command = [sys.executable, "-I", "-X", "utf8", "-c", code]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == render(verdict(), full())


def test_the_forecast_is_what_is_left_at_the_rate_that_was_seen() -> None:
    drawn = full()
    drawn.curve[-1]["highest_id"] = 3_000_999
    years = (MAX_PRODUCER_ID - 3_000_999) / 100_000 / (365.25 * 86_400)
    assert figures.forecast(drawn) == (f"{years / 1e6:.1f} million years", "at 100,000 IDs a second")
    assert figures.forecast(empty()) == ("-", "no blocks with a time")
    drawn.curve = drawn.curve[:1]
    assert figures.forecast(drawn) == ("-", "one moment only: no rate")


def test_steps_and_moments_are_written_as_people_do() -> None:
    assert [figures.interval(step) for step in (500, 1000, 900_000, 7_200_000)] == ["500 ms", "1 s", "15 min", "2 h"]
    assert [figures.moment(at) for at in (None, START_MS, -1, 10**18)] == [
        "-",
        "2023-11-14 22:13:20",
        "-1",
        f"{10**18}",
    ]


def test_no_two_brokers_have_one_colour() -> None:
    brokers = (aggregates.OTHERS, *range(aggregates.MAX_BROKERS))
    drawn = full()
    drawn.allocations = [{"broker_id": one, "at_ms": START_MS, "ids": 1000, "blocks": 1} for one in brokers]
    figure = figures.allocations(drawn)
    assert [one["name"] for one in figure["data"]] == [*(f"broker {one}" for one in brokers[1:]), "other brokers"]
    colours = [one["marker"].get("color") for one in figure["data"]]
    assert colours == [None] * aggregates.MAX_BROKERS + [figures.OTHERS_COLOUR]
    assert len({*figure["layout"]["colorway"], figures.OTHERS_COLOUR}) == len(brokers)


@pytest.mark.parametrize("name", ["anomalies", "allocations", "lifetimes", "burn_down"])
def test_the_figures_have_nothing_that_plotly_does_not_know(name: str) -> None:
    """plotly's own classes refuse what plotly.js would pass over."""
    for drawn in (full(), fullest()):
        figure = getattr(figures, name)(drawn)
        taken = graph_objects.Figure(figure).to_plotly_json()
        assert [one["type"] for one in taken["data"]] == [one["type"] for one in figure["data"]] != []
    assert getattr(figures, name)(empty()) is None
