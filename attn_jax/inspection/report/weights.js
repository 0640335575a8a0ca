"use strict";
// Maps of attention weights, and their colours.

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const OFFSET = 2048;
const RUNS = 3048;

/** Reads `size` integers, written as two digits to the base 64 each: integer + OFFSET, or RUNS + a number of zeros. */
function integersOf(text, size) {
  const found = new Int16Array(size);
  let place = 0;
  for (let i = 0; i < text.length; i += 2) {
    const code = DIGITS.indexOf(text[i]) * 64 + DIGITS.indexOf(text[i + 1]);
    if (code > RUNS) place += code - RUNS;
    else found[place++] = code - OFFSET;
  }
  return found;
}

/** A map of one example, with its labels: places of the axes (layer, head), rows (queries), columns (keys). */
class WeightMap {
  constructor(data, labels) {
    Object.assign(this, { name: data.name, axes: data.axes, entropy: data.entropy, support: data.support, cut: data.cut });
    this.data = data;
    this.rows = labels[data.rows];
    this.columns = labels[data.columns];
    this.sizes = data.shape.slice(0, -2);
    this.places = this.sizes.reduce((a, b) => a * b, 1);
    this.weights = integersOf(data.weights, data.shape.reduce((a, b) => a * b, 1));
    this.most = this.weights.reduce((most, weight) => Math.max(most, Math.abs(weight)), 0) * data.unit || 1;
    this.negative = this.weights.some((weight) => weight < 0);
    if (this.most > 0.3) this.most = Math.max(1, this.most);
  }

  /** Returns the weight that a row gives to a column. */
  at(place, row, column) {
    const size = this.rows.length * this.columns.length;
    return Number((this.weights[place * size + row * this.columns.length + column] * this.data.unit).toPrecision(6));
  }

  /** Returns what is shown of a weight: itself, or how often the samples `shown` have this key. */
  shown(place, row, column, samples) {
    if (!samples || !this.data.samples) return this.at(place, row, column);
    const hits = samples.filter((i) => this.data.samples[i][place * this.rows.length + row] === column).length;
    return hits / samples.length;
  }

  get numSamples() {
    return this.data.samples ? this.data.samples.length : 0;
  }

  /** Returns the number of a place from an index of each axis. */
  place(indices) {
    return indices.reduce((place, index, i) => place * this.sizes[i] + Math.min(index, this.sizes[i] - 1), 0);
  }

  /** Returns the name of a place, such as "layer 1, head 2". */
  placeName(place) {
    const parts = [];
    for (let i = this.axes.length - 1; i >= 0; i--) {
      parts.unshift(`${this.axes[i]} ${(place % this.sizes[i]) + 1}`);
      place = Math.floor(place / this.sizes[i]);
    }
    return parts.join(", ");
  }
}

/** Returns the colours of the style sheet as [r, g, b], for the present scheme. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim().match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
  return { zero: read("--zero"), more: read("--more"), less: read("--less"), text: read("--fg"), muted: read("--muted"), mark: read("--mark"), line: read("--line") };
}

const css = (rgb, alpha = 1) => `rgb(${rgb.join(" ")} / ${alpha})`;

/** Returns the colour of a weight: from the background to blue, or to orange if it is negative. */
function colour(weight, most, colours) {
  const share = Math.min(1, Math.abs(weight) / most) ** 0.8;
  const end = weight < 0 ? colours.less : colours.more;
  return colours.zero.map((low, i) => Math.round(low + (end[i] - low) * share));
}

/** Returns black or white, whichever can be read on a colour. */
function inkOn([r, g, b]) {
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#000" : "#fff";
}

/** Makes a canvas of a size in CSS pixels, sharp on every screen. */
function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** Draws a place of a map as a small picture without labels. */
function thumbnail(map, place, side = 52) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  const context = sharp(canvas, side, side);
  const colours = palette();
  const [q, k] = [map.rows.length, map.columns.length];
  for (let i = 0; i < q; i++) {
    for (let j = 0; j < k; j++) {
      context.fillStyle = css(colour(map.at(place, i, j), map.most, colours));
      context.fillRect((j * side) / k, (i * side) / q, side / k + 0.5, side / q + 0.5);
    }
  }
  return canvas;
}
