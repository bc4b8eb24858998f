// The page of kernels: what each became on every architecture, against what that allows.
"use strict";

(() => {
  const { element, load, loadRows, marks, plot, state, tables } = nvfp4bench;
  const { collator, columns, distinct, groupBy, isMeasured, putTable } = nvfp4bench.rows;
  const byId = (id) => document.getElementById(id);
  const count = (key, label) => ({ key, label, kind: "number" });
  const reproduced = ({ impl, arch, head_dim }) => `nvfp4bench kernels --impl ${impl} --arch ${arch} --head-dim ${head_dim}`;
  const TABLE = [
    columns.impl,
    { key: "arch", label: "architecture", kind: "id" },
    { key: "head_dim", label: "head dim", kind: "text" },
    { key: "work", label: "work", kind: "text" },
    { key: "kernel", label: "kernel", kind: "id" },
    count("registers", "registers"),
    count("shared_bytes", "shared memory, bytes"),
    count("shared_limit", "of"),
    count("warps_per_sm", "warps of an SM"),
    count("warps_limit", "of"),
    count("spill_bytes", "spilt bytes"),
    count("local_bytes", "local bytes"),
    count("threads", "threads"),
    count("instructions", "instructions"),
    columns.how,
    { key: "id", label: "reproduce", kind: "command", text: reproduced },
  ];
  const REASONS = [
    columns.impl,
    { key: "arches", label: "architectures", kind: "list" },
    columns.status,
    columns.sentence,
    { key: "id", label: "reproduce", kind: "command", text: reproduced },
  ];
  const FIGURES = [
    { id: "kernels-shared", key: "shared_bytes", unit: 1024, title: "KiB of a block" },
    { id: "kernels-registers", key: "registers", unit: 1, title: "registers of a thread" },
    { id: "kernels-warps", key: "warps_per_sm", unit: 1, title: "warps of an SM" },
    { id: "kernels-spills", key: "spill_bytes", unit: 1, title: "bytes of a thread" },
  ];

  /** {impls: [[name, its place in the list of all]], limits: [{arch, ...}], runs: [run, the newest first]} */
  let index;

  load("static").then(start).catch(complain);

  function start(loaded) {
    index = loaded;
    byId("run").replaceChildren(...index.runs.map(({ key, label }) => element("option", { value: key }, label)));
    for (const id of ["run", "work", "dim"]) byId(id).addEventListener("change", ({ target }) => choose({ [id]: target.value }));
    document.querySelector("form.choices").addEventListener("submit", (event) => event.preventDefault());
    addEventListener("hashchange", apply);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
    apply();
  }

  function choose(changes) {
    state.write(changes);
    apply();
  }

  /** Bring the page to what the address says. */
  function apply() {
    const wanted = state.read();
    const run = index.runs.find(({ key }) => key === wanted.run) ?? index.runs[0];
    byId("run").value = run.key;
    byId("reproduce").textContent = run.command;
    byId("facts").replaceChildren(...run.facts.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));
    loadRows(`${run.key}-static`).then((rows) => show(rows, wanted)).catch(complain);
  }

  /** The value of a select that offers `values`: the wanted one, else the first. */
  function offered(id, values, wanted) {
    byId(id).replaceChildren(...values.map((value) => element("option", { value }, value)));
    byId(id).value = values.includes(wanted) ? wanted : values[0];
    byId(id).disabled = values.length < 2;
    return byId(id).value;
  }

  function show(rows, wanted) {
    byId("trouble").hidden = true;
    const work = offered("work", distinct(rows.map((row) => row.work)), wanted.work);
    const ofWork = rows.filter((row) => row.work === work);
    const dim = offered("dim", distinct(ofWork.map((row) => row.head_dim)), wanted.dim);
    const shown = ofWork.filter((row) => row.head_dim === dim);
    const kernels = shown.filter(isMeasured);
    const here = new Set(kernels.map(({ impl }) => impl));
    const impls = index.impls.filter(([name]) => here.has(name));
    const glyphs = impls.map(([name, order]) => element("li", {}, marks.glyph(marks.lookOf(order)), name));
    byId("kernels-legend").replaceChildren(...glyphs);
    for (const figure of FIGURES) draw(figure, kernels, impls, `${work}, head dim ${dim}`);
    putTable(byId("kernels-table"), `nvfp4bench-kernels-${work}-d${dim}`, TABLE, kernels);
    byId("kernels-unmeasured").replaceChildren(...unmeasured(shown.filter((row) => !isMeasured(row))));
  }

  /** Marks of every kernel over the architectures from left to right, and the limit of each as a dashed line. */
  function draw({ id, key, unit, title }, kernels, impls, what) {
    const target = byId(id);
    if (!kernels.length) {
      plot.leaveEmpty(target, "No kernel to draw: see the reasons below.");
      return;
    }
    const place = new Map(index.limits.map(({ arch }, number) => [arch, number]));
    const traces = impls.map(([impl, order], number) => {
      const mine = kernels.filter((row) => row.impl === impl && place.has(row.arch));
      const offset = impls.length > 1 ? (number / (impls.length - 1) - 0.5) * 0.7 : 0;
      const look = marks.lookOf(order);
      const colour = marks.colourOf(look);
      return {
        type: "scatter",
        mode: "markers",
        x: mine.map(({ arch }) => place.get(arch) + offset),
        y: mine.map((row) => row[key] / unit),
        text: mine.map((row) => wordsOf(row, key)),
        hovertemplate: "%{text}<extra></extra>",
        cliponaxis: false,
        marker: { color: colour, symbol: mine.map(({ how }) => marks.symbolFor(look, how)), size: 8, line: { color: colour } },
      };
    });
    const limited = index.limits.filter((limit) => limit[key] !== undefined);
    const ends = limited.map((limit) => [place.get(limit.arch), limit[key] / unit]);
    const lines = {
      type: "scatter",
      mode: "lines",
      x: ends.flatMap(([x]) => [x - 0.45, x + 0.45, null]),
      y: ends.flatMap(([, y]) => [y, y, null]),
      hoverinfo: "skip",
      line: plot.boundStyle(),
    };
    plot.draw(target, `${title} of the kernels of ${what} on each architecture, with its limit.`, [...traces, lines], {
      height: 300,
      xaxis: { range: [-0.6, index.limits.length - 0.4], tickvals: [...place.values()], ticktext: [...place.keys()], tickangle: -45 },
      yaxis: { rangemode: "tozero", exponentformat: "none", title: { text: title, standoff: 6 } },
    });
  }

  function wordsOf(row, key) {
    const limit = index.limits.find(({ arch }) => arch === row.arch)[key];
    const value = limit === undefined ? row[key] : `${row[key]} of ${limit}`;
    return `${row.impl}: ${row.kernel}<br>${row.arch}, head dim ${row.head_dim}: ${value}<br>${row.how}`;
  }

  /** A table of what has no kernel, each reason once for an implementation. */
  function unmeasured(rows) {
    const groups = groupBy(rows, (row) => [row.impl, row.status, row.sentence]);
    const told = groups.map((group) => ({ ...group[0], arches: group.map(({ arch }) => arch).join(" ") }));
    const sorted = told.sort((a, b) => collator.compare(a.impl, b.impl));
    return sorted.length ? [element("h3", {}, "Without a kernel, and why"), tables.table(REASONS, sorted)] : [];
  }

  function complain(error) {
    byId("trouble").textContent = error.message;
    byId("trouble").hidden = false;
    throw error; // so that it stands in the console too, with its place
  }
})();
