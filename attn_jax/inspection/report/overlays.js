"use strict";
// The image of an example: one panel for each query, bright where the weight of a cell is large; the path of glimpses.

const PANEL = 112;  // pixels of the longer side of a panel
const MOST_PANELS = 40;
const FAINTEST = 0.25;  // brightness where the weight is zero

/** Shows an image under the weights of a map, whose first columns are the cells of the image. */
class Overlays {
  constructor(onFocus) {
    this.onFocus = onFocus;
    this.node = el("div", { class: "overlays" });
    onResize.push(() => this.draw());
  }

  /** Tells whether an example has an image whose cells are the keys of a map. */
  static fits(image, map) {
    return Boolean(image) && map.columns.length >= image.cells[0] * image.cells[1] && map.rows.length <= MOST_PANELS;
  }

  show(view, image, path) {
    Object.assign(this, { view, image, path });
    this.pixels = image ? Uint8Array.from(atob(image.pixels), (one) => one.charCodeAt(0)) : null;
    this.draw();
  }

  draw() {
    if (!this.view || !this.image) return;
    const { map } = this.view;
    const whole = el("canvas", { "aria-hidden": "true" });
    this.paint(whole, null);
    const panels = map.rows.map((row, index) => {
      const canvas = el("canvas", { "aria-hidden": "true" });
      this.paint(canvas, index);
      const focus = { side: "query", index };
      return el("button", { type: "button", class: "panel", onfocus: () => this.onFocus(focus), onblur: () => this.onFocus(null),
        onpointerenter: () => this.onFocus(focus), onpointerleave: () => this.onFocus(null) }, canvas, el("span", {}, visible(row, 16)));
    });
    roving(panels);
    this.node.replaceChildren(el("div", { class: "panel" }, whole, el("span", {}, "image")), ...panels);
  }

  /** Paints the image, dark where a query has little weight; without a query, with the path of the glimpses. */
  paint(canvas, query) {
    const [height, width, channels] = this.image.shape;
    const [rows, columns] = this.image.cells;
    const scale = Math.max(1, Math.round(PANEL / Math.max(height, width)));
    const context = sharp(canvas, width * scale, height * scale);
    const weights = query === null ? null : this.weightsOf(query, rows * columns);
    const most = weights ? Math.max(...weights) || 1 : 1;
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const first = (y * width + x) * channels;
        const rgb = [0, 1, 2].map((i) => this.pixels[first + (channels === 1 ? 0 : i)]);
        const cell = Math.floor(((y + 0.5) * rows) / height) * columns + Math.floor(((x + 0.5) * columns) / width);
        const light = weights ? FAINTEST + (1 - FAINTEST) * Math.max(0, weights[cell]) / most : 1;
        context.fillStyle = css(rgb.map((value) => Math.round(value * light)));
        context.fillRect(x * scale, y * scale, scale, scale);
      }
    }
    const squares = query === null ? this.path : this.path.slice(query, query + 1);
    squares.forEach(([left, top, right, bottom], i) => {
      context.strokeStyle = context.fillStyle = css([255, 160, 40]);
      context.strokeRect(left * scale + 0.5, top * scale + 0.5, (right - left) * scale - 1, (bottom - top) * scale - 1);
      context.fillText(String((query ?? i) + 1), ((left + right) / 2) * scale - 3, ((top + bottom) / 2) * scale + 3);
    });
    if (query !== null || squares.length < 2) return;
    context.beginPath();
    squares.forEach(([left, top, right, bottom]) => context.lineTo(((left + right) / 2) * scale, ((top + bottom) / 2) * scale));
    context.stroke();
  }

  weightsOf(query, count) {
    const { map, place, samples } = this.view;
    return [...Array(count).keys()].map((cell) => map.shown(place, query, cell, samples));
  }
}
