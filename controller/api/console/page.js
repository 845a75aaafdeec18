// Small helpers for the document. Whatever a member says becomes text, never markup.

export const at = (id) => document.getElementById(id);

export function write(id, text, kind) {
  const element = at(id);
  if (element.textContent !== text) element.textContent = text;
  if (kind !== undefined && element.className !== kind) element.className = kind;
}

export function make(name, content, kind) {
  const element = document.createElement(name);
  if (kind) element.className = kind;
  element.append(...[content ?? ""].flat());
  return element;
}

/** The console of another member: its base URL, if that is one. */
export function consoleOf(base) {
  try {
    const url = new URL("/", base);
    return ["http:", "https:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

export function link(text, href) {
  if (href === null) return text;
  const element = make("a", text);
  element.href = href;
  return element;
}

/** Rows `{key, kind, cells}` of a table, where a cell is `{text, kind, tag, href}`. What stays the same is left alone, so
 * that neither focus nor selection is lost. */
export function fill(body, rows) {
  const before = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const after = rows.map(({ key, kind, cells }) => {
    const row = before.get(String(key)) ?? document.createElement("tr");
    row.dataset.key = key;
    row.className = kind ?? "";
    cells.forEach((cell, place) => fillCell(row, place, cell));
    return row;
  });
  if (after.length !== body.rows.length || after.some((row, place) => row !== body.rows[place])) body.replaceChildren(...after);
}

function fillCell(row, place, { text, kind, tag, href }) {
  const shown = JSON.stringify([text, tag, href]);
  let cell = row.cells[place];
  if (cell === undefined) {
    cell = make(place === 0 ? "th" : "td");
    if (place === 0) cell.scope = "row";
    row.append(cell);
  }
  cell.className = kind ?? "";
  if (cell.dataset.shown === shown) return;
  cell.dataset.shown = shown;
  if (tag !== undefined) cell.replaceChildren(make("span", text, `tag ${tag}`));
  else cell.replaceChildren(href ? link(text, href) : text);
}

export function problemText(error) {
  if (error.code === undefined) return make("div", [make("b", "No answer"), make("span", reasonOf(error))], "problem");
  const parts = [make("b", error.title), make("span", error.detail), make("code", `${error.code}, HTTP ${error.status}`)];
  const leader = error.leader === null ? null : consoleOf(error.leader);
  if (leader !== null) parts.push(make("span", link("the leader's console", leader)));
  return make("div", parts, "problem");
}

/** What is wrong where no answer came. */
export function reasonOf(error) {
  return error.name === "TimeoutError" ? "it did not answer in time" : "it cannot be reached";
}
