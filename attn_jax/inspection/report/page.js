"use strict";
// Puts the page together from its data: the page of a run, or that of a sweep.

function table(rows, cellOf = (cell) => cell) {
  const [head, ...others] = rows;
  return el("div", { class: "scroll" }, el("table", { class: "data" },
    el("thead", {}, el("tr", {}, head.map((cell) => el("th", { scope: "col" }, cell)))),
    el("tbody", {}, others.map((row) => el("tr", {}, row.map((cell, i) => (i ? el("td", {}, cell) : el("th", { scope: "row" }, cellOf(cell)))))))));
}

function section(id, title, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children);
}

function results(data) {
  const several = data.seeds.length > 1;
  const percent = `${Math.round(100 * data.level)} % interval`;
  const seeds = data.seeds.map((seed) => `seed ${seed}${seed === data.chosen ? " (chosen)" : ""}`);
  const head = several ? ["metric", "mean (SD)", percent, ...seeds] : ["metric", "value"];
  const rows = data.rows.map((row) => (several
    ? [row.name, `${number(row.mean, 4)} (${number(row.std, 2)})`, `[${number(row.low, 4)}, ${number(row.high, 4)}]`, ...row.values.map((value) => number(value, 4))]
    : [row.name, number(row.mean, 4)]));
  const notes = data.rows.filter((row) => row.note).map((row) => `${row.name}: ${row.note}`);
  return [table([head, ...rows]), notes.length ? el("p", { class: "note" }, notes.join("; ")) : null];
}

function analysis(data) {
  return [table(data.table), el("p", { class: "note" }, data.of),
    el("dl", { class: "facts" }, data.meanings.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))))];
}

function options(rows) {
  const changed = rows.filter(([, , differs]) => differs).length;
  const body = rows.map(([key, value, differs]) => el("tr", { class: differs ? "changed" : "" }, el("th", { scope: "row" }, key), el("td", {}, value)));
  return el("details", {}, el("summary", {}, `${rows.length} options, ${changed} of them not at their default (bold)`),
    el("div", { class: "scroll" }, el("table", { class: "data config" }, el("tbody", {}, body))));
}

function runPage(data) {
  const explorer = data.examples.items.length ? new Explorer(data.examples, data.results.chosen) : null;
  const leftOut = data.examples.left_out ? el("p", { class: "note" }, `${data.examples.left_out} more examples would have made the file too large.`) : null;
  const parts = [
    section("results", "Results", ...results(data.results)),
    data.curves.length ? section("curves", "Curves", el("div", { class: "charts" }, data.curves.map(lineChart))) : null,
    explorer ? section("attention", "Attention", leftOut, explorer.node) : null,
    data.analysis ? section("analysis", "Analysis", ...analysis(data.analysis)) : null,
    section("config", "Config", options(data.config)),
  ];
  return { parts: parts.filter(Boolean), start: () => explorer && explorer.start() };
}

function sweepPage(data) {
  const linked = (name) => (data.links[name] ? el("a", { href: data.links[name] }, name) : name);
  const parts = [
    section("results", "Results", table(data.table, linked), el("p", { class: "note" }, "Mean and standard deviation (SD) over the seeds; a name leads to the report of the run."),
      data.notes.map((note) => el("p", { class: "note" }, note))),
    data.differences.length ? section("differences", "Differences", table(data.differences, linked), el("p", { class: "note" }, data.note)) : null,
    data.sentence_differences.length ? section("sentences", "Over sentences", table(data.sentence_differences, linked), el("p", { class: "note" }, data.sentence_note)) : null,
    section("figure", "Figure", el("p", { class: "note" }, `Points are seeds; the bar is the ${Math.round(100 * data.level)} % interval of their mean (Student's t); the dashed line is the mean of the first run.`),
      el("div", { class: "charts" }, data.figure.map(intervalChart))),
  ];
  return { parts: parts.filter(Boolean), start: () => {} };
}

const PAGES = { run: runPage, sweep: sweepPage };

function begin() {
  const data = JSON.parse(document.getElementById("data").textContent);
  document.title = `${data.title} – attn_jax`;
  const { parts, start } = PAGES[data.kind](data);
  const facts = (data.facts || []).map(([what, text]) => el("div", {}, el("dt", {}, what), el("dd", {}, text)));
  document.getElementById("head").append(
    el("h1", {}, data.title),
    data.description ? el("p", { class: "lead" }, data.description) : "",
    facts.length ? el("dl", { class: "facts" }, facts) : "",
    el("nav", { "aria-label": "parts of the page" }, parts.map((part) => el("a", { href: `#${part.id}` }, part.querySelector("h2").textContent))),
  );
  document.getElementById("main").replaceChildren(...parts);
  start();
  onResize.forEach((draw) => draw());
}

begin();
