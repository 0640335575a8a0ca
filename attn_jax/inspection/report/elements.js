"use strict";
// Makes elements. Text reaches the page as text nodes alone, so nothing in the data is read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Makes an HTML element; `on...` attributes are listeners, children are elements or texts. */
function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Makes an SVG element. */
function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Makes a labelled select of [value, text] pairs. */
function choice(label, options, value, onchange) {
  const select = el("select", { onchange: () => onchange(select.value) });
  for (const [each, text] of options) select.append(el("option", { value: each }, text));
  select.value = value;
  return el("label", { class: "choice" }, el("span", {}, label), select);
}

/** Writes a number with at most `digits` significant digits; "–" for none. */
function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const text = Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-4)
    ? value.toExponential(Math.max(0, digits - 1))
    : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−");
}

/** Writes a weight so that the weights of a map can be compared: with two decimals where the largest is near one. */
function weightText(weight, most) {
  return most >= 0.3 ? weight.toFixed(2).replace("-", "−") : number(weight, 2);
}

/** Writes a token on one line: spaces at its ends and control characters become visible. */
function visible(token, longest = Infinity) {
  const spaces = (text) => "␣".repeat(text.length);
  const shown = token === "" ? "∅" : token.replace(/^\s+|\s+$/gu, spaces).replace(/\s+/gu, " ").replace(/\p{C}/gu, "�");
  return [...shown].length > longest ? [...shown].slice(0, longest - 1).join("") + "…" : shown;
}

/** Moves the focus among elements with the arrow keys; only one of them is in the tab order. */
function roving(nodes, columns = 1) {
  nodes.forEach((node, i) => {
    node.tabIndex = i === 0 ? 0 : -1;
    node.addEventListener("focus", () => nodes.forEach((other) => { other.tabIndex = other === node ? 0 : -1; }));
    node.addEventListener("keydown", (event) => {
      const step = { ArrowDown: columns, ArrowUp: -columns, ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const next = event.key === "Home" ? 0 : event.key === "End" ? nodes.length - 1 : i + step;
      if (nodes[next]) {
        event.preventDefault();
        nodes[next].focus();
      }
    });
  });
}

const onResize = [];  // functions that draw again
const dark = window.matchMedia("(prefers-color-scheme: dark)");
let pending = 0;

function drawAgain() {
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(() => onResize.forEach((draw) => draw()));
}

window.addEventListener("resize", drawAgain);
dark.addEventListener("change", drawAgain);
