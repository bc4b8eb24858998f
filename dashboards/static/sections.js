// The sections of an architecture's page: rows of one suite shaped for its figures and tables.
//
// A view is {impls, orders, filter, ceilings, documented, chosen, choose}: the implementations to show, the place of each
// in the list of all, the part of a name that cells must have, the measured limits of the run's device, the rules of the
// emulator that nobody has confirmed, and the choices of the sections by name with what changes them.
"use strict";

nvfp4bench.sections = (() => {
  const { counters, dotPlot, element, timing, weights } = nvfp4bench;
  const { collator, columns, counted, distinct, groupBy, isMeasured, numeric, putTable } = nvfp4bench.rows;
  const { table, foldedTable } = nvfp4bench.tables;
  const FAILURES = ["wrong", "failed", "crashed", "timeout", "oom"];
  const { command, how, impl, number, point, sentence, status, times, tokens, workload } = columns;

  const byId = (id) => document.getElementById(id);

  const COLUMNS = {
    numerics: [
      { key: "case", label: "case", kind: "id" },
      impl,
      number("error_over_bound", "error / bound"),
      number("relative_l2", "relative L2"),
      columns.error,
      number("quantisation_relative_l2", "quantisation L2"),
      number("largest_row_error", "worst row"),
      number("lse_error", "LSE error"),
      number("magnitude_ratio", "magnitude"),
      number("cosine", "cosine"),
      number("nan_count", "NaN"),
      number("inf_count", "Inf"),
      status,
      how,
      command,
    ],
    latency: [
      workload,
      point,
      tokens,
      impl,
      ...times,
      columns.error,
      { key: "clock_mhz", label: "SM MHz", kind: "number" },
      status,
      how,
      command,
    ],
    host: [point, tokens, impl, ...times, status, how, command],
    projection: [point, number("rows", "rows"), impl, ...times, columns.error, status, how, command],
    layer: [workload, point, tokens, impl, ...times, columns.error, status, how, command],
    counters: [...counters.COLUMNS, status, how, command],
  };

  /** Draw `suite` into its section from the rows of a run. */
  function show(suite, rows, view) {
    const section = byId(suite);
    const shown = rows.filter((row) => view.impls.includes(row.impl) && row.id.includes(view.filter));
    DRAWN[suite](shown, view, rows);
    const name = `nvfp4bench-${suite}`;
    putTable(section.querySelector(".rows"), name, COLUMNS[suite], shown.filter(isMeasured));
    section.querySelector(".unmeasured").replaceChildren(...unmeasured(shown.filter((row) => !isMeasured(row)), name));
  }

  const DRAWN = {
    numerics(rows, view) {
      const marked = rows.filter(isMeasured);
      const all = distinct(rows.map((row) => row.case));
      const points = (key, stroke) => marked.map((row) => ({ ...place(row), value: numeric(row[key]), stroke }));
      const place = (row) => ({ category: row.case, impl: row.impl, how: row.how });
      const bounded = points("error_over_bound", false);
      dotPlot(byId("numerics-bound"), {
        ...view,
        label: "Kernel error over its bound, by case and implementation.",
        categories: worstFirst(all, bounded),
        points: bounded,
        xTitle: "largest error / bound",
        bound: 1,
      });
      const kernel = points("relative_l2", false);
      dotPlot(byId("numerics-l2"), {
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
      dotPlot(byId("host-steps"), {
        ...view,
        label: "Host seconds per step, by problem and implementation.",
        categories: [...new Set(points.map(({ category }) => category))],
        points,
        xTitle: "host time",
        suffix: "s",
      });
    },

    projection: weights.projections,
    layer: weights.layers,
    counters: counters.show,

    latency(rows, view, all) {
      timing.show(rows, view, all);
      byId("latency-matrix").replaceChildren(rows.length ? matrix(rows) : "No cell.");
    },
  };

  /** Implementations and workloads against points (head dims, presets): what became of the cells there. */
  function matrix(rows) {
    const points = distinct(rows.map((row) => row.point));
    const heads = [workload, impl, ...points.map((name) => ({ key: `at ${name}`, label: name, kind: "text" }))];
    const groups = groupBy(rows, (row) => [row.workload, row.impl]);
    const lines = groups.map((cells) => ({
      workload: cells[0].workload,
      impl: cells[0].impl,
      ...Object.fromEntries(points.map((name) => [`at ${name}`, tally(cells.filter((row) => row.point === name))])),
    }));
    return table(heads, lines.sort((a, b) => collator.compare(a.workload, b.workload) || collator.compare(a.impl, b.impl)));
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
    const shapes = rows.some((row) => row.workload) ? ["workload", "point"] : [];
    const groups = groupBy(rows, (row) => [row.status, row.how, row.sentence]).map((cells) => ({
      ...cells[0],
      ...Object.fromEntries(["impl", ...shapes].map((key) => [key, distinct(cells.map((row) => row[key])).join(", ")])),
      cells: cells.length,
    }));
    groups.sort((a, b) => FAILURES.includes(b.status) - FAILURES.includes(a.status) || b.cells - a.cells);
    const where = shapes.map((key) => ({ key, label: `${key}s`, kind: "list" }));
    const heads = [status, { ...impl, kind: "list" }, ...where, how, { key: "cells", label: "cells", kind: "number" }, sentence];
    const each = `Each of them: ${counted(rows.length, "cell")}`;
    return [
      element("h3", {}, "Cells without a number"),
      table(heads, groups),
      foldedTable(each, `${name}-unmeasured`, [status, impl, how, sentence, command], rows),
    ];
  }

  /** What failed in a run, each with the command that does it again. */
  function failures(rows) {
    return table([{ key: "id", label: "cell", kind: "id" }, status, how, sentence, command], rows);
  }

  /** Categories by their largest value, falling; those without a number come last. */
  function worstFirst(categories, points) {
    const worst = new Map(categories.map((name) => [name, -1]));
    for (const { category, value } of points) {
      if (value !== null) worst.set(category, Math.max(worst.get(category), value));
    }
    return [...categories].sort((a, b) => worst.get(b) - worst.get(a));
  }

  return { show, failures };
})();
