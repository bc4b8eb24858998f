// Tables: sorted by a click on a column's head, and handed out as CSV and JSON.
// Text goes into the page as text nodes only: what a journal says is never read as HTML.
"use strict";

window.nvfp4bench ??= {};

/** An element with properties and children; strings become text. */
nvfp4bench.element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

nvfp4bench.tables = (() => {
  const { element } = nvfp4bench;
  const collator = new Intl.Collator("en", { numeric: true });

  /** Make the heads of a table sort its body. A cell sorts by its data-value where it has one, else by its text. */
  function makeSortable(table) {
    for (const head of table.tHead.rows[0].cells) {
      const button = element("button", { type: "button" }, ...head.childNodes);
      button.addEventListener("click", () => sort(table, head));
      head.replaceChildren(button);
    }
  }

  function sort(table, head) {
    const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    const body = table.tBodies[0];
    const sign = direction === "ascending" ? 1 : -1;
    const keyed = [...body.rows].map((row) => [keyOf(row.cells[head.cellIndex]), row]);
    keyed.sort(([a], [b]) => compare(a, b, sign));
    body.append(...keyed.map(([, row]) => row));
  }

  function keyOf(cell) {
    const { value } = cell.dataset;
    if (value === undefined) return cell.textContent;
    return value === "" ? null : Number(value);
  }

  /** What has no value comes last, whichever way the rest goes. */
  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "number" ? a - b : collator.compare(a, b));
  }

  /**
   * A table of `rows`. A column is {key, label, kind, text}: `text(row)` is what is shown and row[key] what it sorts by
   * and what is downloaded; kind is "text", "list", "id", "number", "status", "sentence" or "command".
   */
  function table(columns, rows) {
    const heads = columns.map(({ kind, label }) =>
      element("th", { scope: "col", className: kind === "number" ? "number" : "" }, label),
    );
    const body = rows.map((row) => element("tr", {}, ...columns.map((column) => cell(column, row))));
    const made = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body));
    makeSortable(made);
    return element("div", { className: "scroll" }, made);
  }

  const classOf = (column) => (column.kind === "text" || column.kind === "command" ? "" : column.kind);

  function cell(column, row) {
    const value = row[column.key] ?? null;
    const text = column.text ? column.text(row) : String(value ?? "");
    const made = element("td", { className: column.kind === "status" ? "" : classOf(column) });
    if (column.kind === "number") made.dataset.value = value === null ? "" : value === "inf" ? "Infinity" : value;
    if (column.kind === "status") made.append(element("span", { className: `status ${value}` }, text));
    else if (column.kind === "command") made.append(element("code", {}, text));
    else made.append(text);
    return made;
  }

  /** `table` behind a summary, made when it is first opened, with its rows to download as `name`.csv and .json. */
  function foldedTable(summary, name, columns, rows) {
    const folded = element("details", { className: "rows-of" }, element("summary", {}, summary));
    folded.addEventListener(
      "toggle",
      () => folded.append(downloads("Download ", name, columns, () => rows), table(columns, rows)),
      { once: true },
    );
    return folded;
  }

  /** Links to the rows as `name`.csv and .json behind a `label`; `rowsOf` is asked for them when one is followed. */
  function downloads(label, name, columns, rowsOf) {
    const csv = download("CSV", `${name}.csv`, "text/csv", () => toCsv(columns, rowsOf()));
    const json = download("JSON", `${name}.json`, "application/json", () => JSON.stringify(rowsOf(), null, 1));
    return element("div", { className: "downloads" }, label, csv, json);
  }

  /** A link whose file is made when it is followed. */
  function download(label, name, type, content) {
    const link = element("a", { href: "#", download: name }, label);
    link.addEventListener("click", () => {
      link.href = URL.createObjectURL(new Blob([content()], { type }));
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
    return link;
  }

  function toCsv(columns, rows) {
    const valueOf = (column, row) => (column.kind === "command" ? column.text(row) : (row[column.key] ?? ""));
    const lines = rows.map((row) => columns.map((column) => quoted(valueOf(column, row))));
    return [columns.map((column) => quoted(column.key)), ...lines].map((line) => `${line.join(",")}\r\n`).join("");
  }

  /** One CSV field. An apostrophe stands before text that a spreadsheet would take for a formula. */
  function quoted(value) {
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  return { makeSortable, table, foldedTable, downloads, toCsv };
})();
