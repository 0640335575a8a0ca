"use strict";
// The figure of the page "The formula": choices, the fit with the weights of one query, and all weights as a heat map.

(() => {
  const root = document.getElementById("formula");
  if (!root) return;
  const formula = window.attnFormula;
  const { keys, values, queries, truth, SCORES, NORMALIZERS, READINGS, dot, sum } = formula;

  const WALK = [
    ["Mean", { score: "constant", normalize: "softmax" }, "Equal scores are equal weights: every query reads the mean of all values."],
    ["Boxcar", { score: "boxcar", normalize: "kernel_sum", width: 0.5 }, "A moving mean: keys nearer than h count, all the same, and the others do not."],
    ["Kernel", { score: "gaussian", normalize: "kernel_sum", width: 0.3 }, "The nearer a key, the more it counts: the regression of Nadaraya and Watson (1964). Try other widths h."],
    ["Softmax", { score: "dot", normalize: "softmax", temperature: 0.3, query: 35 }, "A product does not know what is near: the keys at the end have the largest weights, though the query is not there."],
    ["Sparsemax", { score: "gaussian", normalize: "sparsemax", width: 1 }, "The same kernel at h = 1, but most weights are exactly 0. Compare with kernel sum."],
    ["Line", { score: "gaussian", normalize: "kernel_sum", width: 1, read: "line", query: 3 }, "A line is fitted under the weights of the kernel at h = 1. As weights of the values, those of far keys are negative (orange)."],
    ["Sample", { score: "gaussian", normalize: "kernel_sum", width: 0.3, read: "sample" }, "Each query reads one key, drawn by its weights. The mean of many draws (blue) goes to the kernel's fit."],
  ];
  const CONTRAST = 0.6;  // power of a share of the largest weight, so that small weights can be seen
  const SLIDERS = { width: "width h", temperature: "temperature" };
  const [LEAST, MOST, STEPS] = [0.05, 5, 80];

  const state = { query: 23, note: "", draws: 0, totals: [] };
  const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value);
    }
    node.append(...children.flat());
    return node;
  }

  const text = (value, digits = 3) => String(Number(value.toPrecision(digits))).replace("-", "−");
  const fixed = (value, digits = 2) => value.toFixed(digits).replace(/^-(?=0\.?0*$)/, "").replace("-", "−");

  // Choices.

  function select(label, name, table) {
    const node = html("select", { name, onchange: () => choose({ [name]: node.value }) });
    for (const [value, entry] of Object.entries(table)) node.append(html("option", { value }, entry.text));
    controls[name] = node;
    return html("label", {}, html("span", {}, label), node);
  }

  function slider(name) {
    const node = html("input", { type: "range", name, min: 0, max: STEPS, oninput: () => choose({ [name]: valueAt(node.value) }) });
    controls[name] = node;
    return html("label", {}, html("span", {}, SLIDERS[name], " ", (controls[`${name}_text`] = html("output", {}))), node);
  }

  const valueAt = (place) => Number((LEAST * (MOST / LEAST) ** (place / STEPS)).toPrecision(2));
  const placeOf = (value) => Math.round((STEPS * Math.log(value / LEAST)) / Math.log(MOST / LEAST));

  /** Takes over what the user chose; a normalizer or reading that does not go with it is replaced. */
  function choose(changes, note = "") {
    Object.assign(state, { note, draws: 0 }, changes);
    if (SCORES[state.score].compact && formula.refusal({ ...state, read: "expectation" })) state.normalize = "kernel_sum";
    if (formula.refusal(state)) state.read = "expectation";
    show();
  }

  function take(preset) {
    const [, choice, note] = WALK[preset];
    choose({ width: 0.5, temperature: 1, read: "expectation", query: 23, ...choice }, note);
    presets.forEach((button, i) => button.setAttribute("aria-pressed", String(i === preset)));
  }

  // The chart: points, curve and fit; below them the weights of one query.

  const CHART = { width: 440, height: 350, left: 42, right: 434, top: 8, bottom: 220, strip: 250, floor: 324 };
  const x = (value) => CHART.left + (value / 5) * (CHART.right - CHART.left);
  const y = (value) => CHART.bottom - ((value + 2) / 9) * (CHART.bottom - CHART.top);
  const path = (heights) => queries.map((query, i) => `${i ? "L" : "M"}${x(query).toFixed(1)} ${y(heights[i]).toFixed(1)}`).join("");

  const parts = {
    fit: svg("path", { class: "fit" }),
    mean: svg("path", { class: "average" }),
    cursor: svg("line", { class: "cursor", y1: CHART.top, y2: CHART.floor }),
    here: svg("circle", { class: "here", r: 5 }),
    base: svg("line", { class: "base", x1: CHART.left, x2: CHART.right }),
    most: svg("text", { x: CHART.left - 5, "text-anchor": "end" }),
    zero: svg("text", { x: CHART.left - 5, "text-anchor": "end" }, "0"),
  };
  const points = keys.map((key, i) => svg("circle", { cx: x(key).toFixed(1), cy: y(values[i]).toFixed(1), r: 4.5 }));
  const bars = keys.map((key) => svg("rect", { x: (x(key) - 2).toFixed(1), width: 4 }));

  function chart() {
    const ticks = [0, 1, 2, 3, 4, 5].map((tick) => svg("text", { x: x(tick), y: CHART.height - 8, "text-anchor": "middle" }, text(tick)));
    const levels = [-2, 0, 2, 4, 6].map((level) => [
      svg("line", { class: "grid", x1: CHART.left, x2: CHART.right, y1: y(level), y2: y(level) }),
      svg("text", { x: CHART.left - 5, y: y(level) + 4, "text-anchor": "end" }, text(level)),
    ]);
    const [width, height] = [CHART.right - CHART.left + 6, CHART.bottom - CHART.top + 12];
    const box = svg("rect", { x: CHART.left, y: CHART.top - 6, width, height });
    const curve = svg("path", { class: "truth", d: path(queries.map(truth)) });
    const inside = svg("g", { "clip-path": "url(#formula-clip)" }, curve, parts.mean, parts.fit, parts.here);
    const range = { role: "slider", "aria-label": "query", "aria-valuemin": queries[0], "aria-valuemax": queries.at(-1) };
    const name = svg("text", { class: "name", x: CHART.left + 4, y: CHART.strip - 8 }, "weights of the query");
    const lines = svg("g", {}, levels.flat(), ticks, name, parts.base, parts.most, parts.zero, parts.cursor);
    const node = svg(
      "svg",
      { viewBox: `0 0 ${CHART.width} ${CHART.height}`, tabindex: 0, onkeydown: press, ...range },
      ...[svg("clipPath", { id: "formula-clip" }, box), lines],
      ...[svg("g", { class: "points" }, points), svg("g", { class: "bars" }, bars), inside],
    );
    const point = (event) => {
      const box = node.getBoundingClientRect();
      const place = ((event.clientX - box.left) / box.width) * CHART.width;
      move(Math.round(((place - CHART.left) / (CHART.right - CHART.left)) * 50));
    };
    node.addEventListener("pointermove", point);
    node.addEventListener("pointerdown", point);
    controls.chart = node;
    return node;
  }

  // The heat map: a row for each query, a column for each key.

  const MAP = { width: 280, height: 350, left: 30, top: 8, cell: 6, row: 6.32 };
  const cells = queries.map((_, i) => keys.map((_, j) => svg("rect", {
    x: MAP.left + j * MAP.cell, y: (MAP.top + i * MAP.row).toFixed(2), width: MAP.cell, height: MAP.row,
  })));
  const frame = svg("rect", { class: "row", x: MAP.left - 1, width: keys.length * MAP.cell + 2, height: MAP.row + 1 });

  function heatMap() {
    const low = MAP.top + queries.length * MAP.row;
    const width = keys.length * MAP.cell;
    const back = svg("rect", { class: "back", x: MAP.left, y: MAP.top, width, height: low - MAP.top });
    const label = (x, y, anchor, words) => svg("text", { x, y, "text-anchor": anchor }, words);
    const rows = [0, 1, 2, 3, 4].map((tick) => label(MAP.left - 6, MAP.top + (tick * 10 + 0.5) * MAP.row + 4, "end", tick));
    const columns = [
      label(MAP.left, low + 16, "start", text(keys[0], 2)),
      label(MAP.left + width / 2, low + 16, "middle", `${keys.length} keys`),
      label(MAP.left + width, low + 16, "end", text(keys.at(-1), 2)),
    ];
    const range = { role: "img", "aria-label": "the weights of all queries and keys" };
    const node = svg(
      "svg",
      { viewBox: `0 0 ${MAP.width} ${MAP.height}`, ...range },
      ...[back, rows, columns, svg("g", { class: "cells" }, cells.flat()), frame],
    );
    const point = (event) => {
      const box = node.getBoundingClientRect();
      move(Math.floor((((event.clientY - box.top) / box.height) * MAP.height - MAP.top) / MAP.row));
    };
    node.addEventListener("pointermove", point);
    node.addEventListener("pointerdown", point);
    return node;
  }

  // Moving the query.

  function move(query) {
    const next = Math.min(queries.length - 1, Math.max(0, query));
    if (next === state.query) return;
    state.query = next;
    showQuery();
  }

  function press(event) {
    const last = queries.length - 1;
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10, Home: -last, End: last };
    if (!(event.key in steps) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    move(state.query + steps[event.key]);
  }

  // Drawing.

  function drawKeys() {
    state.drawn = state.weights.map((row) => formula.sample(row, Math.random()));
    state.contexts = state.drawn.map((key) => (key < 0 ? 0 : values[key]));
    state.totals = state.contexts.map((context, i) => context + (state.draws ? state.totals[i] : 0));
    state.draws += 1;
  }

  function show() {
    state.weights = formula.weights(state);
    state.contexts = state.weights.map((row) => dot(row, values));
    state.drawn = null;
    if (state.read === "sample") drawKeys();
    showControls();
    showAll();
  }

  function showControls() {
    for (const name of ["score", "normalize", "read"]) controls[name].value = state[name];
    const refused = (changes) => formula.refusal({ ...state, ...changes }) !== "";
    for (const option of controls.normalize.options) option.disabled = refused({ normalize: option.value, read: "expectation" });
    for (const option of controls.read.options) option.disabled = refused({ read: option.value });
    for (const name of Object.keys(SLIDERS)) {
      controls[name].value = placeOf(state[name]);
      controls[name].disabled = !SCORES[state.score][name] || state.normalize === "uniform";
      controls[`${name}_text`].textContent = controls[name].disabled ? "–" : text(state[name]);
    }
    controls.again.disabled = state.read !== "sample";
    root.classList.toggle("drawing", state.read === "sample");
    presets.forEach((button) => button.setAttribute("aria-pressed", "false"));
    note.textContent = state.note;
    code.textContent = formula.program(state);
  }

  const opacity = (weight) => ((Math.abs(weight) / state.most) ** CONTRAST).toFixed(3);

  function showAll() {
    const all = state.weights.flat();
    state.most = all.reduce((most, weight) => Math.max(most, Math.abs(weight)), 0) || 1;
    state.low = all.reduce((low, weight) => Math.min(low, weight), 0);
    cells.flat().forEach((cell, i) => fill(cell, { class: all[i] < 0 ? "less" : "more", "fill-opacity": opacity(all[i]) }, []));
    const averages = state.draws > 1 ? state.totals.map((total) => total / state.draws) : null;
    parts.fit.setAttribute("d", path(state.contexts));
    parts.mean.setAttribute("d", averages ? path(averages) : "");
    numbers.distance.textContent = text(formula.distance(state.contexts));
    numbers.draws.textContent = averages ? `, of the mean of ${state.draws} draws ${text(formula.distance(averages))}` : "";
    const negative = state.low < 0 ? "; orange: negative" : "";
    legend.textContent = `W: a row for each query, a column for each key. Strongest colour: ${text(state.most, 2)}${negative}`;
    showQuery();
  }

  function showQuery() {
    const row = state.weights[state.query];
    const query = queries[state.query];
    const context = state.contexts[state.query];
    const drawn = state.drawn ? state.drawn[state.query] : null;
    const unit = (CHART.floor - CHART.strip) / (state.most - state.low);
    const base = CHART.floor + state.low * unit;
    row.forEach((weight, i) => {
      const kind = `${weight < 0 ? "less" : "more"}${drawn === null ? "" : i === drawn ? " drawn" : " pale"}`;
      const height = Math.abs(weight) * unit;
      fill(bars[i], { class: kind, y: (weight < 0 ? base : base - height).toFixed(2), height: height.toFixed(2) }, []);
      fill(points[i], { class: kind, "fill-opacity": opacity(weight) }, []);
    });
    fill(parts.base, { y1: base, y2: base }, []);
    fill(parts.zero, { y: base + 4 }, []);
    parts.most.textContent = state.most + state.low > 1e-9 ? text(state.most, 2) : "";
    fill(parts.most, { y: base - state.most * unit + 8 }, []);
    fill(parts.cursor, { x1: x(query), x2: x(query) }, []);
    fill(parts.here, { cx: x(query), cy: y(context) }, []);
    frame.setAttribute("y", MAP.top + state.query * MAP.row - 0.5);
    numbers.query.textContent = fixed(query, 1);
    numbers.context.textContent = `${fixed(context)} (curve ${fixed(truth(query))})`;
    numbers.keys.textContent = text(formula.effectiveKeys(row));
    numbers.total.textContent = text(sum(row));
    fill(controls.chart, { "aria-valuenow": query, "aria-valuetext": `query ${fixed(query, 1)}, context ${fixed(context)}` }, []);
  }

  const controls = {};
  const numbers = {};
  const note = html("p", { class: "note", "aria-live": "polite" });
  const code = html("pre", { class: "code", tabindex: 0, "aria-label": "the same in Python" });
  const legend = html("figcaption", {});
  const presets = WALK.map(([name], i) => html("button", { type: "button", onclick: () => take(i) }, `${i + 1} ${name}`));
  controls.again = html("button", { type: "button", class: "again", onclick: () => { drawKeys(); showAll(); } }, "Draw again");

  function fact(label, ...names) {
    for (const name of names) numbers[name] = html("span", {});
    return html("div", {}, html("dt", {}, label), html("dd", {}, names.map((name) => numbers[name])));
  }

  const selects = [select("score", "score", SCORES), select("normalize", "normalize", NORMALIZERS), select("read", "read", READINGS)];
  const hint = "Dots: keys and values. Dashed: true curve. Line: context of each query. Move the query with the pointer or the arrow keys.";
  root.replaceChildren(
    html("div", { class: "walk", role: "group", "aria-label": "a walk from the mean to a sample" }, presets),
    note,
    html("div", { class: "choices" }, selects, slider("width"), slider("temperature"), controls.again),
    html("div", { class: "views" }, html("figure", {}, chart(), html("figcaption", {}, hint)), html("figure", {}, heatMap(), legend)),
    html("dl", {},
      fact("squared distance from the true curve", "distance", "draws"), fact("query", "query"), fact("context", "context"),
      fact("effective number of keys", "keys"), fact("sum of weights", "total")),
    code,
  );
  take(0);
})();
