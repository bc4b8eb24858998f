// The page of instruction sets: the matrix, of which only the rows of one screen or two are in the page at a time, and the
// tables of what changed. The divide and the limits are whole without JavaScript.
"use strict";

(() => {
  const { element, load, loadRows, matrix, state, tables } = nvfp4bench;
  const ROWS_SHOWN = 50;
  const MARKS = { native: "●", emulated: "◐", nothing: "○", accepted: "◌", refused: "×" };
  const CELL_COLUMNS = ["release", "program", "family", "target", "verdict", "error_kind", "error", "opcodes", "warnings"].map(
    (key) => ({ key, kind: "text" }),
  );
  const CHANGE_COLUMNS = [
    { key: "change", label: "change", kind: "text" },
    { key: "program", label: "program", kind: "id" },
    { key: "targets", label: "targets", kind: "sentence" },
    { key: "cells", label: "cells", kind: "number" },
    { key: "was", label: "was", kind: "sentence" },
    { key: "is", label: "is", kind: "sentence" },
  ];
  const byId = (id) => document.getElementById(id);
  const targetBoxes = () => [...byId("targets").querySelectorAll("input")];
  const releases = [...byId("release").options].map(({ value }) => value);

  let whole; // the matrix of the release that is shown

  start();

  function start() {
    for (const id of ["release", "family", "verdict"]) {
      byId(id).addEventListener("change", ({ target }) => choose({ [id]: target.value || null, rows: null, program: null }));
    }
    byId("text").addEventListener("input", ({ target }) => choose({ text: target.value || null, rows: null, program: null }));
    document.querySelector("form.choices").addEventListener("submit", (event) => event.preventDefault());
    byId("targets").addEventListener("change", rememberTargets);
    for (const button of byId("targets").querySelectorAll("button")) button.addEventListener("click", pickTargets);
    addEventListener("hashchange", () => apply({ arrived: true }));
    for (const folded of document.querySelectorAll(".change")) {
      folded.addEventListener("toggle", () => showChange(folded), { once: true });
    }
    apply({ arrived: true });
  }

  function choose(changes) {
    state.write(changes);
    apply();
  }

  /** Bring the page to what the address says; whoever `arrived` by a link to a program is brought there. */
  function apply({ arrived = false } = {}) {
    const wanted = state.read();
    const release = releases.includes(wanted.release) ? wanted.release : releases[0];
    load(`isa-${release}`)
      .then((packed) => {
        if (whole?.release !== packed.release) whole = matrix.unpack(packed);
        byId("trouble").hidden = true;
        show(viewOf(wanted));
        if (arrived && wanted.program) byId("matrix-section").scrollIntoView();
      })
      .catch(complain);
  }

  /** What of the address can be followed. */
  function viewOf({ text, family, verdict, targets, rows, program }) {
    const named = targets?.split(",");
    return {
      text: text ?? "",
      family: whole.families.includes(family) ? family : "",
      verdict: [...byId("verdict").options].some(({ value }) => value === verdict) ? verdict : "",
      targets: named ? whole.targets.filter((target) => named.includes(target)) : whole.targets,
      first: rows > 0 ? Math.trunc(rows) - 1 : null, // as it is where a program is opened
      program,
    };
  }

  function show(view) {
    showChoices(view);
    const found = matrix.search(whole, view);
    const wanted = view.first ?? found.findIndex(({ id }) => id === view.program);
    const within = Math.min(Math.max(wanted, 0), Math.max(found.length - 1, 0));
    const first = within - (within % ROWS_SHOWN);
    const page = found.slice(first, first + ROWS_SHOWN);
    showPlace(found, first, page);
    keepingFocus(() => byId("matrix").replaceChildren(...(page.length && view.targets.length ? [tableOf(page, view)] : [])));
    const label = `Download ${counted(found.length * view.targets.length, "cell")} `;
    const rows = () => matrix.cells(whole, found, view);
    byId("downloads").replaceChildren(tables.downloads(label, `nvfp4bench-isa-${whole.release}`, CELL_COLUMNS, rows));
  }

  function showChoices(view) {
    byId("release").value = whole.release;
    if (byId("text").value !== view.text) byId("text").value = view.text;
    const families = whole.families.map((name) => element("option", {}, name));
    byId("family").replaceChildren(element("option", { value: "" }, "any"), ...families);
    byId("family").value = view.family;
    byId("verdict").value = view.verdict;
    byId("targets").querySelector("summary").textContent = `targets: ${view.targets.length} of ${whole.targets.length}`;
    if (targetBoxes().map(({ value }) => value).join() !== whole.targets.join()) {
      const labels = whole.targets.map((value) => element("label", {}, element("input", { type: "checkbox", value }), value));
      byId("targets").querySelector("fieldset").replaceChildren(byId("targets").querySelector("legend"), ...labels);
    }
    for (const box of targetBoxes()) box.checked = view.targets.includes(box.value);
  }

  function pickTargets({ target: { value } }) {
    for (const box of targetBoxes()) box.checked = value === "all" || (value === "chips" && box.value.endsWith("a"));
    rememberTargets();
  }

  function rememberTargets() {
    const checked = targetBoxes().filter((box) => box.checked);
    const names = checked.map((box) => box.value).join(",");
    choose({ targets: checked.length === targetBoxes().length ? null : names, rows: null });
  }

  function showPlace(found, first, page) {
    const place = page.length ? `${first + 1} to ${first + page.length} of ` : "";
    byId("shown").textContent = `${place}${counted(found.length, "program")}`;
    for (const [id, to] of [["previous", first - ROWS_SHOWN], ["next", first + ROWS_SHOWN]]) {
      byId(id).disabled = to < 0 || to >= found.length;
      byId(id).onclick = () => choose({ rows: String(to + 1), program: null });
    }
  }

  const counted = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

  /** Draw anew without taking the keyboard's place from the program it is at. */
  function keepingFocus(draw) {
    const { program } = document.activeElement.dataset;
    draw();
    const same = [...byId("matrix").querySelectorAll("button")].find((button) => button.dataset.program === program);
    if (program !== undefined) same?.focus();
  }

  function tableOf(programs, view) {
    const columns = view.targets.map((target) => whole.targets.indexOf(target));
    const heads = view.targets.map((target) =>
      element("th", { scope: "col", title: target }, target.replace("sm_", "")),
    );
    const body = programs.flatMap((program) => {
      const open = program.id === view.program;
      const row = rowOf(program, columns, open);
      return open ? [row, detailOf(program, columns.length + 1)] : [row];
    });
    return element(
      "table",
      { className: "matrix" },
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "program"), ...heads)),
      element("tbody", {}, ...body),
    );
  }

  function rowOf(program, columns, open) {
    const button = element("button", { type: "button", className: "id" }, program.id);
    button.dataset.program = program.id;
    button.setAttribute("aria-expanded", open);
    const cells = columns.map((column) => {
      const outcome = program.outcomes[column];
      const mark = element("span", { className: `mark ${outcome.verdict}` }, MARKS[outcome.verdict]);
      mark.setAttribute("role", "img");
      mark.setAttribute("aria-label", outcome.verdict);
      return element("td", { title: matrix.textOf(outcome, whole.targets[column]) }, mark);
    });
    const row = element("tr", {}, element("th", { scope: "row" }, button), ...cells);
    row.addEventListener("click", () => choose({ program: open ? null : program.id }));
    return row;
  }

  /** What became of an opened program on every target, and the program itself as soon as its file is here. */
  function detailOf(program, width) {
    const outcomes = matrix
      .byOutcome(whole, program)
      .flatMap(([outcome, targets]) => [
        element("dt", {}, targets.join(" ")),
        element("dd", {}, element("span", { className: `mark ${outcome.verdict}` }, MARKS[outcome.verdict]), ` ${matrix.textOf(outcome)}`),
      ]);
    const source = element("div", { className: "source" });
    load("isa-programs").then((programs) => showSource(source, program.id, programs)).catch(complain);
    const inside = element("div", {}, element("dl", {}, ...outcomes), source);
    return element("tr", { className: "detail" }, element("td", { colSpan: width }, inside));
  }

  function showSource(place, wanted, { software, programs }) {
    const [, ptx, directives, native] = programs.find(([id]) => id === wanted);
    const rule = native === software ? ["nothing executes it as such."] : ["native begins with ", element("code", {}, native)];
    place.replaceChildren(
      element("pre", {}, [directives, ptx].filter(Boolean).join("\n")),
      element("p", {}, "Opcodes: ", ...rule),
      element("p", {}, "Probe it again: ", element("code", {}, `nvfp4bench isa --family '${wanted}'`)),
    );
  }

  function showChange(folded) {
    const { name } = folded.dataset;
    loadRows(name)
      .then((rows) => {
        const links = tables.downloads("Download ", `nvfp4bench-${name}`, CHANGE_COLUMNS, () => rows);
        folded.append(links, tables.table(CHANGE_COLUMNS, rows));
      })
      .catch(complain);
  }

  function complain(error) {
    byId("trouble").textContent = error.message;
    byId("trouble").hidden = false;
    throw error; // so that it stands in the console too, with its place
  }
})();
