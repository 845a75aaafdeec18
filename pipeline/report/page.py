"""Style and script of the report. They load nothing, and the page's policy would not let them."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --page: #f5f6f8; --card: #ffffff; --ink: #1a2230; --soft: #5c6778; --line: #e2e6ec;
  --grid: #e8ebf0; --good: #14804a; --good-back: #e7f5ed; --bad: #c02a2a; --bad-back: #fdecec; --warn: #9a6700;
  --warn-back: #fff4d6; --note: #2f5bc4; --note-back: #e9effc; }
@media (prefers-color-scheme: dark) { :root { --page: #10141b; --card: #181e28; --ink: #e7ebf2; --soft: #98a3b5;
  --line: #2a3240; --grid: #262e3b; --good: #58d08e; --good-back: #12301f; --bad: #ff8480; --bad-back: #3a1a1c;
  --warn: #f0c052; --warn-back: #362a0e; --note: #8fb0ff; --note-back: #1b2745; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.55 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", Arial, sans-serif; -webkit-text-size-adjust: 100%; }
main { max-width: 1180px; margin: 0 auto; padding: 32px 24px 64px; }
header { display: flex; flex-wrap: wrap; justify-content: space-between; align-items: baseline; gap: 4px 24px; }
h1 { font-size: 24px; letter-spacing: -0.015em; margin: 0; font-weight: 650; }
h2 { font-size: 17px; letter-spacing: -0.01em; margin: 0 0 2px; font-weight: 620; }
.soft { color: var(--soft); font-size: 13.5px; margin: 0; }
.verdict { margin: 20px 0; padding: 20px 24px; border-radius: 12px; border: 1px solid currentColor; }
.verdict.clean { color: var(--good); background: var(--good-back); }
.verdict.incomplete { color: var(--warn); background: var(--warn-back); }
.verdict.violations { color: var(--bad); background: var(--bad-back); }
.verdict b { display: block; font-size: 22px; letter-spacing: -0.01em; line-height: 1.3; }
.verdict span { color: var(--ink); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 0 0 20px; }
.figure, section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
.figure { padding: 14px 16px; }
.figure b { display: block; font-size: 23px; font-weight: 640; letter-spacing: -0.02em; line-height: 1.25;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.figure b.long { font-size: 16px; line-height: 1.8; letter-spacing: -0.03em; }
.figure i { font-style: normal; font-size: 13px; color: var(--soft); display: block; }
.figure small { color: var(--soft); font-size: 12px; }
section { padding: 20px 22px; margin: 0 0 16px; }
.empty { color: var(--soft); padding: 18px 0 6px; margin: 0; }
.plot { margin-top: 10px; width: 100%; }
.scroll { overflow-x: auto; margin-top: 12px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; font-weight: 560; color: var(--soft); font-size: 12px; padding: 6px 14px 6px 0;
  border-bottom: 1px solid var(--line); white-space: nowrap; }
td { padding: 8px 14px 8px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.t { white-space: nowrap; font-variant-numeric: tabular-nums; }
.path { font: 12.5px/1.5 ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere;
  min-width: 220px; }
.wide { min-width: 150px; }
.widest { min-width: 330px; overflow-wrap: anywhere; }
.tag { display: inline-block; padding: 1px 9px; border-radius: 99px; font-size: 12px; font-weight: 560; }
.violation { color: var(--bad); background: var(--bad-back); } .warning { color: var(--warn);
  background: var(--warn-back); } .note { color: var(--note); background: var(--note-back); }
.ok { color: var(--good); background: var(--good-back); }
.checks { list-style: none; margin: 12px 0 0; padding: 0; display: grid; gap: 0 32px;
  grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); font-size: 13.5px; }
.checks li { display: flex; gap: 6px; align-items: center; padding: 7px 0; border-bottom: 1px solid var(--line); }
.checks b { font-weight: 560; margin-right: auto; }
footer { color: var(--soft); font-size: 12.5px; margin-top: 24px; }
@media (max-width: 640px) { main { padding: 18px 12px 40px; } section { padding: 16px 14px; border-radius: 10px; }
  .figures { grid-template-columns: 1fr 1fr; gap: 8px; } .figure b { font-size: 19px; } .verdict { padding: 16px; } }
"""

SCRIPT: Final = """
"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function tint(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
function theme() {
  const axis = { gridcolor: tint("--grid"), linecolor: tint("--line"), zerolinecolor: tint("--line") };
  const font = { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: tint("--soft") };
  const hover = { bgcolor: tint("--card"), bordercolor: tint("--line"), font: { color: tint("--ink") } };
  return { axis, font, hover };
}
function dressed(layout) {
  const t = theme();
  const narrow = window.innerWidth < 640;
  return { ...layout, autosize: true, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: t.font,
    hoverlabel: t.hover, xaxis: { ...layout.xaxis, ...t.axis, nticks: narrow ? 4 : 9 },
    yaxis: { ...layout.yaxis, ...t.axis },
    margin: { ...layout.margin, l: narrow ? 44 : layout.margin.l, r: narrow ? 6 : layout.margin.r } };
}
function draw() {
  for (const [name, figure] of Object.entries(figures)) {
    Plotly.react(name, figure.data, dressed(figure.layout), { responsive: true, displaylogo: false,
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], displayModeBar: false });
  }
}
draw();
dark.addEventListener("change", draw);
"""
