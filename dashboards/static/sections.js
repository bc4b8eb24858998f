// The sections of an architecture's page: rows of one suite shaped for its figures and tables.
//
// A view is {impls, orders, filter, workload, series, choose}: the implementations to show, the place of each in the
// list of all, the part of a name that cells must have, and the choices of the latency section with what changes them.
"use strict";

nvfp4bench.sections = (() => {
  const { element, figures, format, tokens } = nvfp4bench;
  const { table, foldedTable } = nvfp4bench.tables;
  const FAILURES = ["wrong", "failed", "crashed", "timeout", "oom"];
  const collator = new Intl.Collator("en", { numeric: true });

  const byId = (id) => document.getElementById(id);
  const distinct = (values) => [...new Set(values)].sort(collator.compare);
  const commandOf = (row) => `nvfp4bench cell ${row.id}`;

  const number = (key, label, suffix) => ({ key, label, kind: "number", text: (row) => format(row[key], suffix) });
  const IMPL = { key: "impl", label: "implementation", kind: "id" };
  const HOW = { key: "how", label: "how", kind: "text" };
  const STATUS = { key: "status", label: "status", kind: "status" };
  const SENTENCE = { key: "sentence", label: "reason", kind: "sentence" };
  const COMMAND = { key: "id", label: "reproduce", kind: "command", text: commandOf };
  const TIMES = [
    { key: "series", label: "series", kind: "text" },
    number("median", "median", "s"),
    number("q25", "1st quartile", "s"),
    number("q75", "3rd quartile", "s"),
    number("minimum", "minimum", "s"),
    number("samples", "samples"),
  ];
  const COLUMNS = {
    numerics: [
      { key: "case", label: "case", kind: "id" },
      IMPL,
      number("error_over_bound", "error / bound"),
      number("relative_l2", "relative L2"),
      number("quantisation_relative_l2", "quantisation L2"),
      number("largest_row_error", "worst row"),
      number("lse_error", "LSE error"),
      number("magnitude_ratio", "magnitude"),
      number("cosine", "cosine"),
      number("nan_count", "NaN"),
      number("inf_count", "Inf"),
      STATUS,
      HOW,
      COMMAND,
    ],
    latency: [
      { key: "workload", label: "workload", kind: "id" },
      { key: "point", label: "point", kind: "id" },
      { key: "kv_len", label: "tokens", kind: "number" },
      IMPL,
      ...TIMES,
      { key: "clock_mhz", label: "SM MHz", kind: "number" },
      STATUS,
      HOW,
      COMMAND,
    ],
    host: [
      { key: "point", label: "point", kind: "id" },
      { key: "kv_len", label: "tokens", kind: "number" },
      IMPL,
      ...TIMES,
      STATUS,
      HOW,
      COMMAND,
    ],
  };

  /** Draw `suite` into its section from the rows of a run. */
  function show(suite, rows, view) {
    const section = byId(suite);
    const shown = rows.filter((row) => view.impls.includes(row.impl) && row.id.includes(view.filter));
    DRAWN[suite](shown, view);
    const measured = shown.filter(isMeasured);
    const name = `nvfp4bench-${suite}`;
    section.querySelector(".rows").replaceChildren(
      ...(measured.length ? [foldedTable(`Table: ${counted(measured.length, "row")}`, name, COLUMNS[suite], measured)] : []),
    );
    section.querySelector(".unmeasured").replaceChildren(...unmeasured(shown.filter((row) => !isMeasured(row)), name));
  }

  const isMeasured = (row) => row.status === "ok" || row.status === "wrong";
  const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

  const DRAWN = {
    numerics(rows, view) {
      const marked = rows.filter(isMeasured);
      const all = distinct(rows.map((row) => row.case));
      const points = (key, stroke) => marked.map((row) => ({ ...place(row), value: numeric(row[key]), stroke }));
      const place = (row) => ({ category: row.case, impl: row.impl, how: row.how });
      const bounded = points("error_over_bound", false);
      figures.dotPlot(byId("numerics-bound"), {
        ...view,
        label: "Kernel error over its bound, by case and implementation.",
        categories: worstFirst(all, bounded),
        points: bounded,
        xTitle: "largest error / bound",
        bound: 1,
      });
      const kernel = points("relative_l2", false);
      figures.dotPlot(byId("numerics-l2"), {
        ...view,
        label: "Relative L2 error of the kernel and of the quantisation, by case and implementation.",
        categories: worstFirst(all, kernel),
        points: [...kernel, ...points("quantisation_relative_l2", true)],
        xTitle: "relative L2 error",
      });
    },

    host(rows, view) {
      const steps = groupBy(rows.filter(isMeasured), (row) => [row.series]); // in the order they happen in
      const points = steps.flat().map((row) => ({
        category: `${row.series}  ${row.point} kv${row.kv_len}`,
        impl: row.impl,
        how: row.how,
        value: row.median,
        low: row.q25,
        high: row.q75,
        stroke: false,
      }));
      figures.dotPlot(byId("host-steps"), {
        ...view,
        label: "Host seconds per step, by problem and implementation.",
        categories: [...new Set(points.map(({ category }) => category))],
        points,
        xTitle: "host time",
        suffix: "s",
      });
    },

    latency(rows, view) {
      const measured = rows.filter(isMeasured);
      const workload = choose("workload", distinct(rows.map((row) => row.workload)), view, "decode");
      const series = choose("series", distinct(measured.map((row) => row.series)), view, "latency");
      const ofWorkload = rows.filter((row) => row.workload === workload && row.kv_len !== null);
      const drawn = ofWorkload.filter((row) => isMeasured(row) && row.series === series);
      drawLatency(ofWorkload, drawn, workload, series, view);
      byId("latency-matrix").replaceChildren(rows.length ? matrix(rows) : "No cell.");
    },
  };

  function drawLatency(cells, drawn, workload, series, view) {
    const grid = byId("latency-figures");
    if (!drawn.length) {
      grid.replaceChildren(element("p", { className: "empty" }, "No number to draw: see the reasons below."));
      return;
    }
    const kvLens = [...new Set(cells.map((row) => row.kv_len))].sort((a, b) => a - b);
    const ends = drawn.flatMap((row) => [row.q25, row.q75]).filter((x) => x > 0).map(Math.log10);
    const range = [Math.min(...ends) - 0.15, Math.max(...ends) + 0.15];
    const figuresOf = distinct(drawn.map((row) => row.point)).map((point) => {
      const plot = element("div", { className: "plot", id: `latency-${point}` });
      const title = element("figcaption", {}, element("strong", {}, point || workload), ` ${workload}, ${series}`);
      return [point, plot, element("figure", {}, title, plot)];
    });
    grid.replaceChildren(...figuresOf.map(([, , figure]) => figure)); // in the page before it is drawn: it has a width then
    for (const [point, plot] of figuresOf) {
      const rows = drawn.filter((row) => row.point === point);
      const label = `${series} of ${workload} at ${point} against cached tokens.`;
      figures.latency(plot, { ...view, label, rows, kvLens, range });
    }
  }

  /** Fill a select with `names`, and return the one that is chosen: the view's, else `preferred`, else the first. */
  function choose(id, names, view, preferred) {
    const select = byId(id);
    select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    select.disabled = names.length < 2;
    select.onchange = () => view.choose({ [id]: select.value });
    const chosen = [view[id], preferred, names[0]].find((name) => names.includes(name));
    select.value = chosen ?? "";
    return chosen;
  }

  /** Implementations and workloads against points (head dims, presets): what became of the cells there. */
  function matrix(rows) {
    const points = distinct(rows.map((row) => row.point));
    const columns = [
      { key: "workload", label: "workload", kind: "id" },
      IMPL,
      ...points.map((point) => ({ key: `at ${point}`, label: point, kind: "text" })),
    ];
    const groups = groupBy(rows, (row) => [row.workload, row.impl]);
    const lines = groups.map((cells) => ({
      workload: cells[0].workload,
      impl: cells[0].impl,
      ...Object.fromEntries(points.map((point) => [`at ${point}`, tally(cells.filter((row) => row.point === point))])),
    }));
    return table(columns, lines.sort((a, b) => collator.compare(a.workload, b.workload) || collator.compare(a.impl, b.impl)));
  }

  /** "5 ok", "3 ok, 2 failed": cells, not series, counted by status. */
  function tally(rows) {
    const statuses = new Map(rows.map((row) => [row.id, row.status]));
    return groupBy([...statuses.values()], (status) => [status])
      .map((same) => `${same.length} ${same[0]}`)
      .join(", ");
  }

  /** Cells without a number, those with the same reason together, failures first; nothing where there are none. */
  function unmeasured(rows, name) {
    if (!rows.length) return [];
    const groups = groupBy(rows, (row) => [row.status, row.how, row.sentence]).map((cells) => ({
      ...cells[0],
      impl: distinct(cells.map((row) => row.impl)).join(", "),
      cells: cells.length,
    }));
    groups.sort((a, b) => FAILURES.includes(b.status) - FAILURES.includes(a.status) || b.cells - a.cells);
    const columns = [STATUS, IMPL, HOW, { key: "cells", label: "cells", kind: "number" }, SENTENCE];
    const each = `Each of them: ${counted(rows.length, "cell")}`;
    return [
      element("h3", {}, "Cells without a number"),
      table(columns, groups),
      foldedTable(each, `${name}-unmeasured`, [STATUS, IMPL, HOW, SENTENCE, COMMAND], rows),
    ];
  }

  /** What failed in a run, each with the command that does it again. */
  function failures(rows) {
    return table([{ key: "id", label: "cell", kind: "id" }, STATUS, HOW, SENTENCE, COMMAND], rows);
  }

  function groupBy(items, keyOf) {
    const groups = new Map();
    for (const item of items) {
      const key = JSON.stringify(keyOf(item));
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(item);
    }
    return [...groups.values()];
  }

  /** Categories by their largest value, falling; those without a number come last. */
  function worstFirst(categories, points) {
    const worst = new Map(categories.map((name) => [name, -1]));
    for (const { category, value } of points) {
      if (value !== null) worst.set(category, Math.max(worst.get(category), value));
    }
    return [...categories].sort((a, b) => worst.get(b) - worst.get(a));
  }

  const numeric = (value) => (value === null || value === undefined ? null : value === "inf" ? Infinity : value);

  return { show, failures };
})();
