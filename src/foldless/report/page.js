"use strict";
// Tables can be sorted by a click on a heading and searched by a word; without scripts they stand as they are.
(() => {
  const LONG = 12;
  const value = (cell) => {
    const text = cell ? cell.innerText.trim() : "";
    const number = parseFloat(text.replace(/^[<>] /, "").replace("\u2212", "-").replace(/\u202f/g, ""));
    return Number.isNaN(number) ? text.toLowerCase() : number;
  };
  const before = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
  const sort = (table, column, button) => {
    const down = button.getAttribute("data-sort") !== "descending";
    for (const other of table.querySelectorAll("thead button")) other.removeAttribute("data-sort");
    button.setAttribute("data-sort", down ? "descending" : "ascending");
    for (const head of table.querySelectorAll("thead th")) head.removeAttribute("aria-sort");
    button.parentElement.setAttribute("aria-sort", down ? "descending" : "ascending");
    for (const body of table.tBodies) {
      const rows = [...body.rows].filter((row) => !row.classList.contains("heading"));
      const keys = new Map(rows.map((row) => [row, value(row.cells[column])]));
      rows.sort((a, b) => before(keys.get(a), keys.get(b)) * (down ? -1 : 1));
      body.append(...rows);
    }
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const rows = [...table.querySelectorAll("tbody tr:not(.heading)")];
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      button.addEventListener("click", () => sort(table, column, button));
      head.replaceChildren(button);
    });
    if (rows.length <= LONG) continue;
    const label = document.createElement("label");
    const input = document.createElement("input");
    label.className = "search";
    label.textContent = "Search ";
    input.type = "search";
    label.append(input);
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      for (const row of rows) row.hidden = !row.innerText.toLowerCase().includes(wanted);
    });
    table.parentElement.before(label);
  }
})();
