"use strict";
// A map as a picture with labels: a row for each query, a column for each key; turned where the keys are long texts.

const LONG_LABEL = 10;  // characters of a key on average, from which keys are rows
const WITH_NUMBERS = 38;  // width of a cell that has room for its number

/** Shows a map. The pointer or the arrow keys read a cell, and highlight it in the links. */
class HeatMap {
  constructor(onFocus) {
    this.onFocus = onFocus;
    this.canvas = el("canvas", { tabindex: 0, role: "img" });
    this.canvas.addEventListener("pointermove", (event) => this.moveTo(this.cellAt(event)));
    this.canvas.addEventListener("pointerdown", (event) => this.moveTo(this.cellAt(event)));
    this.canvas.addEventListener("pointerleave", () => this.moveTo(null));
    this.canvas.addEventListener("blur", () => this.moveTo(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.legend = el("canvas", { "aria-hidden": "true" });
    this.ends = [el("span"), el("span")];
    this.node = el("div", { class: "heat" }, el("div", { class: "scroll" }, this.canvas),
      el("p", { class: "scale" }, this.ends[0], this.legend, this.ends[1]));
    onResize.push(() => this.view && this.draw());
  }

  show(view) {
    this.view = view;
    const { map } = view;
    const mean = map.columns.reduce((sum, label) => sum + label.length, 0) / map.columns.length;
    this.turned = mean > LONG_LABEL;
    this.cell = this.band = null;
    this.canvas.setAttribute("aria-label", `${map.name} ${map.placeName(view.place)}: ${map.rows.length} queries, ${map.columns.length} keys; arrow keys read weights`);
    this.draw();
  }

  get sides() {
    const { map } = this.view;
    return this.turned ? [map.columns, map.rows] : [map.rows, map.columns];
  }

  /** Returns the weight in the cell [down, across] of the picture. */
  weight(down, across) {
    const { map, place, samples } = this.view;
    return this.turned ? map.shown(place, across, down, samples) : map.shown(place, down, across, samples);
  }

  draw() {
    const { evidence, samples, map } = this.view;
    const [downLabels, acrossLabels] = this.sides;
    const colours = palette();
    const style = getComputedStyle(document.body);
    const context = this.canvas.getContext("2d");
    context.font = `12px ${style.fontFamily}`;
    const widest = (labels) => Math.max(...labels.map((label) => context.measureText(visible(label, 40)).width));
    const room = this.node.clientWidth || 320;
    const left = Math.min(widest(downLabels) + (this.turned ? 22 : 10), room * 0.6);
    const most = samples ? 1 : map.most;
    const width = Math.max(11, Math.min(acrossLabels.length <= 6 ? 52 : 24, (room - left - 4) / acrossLabels.length));
    const steep = widest(acrossLabels) > width - 4;
    const top = steep ? Math.min(widest(acrossLabels) * 0.87 + 12, 110) : 22;
    const height = Math.max(14, Math.min(20, 420 / downLabels.length));
    const tail = steep ? 30 : 2;
    Object.assign(this, { left, top, width, height });
    const pen = sharp(this.canvas, left + width * acrossLabels.length + tail, top + height * downLabels.length + 2);
    pen.font = `12px ${style.fontFamily}`;
    pen.textBaseline = "middle";
    downLabels.forEach((label, i) => {
      const marked = this.turned && evidence.includes(i + 1);
      pen.fillStyle = css(marked ? colours.mark : this.cell && this.cell[0] === i ? colours.text : colours.muted);
      pen.textAlign = "right";
      pen.fillText(this.fit(pen, (marked ? "★ " : "") + visible(label, 60), left - 8), left - 6, top + (i + 0.5) * height);
    });
    acrossLabels.forEach((label, j) => {
      pen.fillStyle = css(this.cell && this.cell[1] === j ? colours.text : colours.muted);
      pen.save();
      pen.translate(left + (j + 0.5) * width, top - 6);
      const wide = pen.measureText(visible(label, 40)).width > width - 4;
      if (wide) pen.rotate(-Math.PI / 3);
      pen.textAlign = wide ? "left" : "center";
      pen.fillText(this.fit(pen, visible(label, 40), 118), 0, wide ? 0 : -4);
      pen.restore();
    });
    for (let i = 0; i < downLabels.length; i++) {
      for (let j = 0; j < acrossLabels.length; j++) {
        const weight = this.weight(i, j);
        const fillColour = colour(weight, most, colours);
        pen.fillStyle = css(fillColour);
        pen.fillRect(left + j * width, top + i * height, width - 1, height - 1);
        if (width >= WITH_NUMBERS && Math.abs(weight) >= 0.01 * most) {
          pen.fillStyle = inkOn(fillColour);
          pen.textAlign = "center";
          pen.fillText(weightText(weight, most), left + (j + 0.5) * width, top + (i + 0.5) * height);
        }
      }
    }
    pen.strokeStyle = css(colours.text);
    if (this.band) {
      const down = (this.band.side === "key") === this.turned;
      const { index } = this.band;
      pen.lineWidth = 1.5;
      if (down) pen.strokeRect(left - 1, top + index * height - 1, width * acrossLabels.length + 1, height + 1);
      else pen.strokeRect(left + index * width - 1, top - 1, width + 1, height * downLabels.length + 1);
    }
    if (this.cell) {
      pen.lineWidth = 2;
      pen.strokeRect(left + this.cell[1] * width, top + this.cell[0] * height, width - 1, height - 1);
    }
    this.drawScale(colours, most, map.negative && !samples);
  }

  fit(pen, text, room) {
    let shown = text;
    while (shown.length > 1 && pen.measureText(shown).width > room) shown = shown.slice(0, -2) + "…";
    return shown;
  }

  drawScale(colours, most, negative) {
    const pen = sharp(this.legend, 120, 10);
    for (let x = 0; x < 120; x++) {
      const weight = negative ? (x / 119) * 2 * most - most : (x / 119) * most;
      pen.fillStyle = css(colour(weight, most, colours));
      pen.fillRect(x, 0, 1.5, 10);
    }
    this.ends[0].textContent = negative ? number(-most, 2) : "0";
    this.ends[1].textContent = this.view.samples ? `${number(most, 2)} of the samples` : number(most, 2);
  }

  /** Frames the row or the column of a token that is looked at in the links. */
  mark(focus) {
    const band = focus && focus.other === undefined ? focus : null;
    if (!band && !this.band) return;
    this.band = band;
    this.draw();
  }

  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const across = Math.floor((event.clientX - box.left - this.left) / this.width);
    const down = Math.floor((event.clientY - box.top - this.top) / this.height);
    const [downLabels, acrossLabels] = this.sides;
    const inside = down >= 0 && across >= 0 && down < downLabels.length && across < acrossLabels.length;
    return inside ? [down, across] : null;
  }

  key(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const [downLabels, acrossLabels] = this.sides;
    const [down, across] = this.cell || [-step[0], -step[1]];
    const clip = (value, labels) => Math.max(0, Math.min(labels.length - 1, value));
    this.moveTo([clip(down + step[0], downLabels), clip(across + step[1], acrossLabels)]);
  }

  moveTo(cell) {
    if (String(cell) === String(this.cell)) return;
    this.cell = cell;
    this.draw();
    if (!cell) return this.onFocus(null);
    const [row, column] = this.turned ? [cell[1], cell[0]] : cell;
    return this.onFocus({ side: "query", index: row, other: column });
  }
}
