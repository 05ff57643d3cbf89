"use strict";
// Filters, the comparison of two sides, the table of all rows, and the detail of a row. The rows are in #data; whatever has
// data-row="N" on the page shows row N.

const data = JSON.parse(document.getElementById("data").textContent);
const views = [...document.querySelectorAll(".view")].map((view) => view.id);
const at = (id) => document.getElementById(id);
const callOf = (row) => data.calls[row.call];
const shapeOf = (row) => Object.entries(row.shape).map(([name, extent]) => `${name}=${extent}`).join(" ");
// Four significant digits, without an exponent where the number is of a usual size.
const rounded = (value) => {
  if (typeof value !== "number" || value === 0) return String(value);
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e9) return value.toExponential(2);
  return String(size >= 1e4 ? Math.round(value) : Number(value.toPrecision(4)));
};
const time = (us) => (us === undefined ? "–" : rounded(us));

// An element with text or children; nothing is ever parsed as markup.
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) made.setAttribute(key, value);
  made.append(...children.map((child) => child ?? "–"));
  return made;
}

const cell = (text, number) => element("td", number ? { class: "number" } : {}, text);
const link = (index, text) => element("a", { href: `#row-${index}` }, text);

// Filters.
const texts = data.rows.map((row) =>
  [row.suite, row.who, shapeOf(row), row.variant, callOf(row).device, callOf(row).commit, callOf(row).id, row.verdict]
    .join(" ").toLowerCase());

function matches(index) {
  const row = data.rows[index];
  const is = (id, value) => at(id).value === "" || at(id).value === value;
  const words = at("words").value.toLowerCase().split(/\s+/).filter(Boolean);
  return is("suite", row.suite) && is("device", callOf(row).device) && is("who", row.who) &&
    words.every((word) => texts[index].includes(word));
}

function filter() {
  const shown = data.rows.map((_, index) => matches(index));
  for (const mark of document.querySelectorAll("main [data-row]")) mark.toggleAttribute("hidden", !shown[mark.dataset.row]);
  const left = shown.filter(Boolean).length;
  at("count").textContent = `${left} of ${data.rows.length} rows`;
  listRows(shown);
  compare(shown);
}

function listRows(shown) {
  const rows = [];
  for (let index = 0; index < data.rows.length && rows.length < 500; index++) {
    if (!shown[index]) continue;
    const row = data.rows[index];
    rows.push(element("tr", { "data-row": index }, cell(row.suite),
      element("th", { scope: "row" }, link(index, shapeOf(row) || row.variant || "row")), cell(row.variant), cell(row.who),
      cell(callOf(row).device), cell(callOf(row).commit), cell(time(row.median_us), true), cell(time(row.best_us), true),
      cell(row.error?.toExponential(1), true), cell(row.verdict)));
  }
  at("all").tBodies[0].replaceChildren(...rows);
}

// Comparison: a side is a device and a commit.
const keyOf = (row) => JSON.stringify([row.suite, row.who, shapeOf(row), row.variant]);
const sides = new Map();
data.rows.forEach((row, index) => {
  if (row.median === undefined || row.copy_of !== undefined || row.who !== "tilewright" || !callOf(row).device) return;
  const name = `${callOf(row).device}, ${callOf(row).commit ?? "no commit"}`;
  if (!sides.has(name)) sides.set(name, new Map());
  sides.get(name).set(keyOf(row), index);
});

// What a difference is worth: three standard errors of both medians, and 1 %.
function verdict(before, after) {
  const change = after.median - before.median;
  const noise = Math.hypot(before.noise, after.noise);
  if (Math.abs(change) <= 3 * noise || Math.abs(change) <= 0.01 * Math.min(before.median, after.median)) return "within noise";
  return change > 0 ? "regression" : "improvement";
}

function shared(a, b) {
  return [...sides.get(a).keys()].filter((key) => sides.get(b).has(key));
}

function compare(shown) {
  const [before, after] = [at("before").value, at("after").value];
  const order = ["regression", "improvement", "within noise"];
  const found = before && after ? shared(before, after).map((key) => {
    const [first, second] = [sides.get(before).get(key), sides.get(after).get(key)];
    const [a, b] = [data.rows[first], data.rows[second]];
    return { first, second, a, b, change: b.median / a.median - 1, verdict: verdict(a, b) };
  }).filter(({ second }) => shown[second] || matches(second)) : [];
  found.sort((x, y) => order.indexOf(x.verdict) - order.indexOf(y.verdict) || Math.abs(y.change) - Math.abs(x.change));
  const count = (name) => found.filter((one) => one.verdict === name).length;
  at("comparison").textContent = found.length === 0 ? "These two share no row that the filters leave." :
    `${found.length} shared rows: ${count("regression")} slower, ${count("improvement")} faster, ${count("within noise")} within noise.`;
  at("differences").tBodies[0].replaceChildren(...found.map((one) => {
    const kind = { regression: "worse", improvement: "better" }[one.verdict] ?? "";
    return element("tr", { "data-row": one.second }, cell(one.a.suite), element("th", { scope: "row" }, shapeOf(one.a)),
      cell(one.a.variant), element("td", { class: "number" }, link(one.first, time(one.a.median))),
      element("td", { class: "number" }, link(one.second, time(one.b.median))),
      cell(`${one.change > 0 ? "+" : ""}${(one.change * 100).toFixed(1)} %`, true),
      cell(`±${time(Math.hypot(one.a.noise, one.b.noise))}`, true), element("td", { class: kind }, one.verdict));
  }));
}

// Sides that the page looks at for a first comparison, newest first; a folder may have thousands.
const RECENT = 100;

// The sides in the order of their commits; first the newest two of one device whose commits are known and that share most.
function fillSides() {
  const callOfSide = (name) => callOf(data.rows[sides.get(name).values().next().value]);
  const when = (name) => `${callOfSide(name).date.slice(0, 10)} ${callOfSide(name).committed ?? ""}`;
  const keys = new Map([...sides.keys()].map((name) => [name, when(name)]));
  const names = [...sides.keys()].sort((a, b) => keys.get(a).localeCompare(keys.get(b)));
  for (const id of ["before", "after"]) at(id).replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  let best = 0;
  const recent = names.slice(-RECENT);
  recent.forEach((a, i) => recent.slice(i + 1).forEach((b) => {
    const [first, second] = [callOfSide(a), callOfSide(b)];
    const alike = first.device === second.device && first.commit && second.commit;
    const count = shared(a, b).length * (alike ? 1000 : 1);
    if (count >= best) [best, at("before").value, at("after").value] = [count, a, b];
  }));
}

// The detail of a row.
function strip(samples) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "strip");
  svg.setAttribute("viewBox", "0 0 600 44");
  svg.setAttribute("preserveAspectRatio", "none");
  const least = samples.reduce((a, b) => Math.min(a, b), Infinity);
  const most = samples.reduce((a, b) => Math.max(a, b), -Infinity);
  samples.forEach((sample, index) => {
    const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    dot.setAttribute("cx", 8 + 584 * (index / Math.max(1, samples.length - 1)));
    dot.setAttribute("cy", 38 - 32 * ((sample - least) / (most - least || 1)));
    dot.setAttribute("r", 3);
    svg.append(dot);
  });
  return svg;
}

function detail(index) {
  const row = data.rows[index];
  const call = callOf(row);
  const facts = [["shape", shapeOf(row)], ["variant", row.variant], ["by", row.who], ["verdict", row.verdict],
    ["median", row.median_us && `${rounded(row.median_us)} µs`], ["best", row.best_us && `${rounded(row.best_us)} µs`],
    ["noise of the median", row.noise !== undefined && `${rounded(row.noise)} µs`], ["bytes", row.bytes],
    ["operations", row.operations], ["error", row.error && row.error.toExponential(1)], ["power", row.watts && `${rounded(row.watts)} W`],
    ["energy", row.joules && `${rounded(row.joules)} J`],
    ...Object.entries(row.values ?? {}).map(([name, value]) => [name.replaceAll("_", " "), rounded(value)]), ["remark", row.remark], ["printed copy of", row.copy_of],
    ["device", call.device], ["driver", call.driver],
    ["clocks", call.sm_mhz && `${call.sm_mhz} MHz, memory ${call.memory_mhz} MHz`],
    ["power limit", call.power_limit_watts && `${call.power_limit_watts} W`],
    ["commit", call.commit && `${call.commit}${call.clean === false ? ", with changes" : ""}`], ["date", call.date],
    ["peers", call.peers?.join(", ")],
    ["source", call.source && `${call.source}${row.lines ? `, lines ${row.lines.join(" to ")}` : ""}`]];
  const list = element("dl", {});
  for (const [name, value] of facts) {
    if (value !== undefined && value !== false && value !== "") list.append(element("dt", {}, name), element("dd", {}, String(value)));
  }
  const body = [element("h2", {}, row.suite), list, element("h3", {}, "Command"), element("pre", { id: "command" }, call.command || "not known")];
  const samples = row.samples_us ?? [];
  body.push(element("h3", {}, "Samples"));
  body.push(...(samples.length ? [strip(samples), element("p", { id: "samples" }, samples.map(time).join(" "))] :
    [element("p", { class: "none" }, "Only the median was kept.")]));
  const others = data.rows.map((_, other) => other).filter((other) => other !== index && keyOf(data.rows[other]) === keyOf(row));
  if (others.length) {
    body.push(element("h3", {}, "The same measurement elsewhere"), element("ul", {}, ...others.slice(0, 40).map((other) => {
      const its = callOf(data.rows[other]);
      const words = [time(data.rows[other].median_us), "µs,", its.device, its.commit ?? "", its.id].join(" ");
      return element("li", {}, link(other, words));
    })));
  }
  at("detail-body").replaceChildren(...body);
  if (!at("detail").open) at("detail").showModal();
}

// Addresses: #/view, or #row-N over the view that was shown last. A view is no element of that name, so nothing scrolls to it.
let shownView = "overview";
function route() {
  const address = location.hash.slice(1);
  const row = /^row-(\d+)$/.exec(address);
  if (row && data.rows[Number(row[1])]) detail(Number(row[1]));
  else {
    if (at("detail").open) at("detail").close();
    shownView = views.includes(address.slice(1)) ? address.slice(1) : "overview";
  }
  for (const view of views) at(view).classList.toggle("shown", view === shownView);
  for (const tab of document.querySelectorAll("nav a")) {
    if (tab.hash.slice(2) === shownView) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  try { if (theme) localStorage.setItem("theme", theme); } catch { /* a page without storage forgets it */ }
}

at("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  setTheme(now === "dark" ? "light" : "dark");
});
at("detail").addEventListener("close", () => {
  if (location.hash.startsWith("#row-")) location.hash = `/${shownView}`;
});
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^[0-9]$/.test(event.key)) location.hash = `/${views[(Number(event.key) + 9) % 10]}`;
  if (event.key === "/") { event.preventDefault(); at("words").focus(); }
});
for (const form of [at("filters"), at("sides")]) {
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
}
window.addEventListener("hashchange", route);
try { setTheme(localStorage.getItem("theme")); } catch { /* a page without storage begins as the system is */ }
fillSides();
filter();
route();
