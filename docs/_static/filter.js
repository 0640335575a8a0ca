"use strict";
// A page with long tables gets a box: only rows with all of its words stay, and sections that have such rows.

document.addEventListener("DOMContentLoaded", () => {
  const article = document.querySelector("article.bd-article");
  const rows = article ? [...article.querySelectorAll("table.table tbody tr")] : [];
  if (rows.length < 80) return;
  const box = document.createElement("input");
  Object.assign(box, { type: "search", className: "filter", placeholder: `Filter ${rows.length} rows of tables` });
  box.setAttribute("aria-label", box.placeholder);
  article.querySelector("h1").after(box);
  const text = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => text.get(row).includes(word));
    for (const part of article.querySelectorAll("section section, div.pst-scrollable-table-container, table.table")) {
      part.hidden = words.length > 0 && !part.querySelector("tbody tr:not([hidden])");
    }
  });
});
