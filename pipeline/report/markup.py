"""The report: one HTML file that needs nothing else, neither network nor the tables it was drawn from."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pyspark.sql import SparkSession

from pidkeeper.pipeline.findings import NOTE, VIOLATION, WARNING
from pidkeeper.pipeline.report import figures, page, tables
from pidkeeper.pipeline.report.aggregates import MAX_FINDINGS, Drawn, draw_from
from pidkeeper.pipeline.report.verdict import Verdict, covered_text
from pidkeeper.pipeline.store import Store
from pidkeeper.protocol.ids import MAX_PRODUCER_ID

NAME: Final = "report.html"
MAX_DETAIL_CHARACTERS: Final = 600
"""A cell of foreign text is cut here; the table `findings` has all of it."""
FIGURE_SIGNS: Final = 11
"""A longer figure is set smaller, so that it stays on one line: 2^63 has 25."""
SHOWN_PARTS: Final = 3
"""Names at the end of a path that are shown: member, folder and file. The tables have all of it."""
_POLICY: Final = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_UNSAFE: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}

Cell = tuple[str, str]
"""Class and content, which is HTML."""


def write_report(spark: SparkSession, out: Store, verdict: Verdict) -> None:
    """Draw `report.html` from the tables in the output directory. Raises OSError."""
    read = {name: tables.read(spark, out.place, name) for name in tables.TABLES}
    span = range(verdict.first_ms or 0, (verdict.last_ms or 0) + 1)
    drawn = draw_from(read["blocks"], read["findings"], read["files"], read["batches_daily"], span)
    out.write(NAME, render(verdict, drawn).encode())


def render(verdict: Verdict, drawn: Drawn) -> str:
    """The page. Whatever came from files is escaped."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    plots = {
        "allocations": figures.allocations(drawn),
        "lifetimes": figures.lifetimes(drawn),
        "burndown": figures.burn_down(drawn),
        "anomalies": figures.anomalies(drawn),
    }
    there = {name: figure for name, figure in plots.items() if figure is not None}
    body = "".join([_header(verdict), _banner(verdict), _figures(verdict, drawn), *_sections(verdict, drawn, there)])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>pidkeeper audit: {verdict.verdict}</title><style>{page.STYLE}</style></head>\n"
        f"<body><main>{body}</main>\n"
        f'<script type="application/json" id="figures">{_script_json(there)}</script>\n'
        f"<script>{get_plotlyjs()}</script>\n<script>{page.SCRIPT}</script></body></html>\n"
    )


def _script_json(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for sign, escaped in _UNSAFE.items():
        text = text.replace(sign, escaped)
    return text


def _header(verdict: Verdict) -> str:
    when = f"{figures.moment(verdict.first_ms)} to {figures.moment(verdict.last_ms)} UTC"
    return (
        f'<header><h1>Audit of producer IDs</h1><p class="soft">{when if verdict.first_ms else "no times"}</p></header>'
    )


def _banner(verdict: Verdict) -> str:
    if verdict.verdict == "clean":
        title = "Clean"
        text = "No check found the promise broken: no producer ID twice in what was read."
    elif verdict.verdict == "incomplete":
        title = "Incomplete"
        text = f"Nothing wrong was seen, but not everything was: {_safe('; '.join(verdict.coverage.unseen))}."
    else:
        title = _count(verdict.violations, "violation")
        worst = [name for name, count in verdict.checks.items() if count.violations]
        text = f"Broken by: {_safe(', '.join(worst))}."
    more = [_count(number, word) for number, word in ((verdict.warnings, "warning"), (verdict.notes, "note")) if number]
    if verdict.files_bad:
        more.append(f"{_count(verdict.files_bad, 'malformed file')}, read as far as possible")
    rest = f" Also: {'; '.join(more)}." if more else ""
    covered = f" Covered: {_safe(covered_text(verdict.coverage))}."
    return f'<div class="verdict {verdict.verdict}"><b>{title}</b><span>{text}{covered}{rest}</span></div>'


def _figures(verdict: Verdict, drawn: Drawn) -> str:
    left, how = figures.forecast(drawn)
    used = 0 if verdict.highest_id is None else verdict.highest_id / MAX_PRODUCER_ID
    facts = [
        ("IDs handed out", f"{verdict.ids:,}", f"in {_count(verdict.blocks, 'block')}"),
        ("highest ID", "-" if verdict.highest_id is None else f"{verdict.highest_id:,}", f"{used:.2g} of the space"),
        ("ID space lasts", left, how),
        (
            "brokers",
            f"{verdict.brokers:,}",
            f"{_count(len(verdict.watermark.log_offsets), 'member')} of the quorum read",
        ),
        ("batches of Kafka", f"{verdict.batches:,}", f"in {_count(verdict.watermark.partitions, 'partition')}"),
        ("files read", f"{verdict.files_read:,}", f"{verdict.files_bad:,} malformed"),
    ]
    cells = "".join(
        f'<div class="figure"><i>{name}</i><b{" class=long" * (len(value) > FIGURE_SIGNS)}>{value}</b>'
        f"<small>{note}</small></div>"
        for name, value, note in facts
    )
    return f'<div class="figures">{cells}</div>'


def _sections(verdict: Verdict, drawn: Drawn, there: dict[str, Any]) -> Iterable[str]:
    per_bar = "" if drawn.blocks_per_bar == 1 else f" A bar stands for {drawn.blocks_per_bar:,} blocks in a row."
    left, how = figures.forecast(drawn)
    lasts = "" if left == "-" else f"; what is left lasts {left} {how}"
    timeless = f" {_count(drawn.timeless, 'finding')} without a time: see the table." if drawn.timeless else ""
    yield _section("Checks", "What was looked for, and what was found.", _checks(verdict))
    yield _plot("anomalies", "Findings over time", f"Larger signs are more findings.{timeless}", there)
    yield _plot(
        "allocations",
        "Allocation per broker",
        f"Producer IDs allocated in each interval of {figures.interval(drawn.bucket_ms)}, stacked by broker.",
        there,
    )
    yield _plot(
        "lifetimes",
        "Who held which range when",
        "From a block's allocation to the next one of the same broker; hatched: the newest block, still in use."
        f"{per_bar}",
        there,
    )
    yield _plot(
        "burndown",
        "Burn-down of the ID space",
        f"Highest ID handed out; dotted: on at the same rate. There are 2⁶³ IDs{lasts}.",
        there,
    )
    yield _section("Findings", _findings_note(verdict, drawn), _findings(drawn))
    yield _section("Malformed files", "Read as far as possible; what follows the byte may be missing.", _bad(drawn))
    yield _section("What was read", _watermark_note(verdict), _sources(drawn) + _topics(drawn))
    yield (
        f"<footer>pidkeeper {_safe(verdict.pidkeeper_version)}, tables of version {verdict.schema_version}, audited in "
        f"{verdict.wall_seconds:,.1f} s. All times in UTC.</footer>"
    )


def _section(title: str, note: str, content: str) -> str:
    return f'<section><h2>{title}</h2><p class="soft">{note}</p>{content}</section>'


def _plot(name: str, title: str, note: str, there: dict[str, Any]) -> str:
    if name in there:
        height = there[name]["layout"]["height"]
        return _section(title, note, f'<div class="plot" id="{name}" style="min-height:{height}px"></div>')
    return _section(title, note, '<p class="empty">Nothing to draw.</p>')


def _checks(verdict: Verdict) -> str:
    cells, none = [], '<span class="tag ok">nothing</span>'
    for name, count in verdict.checks.items():
        found = ((VIOLATION, count.violations), (WARNING, count.warnings), (NOTE, count.notes))
        tags = " ".join(f'<span class="tag {kind}">{_count(number, kind)}</span>' for kind, number in found if number)
        cells.append(f"<li><b>{_safe(name)}</b>{tags or none}</li>")
    return f'<ul class="checks">{"".join(cells)}</ul>' if cells else '<p class="empty">No check ran.</p>'


def _findings_note(verdict: Verdict, drawn: Drawn) -> str:
    total = verdict.violations + verdict.warnings + verdict.notes
    if total > len(drawn.findings):
        return f"The worst {MAX_FINDINGS} of {total:,}; the Parquet table has all."
    return "Worst first. The byte is where to look in the file."


def _findings(drawn: Drawn) -> str:
    rows = [
        [
            ("", f'<span class="tag {_safe(row["severity"])}">{_safe(row["severity"])}</span>'),
            ("t", _safe(row["check"])),
            ("t", figures.moment(row["timestamp_ms"])),
            ("wide", _safe(row["subject"])),
            ("widest", _safe(row["detail"])),
            ("path", _place(row["file"], row["position"], row["member"])),
        ]
        for row in drawn.findings
    ]
    return _table(("", "Check", "Time", "Subject", "What and why", "Where"), rows, "No findings.")


def _bad(drawn: Drawn) -> str:
    rows = [
        [
            ("path", _place(row["file"], row["first_position"], row["member"])),
            ("t", _safe(row["kinds"])),
            ("n", f"{row['problems']:,}"),
            ("wide", _safe(row["detail"])),
        ]
        for row in drawn.bad_files
    ]
    return _table(("File", "Kind", "#Problems", "First problem"), rows, "Every file was whole.")


def _watermark_note(verdict: Verdict) -> str:
    reach = ", ".join(f"member {_safe(name)} to {offset:,}" for name, offset in verdict.watermark.log_offsets.items())
    again = f" {_count(verdict.files_read_anew, 'file')} read anew." if verdict.files_read_anew else ""
    return f"Log offsets covered: {reach or 'none'}.{again}"


def _sources(drawn: Drawn) -> str:
    rows = [
        [
            ("t", _safe(row["source"])),
            ("path", _safe(row["member"])),
            ("n", f"{row['files']:,}"),
            ("n", _bytes(row["bytes"])),
            ("n", _number(row["rows"])),
            ("n", f"{row['bad']:,}"),
        ]
        for row in drawn.sources
    ]
    return _table(("Kind", "Member", "#Files", "#Size", "#Rows", "#Malformed"), rows, "No files.")


def _topics(drawn: Drawn) -> str:
    rows = [
        [
            ("path", _safe(row["topic"])),
            ("n", f"{row['partitions']:,}"),
            ("n", _number(row["batches"])),
            ("n", _number(row["records"])),
            ("t", f"{figures.moment(row['first_ms'])} to {figures.moment(row['last_ms'])}"),
        ]
        for row in drawn.partitions
    ]
    return _table(("Topic", "#Partitions", "#Batches", "#Records", "Time"), rows, "") if rows else ""


def _table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], empty: str) -> str:
    """A name that starts with # heads a column of numbers."""
    if not rows:
        return f'<p class="empty">{empty}</p>'
    heads = "".join(
        f'<th class="n">{name[1:]}</th>' if name.startswith("#") else f"<th>{name}</th>" for name in columns
    )
    lines = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{content}</td>' for kind, content in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'


def _place(file: str | None, position: int | None, member: str | None) -> str:
    if file is None:
        return "-" if member is None else f"member {_safe(member)}"
    parts = file.rsplit("/", SHOWN_PARTS)
    shown = file if len(parts) <= SHOWN_PARTS or not parts[0] else "…/" + "/".join(parts[1:])
    byte = "" if position is None else f", byte {position:,}"
    return f'<span title="{_safe(file)}">{_safe(shown)}</span>{byte}'


def _safe(text: str | None) -> str:
    if text is None:
        return "-"
    cut = text if len(text) <= MAX_DETAIL_CHARACTERS else text[:MAX_DETAIL_CHARACTERS] + "…"
    return html.escape(cut)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" + ("" if number == 1 else "es" if word.endswith("h") else "s")


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _bytes(value: int | None) -> str:
    if value is None:
        return "-"
    for size, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= size:
            return f"{value / size:,.1f} {name}"
    return f"{value} B"
