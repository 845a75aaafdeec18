"use strict";
const text = (id) => document.getElementById(id).textContent;
const figures = JSON.parse(text("figures"));
const tint = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function dressed(layout) {
  const axis = { gridcolor: tint("--grid"), linecolor: tint("--line"), zerolinecolor: tint("--line") };
  const narrow = window.innerWidth < 640;
  return { ...layout, autosize: true, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 11 : 12.5, color: tint("--soft") },
    hoverlabel: { bgcolor: tint("--card"), bordercolor: tint("--line"), font: { color: tint("--ink") } },
    xaxis: { ...layout.xaxis, ...axis, nticks: narrow ? 3 : 9 }, yaxis: { ...layout.yaxis, ...axis },
    margin: { ...layout.margin, l: narrow ? 28 : layout.margin.l, r: narrow ? 6 : layout.margin.r } };
}
function draw() {
  for (const [name, figure] of Object.entries(figures)) {
    Plotly.react(name, figure.data, dressed(figure.layout), { responsive: true, displayModeBar: false });
  }
}
async function start() {
  const packed = Uint8Array.from(atob(text("plotly")), (sign) => sign.charCodeAt(0));
  const script = document.createElement("script");
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
  draw();
  const redraw = () => draw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.matchMedia("(max-width: 639px)").addEventListener("change", redraw);
}
start().catch((error) => {
  console.error(error);
  document.querySelectorAll(".plot").forEach((plot) => {
    plot.textContent = "Not drawn: that needs a browser of 2023 or newer. The tables below need none.";
    plot.className = "empty";
    plot.removeAttribute("style");
  });
});
