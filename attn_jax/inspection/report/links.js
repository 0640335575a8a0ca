"use strict";
// Two columns of tokens, keys and queries, with a line for each weight between them.

const LEAST = 0.04;  // of the largest weight; thinner lines are not drawn
const MOST_LINES = 800;

/** Shows the links of a map. `view` has map, place, samples, evidence; `focus` is {side, index} or null. */
class Links {
  constructor(onFocus) {
    this.onFocus = onFocus;
    this.keys = el("div", { class: "tokens keys", role: "group", "aria-label": "keys: what was looked at" });
    this.queries = el("div", { class: "tokens queries", role: "group", "aria-label": "queries: who looked" });
    this.lines = svg("svg", { class: "lines", "aria-hidden": "true" });
    this.body = el("div", { class: "links" }, this.keys, this.lines, this.queries);
    this.node = el("div", {}, el("div", { class: "sides" }, el("span", {}, "keys: looked at"), el("span", {}, "queries: looking")), this.body);
    onResize.push(() => this.draw());
  }

  show(view) {
    this.view = view;
    this.keyNodes = this.makeTokens(this.keys, view.map.columns, "key");
    this.queryNodes = this.makeTokens(this.queries, view.map.rows, "query");
    for (const number of view.evidence) {
      const node = this.keyNodes[number - 1];
      if (node) {
        node.classList.add("evidence");
        node.title = "supporting fact";
      }
    }
    this.mark(null);
  }

  makeTokens(box, labels, side) {
    const nodes = labels.map((label, index) => el("button", {
      type: "button",
      class: "token",
      onpointerenter: (event) => event.pointerType === "mouse" && this.onFocus({ side, index }),
      onpointerleave: (event) => event.pointerType === "mouse" && this.onFocus(this.held()),
      onclick: (event) => event.currentTarget.focus(),
      onfocus: () => this.onFocus({ side, index }),
      onblur: () => this.onFocus(null),
      onkeydown: (event) => this.across(event, side, index),
    }, el("span", { class: "label" }, visible(label)), el("span", { class: "weight" })));
    roving(nodes);
    box.replaceChildren(...nodes);
    box.classList.toggle("long", labels.some((label) => label.length > 14));
    return nodes;
  }

  /** Returns the token that has the keyboard's focus, null if none has it. */
  held() {
    for (const [side, nodes] of [["key", this.keyNodes], ["query", this.queryNodes]]) {
      const index = nodes.indexOf(document.activeElement);
      if (index >= 0) return { side, index };
    }
    return null;
  }

  /** Moves to the other column at the left or right arrow, to the token with the largest weight. */
  across(event, side, index) {
    const target = { ArrowLeft: this.keyNodes, ArrowRight: this.queryNodes }[event.key];
    if (!target) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if ((side === "key") === (target === this.keyNodes)) return;
    const sizes = target.map((_, other) => Math.abs(side === "key" ? this.weight(other, index) : this.weight(index, other)));
    target[sizes.indexOf(Math.max(...sizes))].focus();
  }

  weight(row, column) {
    return this.view.map.shown(this.view.place, row, column, this.view.samples);
  }

  /** Shows the weights of one token, or of all. */
  mark(focus) {
    this.focus = focus;
    const { map } = this.view;
    const most = this.view.samples ? 1 : map.most;
    const colours = palette();
    const shade = (nodes, side, weightOf) => nodes.forEach((node, i) => {
      const own = focus && focus.side === side && focus.index === i;
      node.classList.toggle("focused", Boolean(own));
      const weight = focus && focus.side !== side ? weightOf(i) : 0;
      const shown = Math.abs(weight) >= LEAST * most;
      const background = shown ? colour(weight, most, colours) : null;
      node.style.background = background ? css(background) : "";
      node.style.color = background ? inkOn(background) : "";
      node.lastChild.textContent = shown ? weightText(weight, most) : "";
    });
    shade(this.keyNodes, "key", (i) => this.weight(focus.index, i));
    shade(this.queryNodes, "query", (i) => this.weight(i, focus.index));
    this.draw();
  }

  draw() {
    if (!this.view || !this.body.clientWidth) return;
    const { map } = this.view;
    const box = this.body.getBoundingClientRect();
    const ends = (nodes, edge) => nodes.map((node) => {
      const at = node.getBoundingClientRect();
      return { x: at[edge] - box.left, y: (at.top + at.bottom) / 2 - box.top };
    });
    const [from, to] = [ends(this.keyNodes, "right"), ends(this.queryNodes, "left")];
    const most = this.view.samples ? 1 : map.most;
    let found = [];
    for (let row = 0; row < to.length; row++) {
      for (let column = 0; column < from.length; column++) {
        const weight = this.weight(row, column);
        if (Math.abs(weight) >= LEAST * most) found.push({ row, column, weight });
      }
    }
    if (found.length > MOST_LINES) found = found.sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight)).slice(0, MOST_LINES);
    const { focus } = this;
    this.lines.replaceChildren(...found.map(({ row, column, weight }) => {
      const [a, b] = [from[column], to[row]];
      const share = Math.abs(weight) / most;
      const on = !focus || (focus.side === "key" ? focus.index === column : focus.index === row);
      const middle = (a.x + b.x) / 2;
      return svg("path", {
        class: weight < 0 ? "link less" : "link",
        d: `M${a.x} ${a.y}C${middle} ${a.y} ${middle} ${b.y} ${b.x} ${b.y}`,
        "stroke-width": (1 + 2.5 * share).toFixed(2),
        "stroke-opacity": ((on ? 0.1 + 0.9 * share : 0.06) * (on && !focus ? 0.8 : 1)).toFixed(3),
      });
    }));
    this.lines.setAttribute("height", this.body.clientHeight);
    this.lines.setAttribute("width", this.body.clientWidth);
  }
}
