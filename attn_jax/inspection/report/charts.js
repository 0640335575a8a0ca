"use strict";
// Curves over steps, and results with intervals, as SVG.

const MARGIN = { left: 52, right: 12, top: 10, bottom: 30 };

/** Returns round numbers between two limits. */
function ticks(low, high, count = 5) {
  const raw = (high - low || Math.abs(high) || 1) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((each) => each * power >= raw) * power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

/** Returns a scale from values to pixels, logarithmic if the values are positive and far apart. */
function scale(values, from, to) {
  const real = values.filter((value) => value !== null);
  let [low, high] = [Math.min(...real), Math.max(...real)];
  const log = low > 0 && high / low > 50;
  if (!log && low === high) [low, high] = [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
  const f = log ? Math.log10 : (x) => x;
  const pixel = (value) => from + ((f(value) - f(low)) / (f(high) - f(low) || 1)) * (to - from);
  let marks = ticks(low, high);
  if (log) {
    marks = ticks(Math.floor(f(low)), Math.ceil(f(high)), 6).filter(Number.isInteger).map((each) => 10 ** each);
    marks = marks.filter((each) => each >= low * 0.999 && each <= high * 1.001);
    if (marks.length < 2) marks = [low, high];
  }
  return { pixel, marks, log };
}

/** Returns the mean over the seeds at each step; null where a seed has no number. */
function meanOf(seeds) {
  return seeds[0].map((_, i) => {
    const values = seeds.map((values) => values[i]);
    return values.includes(null) ? null : values.reduce((a, b) => a + b, 0) / values.length;
  });
}

function path(steps, values, x, y) {
  let text = "";
  let up = true;
  values.forEach((value, i) => {
    if (value !== null) text += `${up ? "M" : "L"}${x.pixel(steps[i]).toFixed(1)} ${y.pixel(value).toFixed(1)}`;
    up = value === null;
  });
  return text;
}

/** Draws the curves of one panel; the pointer or the arrow keys read their values at a step. */
function lineChart(panel) {
  const read = el("p", { class: "readout", "aria-live": "polite" });
  const box = el("div", { class: "chart", tabindex: 0, role: "img", "aria-label": `${panel.title}; arrow keys read values` });
  const legend = el("p", { class: "legend" });
  for (const [i, line] of panel.lines.entries()) {
    const count = line.values.length;
    legend.append(el("span", { class: `key line${i}` }), count > 1 ? `${line.name}, mean of ${count} seeds ` : `${line.name} `);
  }
  const steps = [...new Set(panel.lines.flatMap((line) => line.steps))].sort((a, b) => a - b);
  let at = null;

  function draw() {
    const width = box.clientWidth || 320;
    const height = Math.round(Math.min(260, Math.max(170, width * 0.5)));
    const x = scale(steps, MARGIN.left, width - MARGIN.right);
    const linear = { ...x, pixel: (s) => MARGIN.left + (steps.length > 1 ? (s - steps[0]) / (steps.at(-1) - steps[0]) : 0.5) * (width - MARGIN.left - MARGIN.right) };
    const y = scale(panel.lines.flatMap((line) => line.values.flat()), height - MARGIN.bottom, MARGIN.top);
    const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
    for (const mark of y.marks) {
      root.append(svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y.pixel(mark), y2: y.pixel(mark) }));
      root.append(svg("text", { class: "tick", x: MARGIN.left - 6, y: y.pixel(mark) + 4, "text-anchor": "end" }, number(mark, 6)));
    }
    for (const mark of ticks(steps[0], steps.at(-1), Math.max(2, Math.floor(width / 75))).filter(Number.isInteger)) {
      root.append(svg("text", { class: "tick", x: linear.pixel(mark), y: height - 10, "text-anchor": linear.pixel(mark) > width - 30 ? "end" : "middle" }, number(mark, 12)));
    }
    for (const [i, line] of panel.lines.entries()) {
      if (line.values.length > 1) {
        for (const values of line.values) root.append(svg("path", { class: `seed line${i}`, d: path(line.steps, values, linear, y) }));
      }
      const mean = meanOf(line.values);
      root.append(svg("path", { class: `mean line${i}`, d: path(line.steps, mean, linear, y) }));
      if (line.steps.length < 40) {
        line.steps.forEach((step, j) => mean[j] !== null && root.append(
          svg("circle", { class: `dot line${i}`, cx: linear.pixel(step), cy: y.pixel(mean[j]), r: 2.5 })));
      }
    }
    if (at !== null) {
      root.append(svg("line", { class: "cursor", x1: linear.pixel(steps[at]), x2: linear.pixel(steps[at]), y1: MARGIN.top, y2: height - MARGIN.bottom }));
    }
    box.replaceChildren(root);
    box.stepAt = (px) => steps.reduce((best, step, i) => (Math.abs(linear.pixel(step) - px) < Math.abs(linear.pixel(steps[best]) - px) ? i : best), 0);
    const shown = at === null ? [] : panel.lines.flatMap((line) => {
      const i = line.steps.indexOf(steps[at]);
      return i < 0 ? [] : [`${line.name} ${number(meanOf(line.values)[i], 4)}`];
    });
    read.textContent = at === null ? (y.log ? "logarithmic scale" : "") : `step ${steps[at]}: ${shown.join(", ")}`;
  }

  function moveTo(next) {
    at = next === null ? null : Math.max(0, Math.min(steps.length - 1, next));
    draw();
  }
  box.addEventListener("pointermove", (event) => moveTo(box.stepAt(event.clientX - box.getBoundingClientRect().left)));
  box.addEventListener("pointerleave", () => moveTo(null));
  box.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      event.preventDefault();
      moveTo(at === null ? 0 : at + step);
    }
  });
  onResize.push(draw);
  return el("figure", {}, el("figcaption", {}, panel.title), legend, box, read);
}

/** Draws a metric of all runs: the values of the seeds, their mean and its interval; the first run is the baseline. */
function intervalChart(panel) {
  const box = el("div", { class: "chart", role: "img", "aria-label": `${panel.metric} of ${panel.runs.length} runs with intervals` });
  const row = 46;

  function draw() {
    const width = box.clientWidth || 320;
    const height = panel.runs.length * row + 34;
    const all = panel.runs.flatMap((run) => [...run.values, run.low, run.high]).filter((value) => value !== null);
    const limits = { ...scale(all, 14, width - 14) };
    const x = { marks: ticks(Math.min(...all), Math.max(...all), Math.max(2, Math.floor(width / 110))), pixel: null };
    const [low, high] = [Math.min(...all), Math.max(...all)];
    x.pixel = (value) => (high > low ? 14 + ((value - low) / (high - low)) * (width - 28) : limits.pixel(value));
    const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
    for (const mark of x.marks) {
      root.append(svg("line", { class: "grid", x1: x.pixel(mark), x2: x.pixel(mark), y1: 4, y2: height - 26 }));
      root.append(svg("text", { class: "tick", x: x.pixel(mark), y: height - 8, "text-anchor": "middle" }, number(mark, 4)));
    }
    if (panel.runs[0].mean !== null) {
      root.append(svg("line", { class: "baseline", x1: x.pixel(panel.runs[0].mean), x2: x.pixel(panel.runs[0].mean), y1: 4, y2: height - 26 }));
    }
    panel.runs.forEach((run, i) => {
      const y = i * row + 30;
      const most = Math.floor((width - 20) / 7);
      const label = svg("text", { class: "name", x: 14, y: y - 14 }, visible(run.name, most));
      label.append(svg("title", {}, run.name));
      root.append(label);
      for (const value of run.values) {
        if (value !== null) root.append(svg("circle", { class: "value", cx: x.pixel(value), cy: y, r: 3 }));
      }
      if (run.low !== null && run.high !== null) {
        root.append(svg("line", { class: "interval", x1: x.pixel(run.low), x2: x.pixel(run.high), y1: y, y2: y }));
        for (const end of [run.low, run.high]) root.append(svg("line", { class: "interval", x1: x.pixel(end), x2: x.pixel(end), y1: y - 5, y2: y + 5 }));
      }
      if (run.mean !== null) root.append(svg("circle", { class: "point", cx: x.pixel(run.mean), cy: y, r: 5 }));
    });
    box.replaceChildren(root);
  }
  onResize.push(draw);
  return el("figure", {}, el("figcaption", {}, panel.metric), box);
}
