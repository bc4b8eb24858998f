// An architecture's page: which machine, run and implementations it shows, and when each section is drawn.
"use strict";

(() => {
  const { element, load, loadRows, marks, sections, state } = nvfp4bench;
  const byId = (id) => document.getElementById(id);
  const form = document.querySelector("form.bar");
  const suites = [...document.querySelectorAll("section.suite")];
  const inSight = new Set(); // sections that have come near the window: only those fetch and draw

  /** {impls: [[implementation, its place in the list of all], ...], runs: [run, the newest first]} */
  let index;
  let run;

  load(form.dataset.arch).then(start).catch(complain);

  function start(loaded) {
    index = loaded;
    byId("machine").append(...options([...new Set(index.runs.map(({ machine }) => machine))].sort()));
    byId("machine").addEventListener("change", ({ target }) => choose({ run: runsOf(target.value)[0].key }));
    byId("run").addEventListener("change", ({ target }) => choose({ run: target.value }));
    byId("filter").addEventListener("input", ({ target }) => choose({ cells: target.value || null }));
    listImplementations();
    addEventListener("hashchange", apply);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
    apply();
    const observer = new IntersectionObserver(arrive, { rootMargin: "400px" });
    suites.forEach((section) => observer.observe(section));
  }

  function arrive(entries) {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting || inSight.has(target.id)) continue;
      inSight.add(target.id);
      draw(target.id);
    }
  }

  function choose(changes) {
    state.write(changes);
    apply();
  }

  /** Bring the page to what the address says. */
  function apply() {
    const wanted = state.read();
    run = index.runs.find(({ key }) => key === wanted.run) ?? index.runs[0];
    byId("machine").value = run.machine;
    byId("run").replaceChildren(...options(runsOf(run.machine).map(({ key }) => key), labelOf));
    byId("run").value = run.key;
    if (byId("filter").value !== (wanted.cells ?? "")) byId("filter").value = wanted.cells ?? "";
    byId("trouble").hidden = true;
    checkImplementations(wanted.impl);
    showRun();
    inSight.forEach(draw);
  }

  const runsOf = (machine) => index.runs.filter((one) => one.machine === machine);
  const options = (values, label = (value) => value) => values.map((value) => element("option", { value }, label(value)));

  function labelOf(key) {
    const { started, commit, counts } = index.runs.find((one) => one.key === key);
    const words = counts.map(([word, count]) => `${count} ${word}`).join(", ");
    return [started.replace("T", " ").replace("Z", ""), commit, words].join(" · ");
  }

  function listImplementations() {
    const boxes = index.impls.map(([name, order]) => {
      const box = element("input", { type: "checkbox", value: name });
      box.addEventListener("change", rememberImplementations);
      return element("label", {}, box, marks.glyph(marks.lookOf(order)), name);
    });
    byId("impls").append(...boxes);
  }

  function checkImplementations(wanted) {
    const chosen = wanted?.split(",");
    for (const box of byId("impls").querySelectorAll("input")) box.checked = chosen?.includes(box.value) ?? true;
  }

  function rememberImplementations() {
    const checked = checkedImplementations();
    choose({ impl: checked.length === index.impls.length ? null : checked.join(",") });
  }

  const checkedImplementations = () => [...form.querySelectorAll("input:checked")].map((box) => box.value);

  function showRun() {
    const words = run.counts.map(([word, count]) => element("span", { className: `status ${word}` }, `${count} ${word}`));
    byId("counts").replaceChildren(...(words.length ? words : ["This run ended before its first cell."]));
    byId("facts").replaceChildren(...run.facts.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));
    byId("failures").hidden = !run.failures.length;
    byId("failures-table").replaceChildren(...(run.failures.length ? [sections.failures(run.failures)] : []));
    for (const section of suites) section.hidden = !run.suites.includes(section.id);
  }

  /** Fetch the rows of a suite of the run, and draw them unless another run has been chosen meanwhile. */
  function draw(suite) {
    if (!run.suites.includes(suite)) return;
    const { key } = run;
    loadRows(`${key}-${suite}`)
      .then((rows) => key === run.key && sections.show(suite, rows, view()))
      .catch(complain);
  }

  function view() {
    const { cells = "", ...chosen } = state.read();
    const ceilings = new Map(run.ceilings);
    return { impls: checkedImplementations(), orders: new Map(index.impls), filter: cells, ceilings, documented: run.documented, chosen, choose };
  }

  function complain(error) {
    byId("trouble").textContent = error.message;
    byId("trouble").hidden = false;
    throw error; // so that it stands in the console too, with its place
  }
})();
