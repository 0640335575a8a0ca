"use strict";
// The attention explorer: an example, a seed, a place of attention with its layer and head, and what is shown of it.

const ORDERS = {
  order: ["order of the file", (one) => one.index],
  loss: ["largest loss", (one) => -(one.loss ?? -Infinity)],
  small_loss: ["smallest loss", (one) => one.loss ?? Infinity],
  wrong: ["wrong outputs first", (one) => (one.right ? 1 : 0)],
  entropy: ["largest entropy of the head", (one) => -(one.entropy ?? -Infinity)],
  small_entropy: ["smallest entropy of the head", (one) => one.entropy ?? Infinity],
  long: ["longest source", (one) => -one.length],
  short: ["shortest source", (one) => one.length],
};

const lossText = (loss) => (loss === null ? "" : loss >= 0 && loss < 0.001 ? "<0.001" : number(loss, 2));

class Explorer {
  constructor(data, chosen) {
    this.data = data;
    this.state = { seed: Math.max(0, data.seeds.indexOf(String(chosen))), example: 0, map: "", indices: [], samples: "", order: "order" };
    this.list = el("div", { class: "list", role: "listbox", "aria-label": "examples" });
    this.texts = el("dl", { class: "texts" });
    this.controls = el("div", { class: "controls" });
    this.overview = el("div", { class: "overview" });
    this.said = el("p", { class: "readout", "aria-live": "polite" });
    this.links = new Links((focus) => this.focusOn(focus));
    this.heat = new HeatMap((focus) => this.focusOn(focus));
    this.overlays = new Overlays((focus) => this.focusOn(focus));
    this.pictures = el("section", { "aria-label": "image" }, el("h3", {}, "Image"), this.overlays.node);
    this.views = el("div", { class: "views" }, this.pictures, el("section", { "aria-label": "links" }, el("h3", {}, "Links"), this.links.node),
      el("section", { "aria-label": "heat map" }, el("h3", {}, "Heat map"), this.heat.node));
    this.sorting = el("div", { class: "controls" });
    this.node = el("div", { class: "explorer" },
      el("div", { class: "chooser" }, this.sorting, this.list),
      el("div", { class: "shown" }, this.texts, this.controls, this.overview, this.said, this.views));
    onResize.push(() => this.drawOverview());
  }

  /** Draws everything; the node has to be in the page, since places of tokens are measured. */
  start() {
    this.set({});
  }

  /** Changes the state, and draws what depends on it. */
  set(changes) {
    Object.assign(this.state, changes);
    const own = this.own(this.state.example);
    this.maps = own.maps.map((map) => new WeightMap(map, this.data.labels));
    this.map = this.maps.find((map) => map.name === this.state.map) || this.maps[0];
    if (this.map) {
      this.state.map = this.map.name;
      this.state.indices = this.map.sizes.map((size, i) => Math.min(this.state.indices[i] ?? (this.map.axes[i] === "layer" ? size - 1 : 0), size - 1));
      this.place = this.map.place(this.state.indices);
      if (!this.map.numSamples) this.state.samples = "";
    }
    this.drawTexts(own);
    this.drawControls();
    this.drawList();
    this.views.hidden = this.overview.hidden = !this.map;
    if (this.map) {
      this.drawOverview();
      const all = [...Array(this.map.numSamples).keys()];
      const samples = { "": null, all }[this.state.samples] ?? (this.state.samples === "" ? null : [Number(this.state.samples)]);
      const view = { map: this.map, place: this.place, samples, evidence: own.evidence };
      this.links.show(view);
      this.heat.show(view);
      this.pictures.hidden = !Overlays.fits(own.image, this.map);
      this.overlays.show(view, this.pictures.hidden ? null : own.image, own.path || []);
      this.focusOn(null);
    } else {
      this.said.textContent = "this model has no attention weights";
    }
  }

  /** Returns an example as the chosen seed has it. */
  own(index) {
    const item = this.data.items[index];
    return { ...item, ...item.of_seeds[this.state.seed] };
  }

  drawTexts(own) {
    const right = own.reference === own.output;
    const verdict = !own.reference || !this.data.exact ? null : el("span", { class: right ? "right" : "wrong" }, right ? "✓ equal" : "✗ differs");
    const rows = [["source", own.source, null], ["output", own.output || "∅", verdict], ["reference", own.reference || "–", null]];
    if (own.loss !== null) rows.push(["loss", `${number(own.loss, 4)} ${this.data.unit}`, null]);
    this.texts.replaceChildren(...rows.flatMap(([name, text, mark]) => [el("dt", {}, name), el("dd", {}, el("span", { class: name }, text), mark)]));
  }

  drawControls() {
    const { state, map, data } = this;
    const controls = [];
    const put = (name, ...rest) => controls.push([name, choice(...rest)]);
    if (data.seeds.length > 1) put("seed", "seed", data.seeds.map((seed, i) => [i, seed]), state.seed, (value) => this.set({ seed: Number(value) }));
    if (map) {
      if (this.maps.length > 1) put("map", "attention", this.maps.map((one) => [one.name, one.name]), map.name, (value) => this.set({ map: value, indices: [] }));
      map.axes.forEach((axis, i) => {
        const options = [...Array(map.sizes[i]).keys()].map((index) => [index, index + 1]);
        put(axis, axis, options, state.indices[i], (value) => this.set({ indices: state.indices.map((old, j) => (j === i ? Number(value) : old)) }));
      });
      if (map.numSamples) {
        const samples = [...Array(map.numSamples).keys()].map((i) => [i, `sample ${i + 1}`]);
        put("samples", "show", [["", "weights"], ["all", "all samples"], ...samples], state.samples, (value) => this.set({ samples: value }));
      }
    }
    this.replaceKeepingFocus(this.controls, controls);
    const orders = Object.entries(ORDERS).filter(([name]) => name !== "wrong" || this.data.exact).map(([name, [text]]) => [name, text]);
    this.replaceKeepingFocus(this.sorting, [["order", choice("sort by", orders, state.order, (value) => this.set({ order: value }))]]);
  }

  replaceKeepingFocus(box, named) {
    const held = box.contains(document.activeElement) ? document.activeElement.closest("[data-name]").dataset.name : null;
    named.forEach(([name, node]) => { node.dataset.name = name; });
    box.replaceChildren(...named.map(([, node]) => node));
    const again = held && box.querySelector(`[data-name="${held}"] select`);
    if (again) again.focus();
  }

  /** Returns what the examples are sorted by. */
  facts(index) {
    const own = this.own(index);
    const map = own.maps.find((one) => one.name === this.state.map);
    const length = map ? this.data.labels[map.columns].length : own.source.length;
    return { index, loss: own.loss, right: own.reference === own.output, entropy: map ? map.entropy[this.place] : null, length };
  }

  drawList() {
    const key = ORDERS[this.state.order][1];
    const facts = this.data.items.map((_, index) => this.facts(index));
    facts.sort((a, b) => key(a) - key(b) || a.index - b.index);
    const held = this.list.contains(document.activeElement);
    const nodes = facts.map((one) => {
      const { source, reference } = this.own(one.index);
      const mark = !reference || !this.data.exact ? "" : one.right ? "✓" : "✗";
      return el("button", {
        type: "button",
        role: "option",
        class: "example",
        "aria-selected": one.index === this.state.example ? "true" : "false",
        "data-index": one.index,
        onclick: () => this.set({ example: one.index }),
        onfocus: () => one.index !== this.state.example && this.set({ example: one.index }),
      },
      el("span", { class: "count" }, String(one.index + 1)),
      el("span", { class: "text" }, source),
      el("span", { class: one.right ? "right" : "wrong" }, mark),
      el("span", { class: "loss" }, lossText(one.loss)));
    });
    roving(nodes);
    const top = this.list.scrollTop;
    this.list.replaceChildren(...nodes);
    this.list.scrollTop = top;
    const chosen = nodes.find((node) => node.getAttribute("aria-selected") === "true");
    nodes.forEach((node) => { node.tabIndex = node === chosen ? 0 : -1; });
    if (held) chosen.focus();
    const [above, below] = [chosen.offsetTop, chosen.offsetTop + chosen.offsetHeight];
    if (above < this.list.scrollTop || below > this.list.scrollTop + this.list.clientHeight) this.list.scrollTop = above;
  }

  /** Draws each layer and head as a small picture, to choose from. */
  drawOverview() {
    const { map } = this;
    if (!map) return;
    if (map.places < 2) {
      const support = `uses ${number(map.support[0], 3)} keys of ${map.columns.length + map.cut} on average (mean of exp of the entropy of its queries)`;
      const star = this.own(this.state.example).evidence.length ? "; ★ marks supporting facts" : "";
      const cut = map.cut ? `; the ${map.columns.length} largest weights of ${map.columns.length + map.cut} are shown` : "";
      this.overview.replaceChildren(el("p", { class: "note" }, support + cut + star));
      return;
    }
    const across = map.sizes.at(-1);
    const head = el("tr", {}, el("td"), [...Array(across).keys()].map((i) => el("th", { scope: "col" }, `${map.axes.at(-1)} ${i + 1}`)));
    const nodes = [];
    const rows = [...Array(map.places / across).keys()].map((i) => el("tr", {},
      el("th", { scope: "row" }, map.axes.length > 1 ? `${map.axes[0]} ${i + 1}` : ""),
      [...Array(across).keys()].map((j) => {
        const place = i * across + j;
        const node = el("button", {
          type: "button",
          class: "thumbnail",
          "aria-pressed": place === this.place ? "true" : "false",
          "aria-label": `${map.placeName(place)}: uses ${number(map.support[place], 3)} keys on average`,
          onclick: () => {
            this.set({ indices: this.indicesOf(place) });
            this.overview.querySelectorAll("button")[place].focus();
          },
        }, thumbnail(map, place), el("span", {}, `${number(map.support[place], 2)} keys`));
        nodes.push(node);
        return el("td", {}, node);
      })));
    roving(nodes, across);
    nodes.forEach((node, place) => { node.tabIndex = place === this.place ? 0 : -1; });
    this.overview.replaceChildren(el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, rows))),
      el("p", { class: "note" }, "Each picture is one head; below it the number of keys it uses: exp of the entropy, a mean over its queries."));
  }

  indicesOf(place) {
    const indices = [];
    for (let i = this.map.sizes.length - 1; i >= 0; i--) {
      indices.unshift(place % this.map.sizes[i]);
      place = Math.floor(place / this.map.sizes[i]);
    }
    return indices;
  }

  /** Shows in all views, and says, what a query looked at, or who looked at a key. */
  focusOn(focus) {
    this.links.mark(focus);
    this.heat.mark(focus);
    const { map } = this;
    if (!focus) {
      this.said.textContent = "Point at a token or a cell, or move there with Tab and the arrow keys, to read its weights.";
      return;
    }
    const name = (side, i) => `‘${visible((side === "key" ? map.columns : map.rows)[i], 40)}’`;
    if (focus.other !== undefined) {
      this.said.textContent = `${name("query", focus.index)} looked at ${name("key", focus.other)}: ${number(this.links.weight(focus.index, focus.other))}`;
      return;
    }
    const others = focus.side === "key" ? map.rows : map.columns;
    const weightOf = (i) => (focus.side === "key" ? this.links.weight(i, focus.index) : this.links.weight(focus.index, i));
    const best = others.map((_, i) => [i, weightOf(i)]).filter(([, weight]) => weight !== 0);
    best.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    const told = best.slice(0, 5).map(([i, weight]) => `${name(focus.side === "key" ? "query" : "key", i)} ${number(weight)}`);
    const verb = focus.side === "key" ? "was looked at by" : "looked at";
    this.said.textContent = `${name(focus.side, focus.index)} ${verb} ${told.join(", ") || "nothing"}`;
  }
}
