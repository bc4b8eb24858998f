// Error against time at one shape: what accuracy costs, or buys.
"use strict";

nvfp4bench.tradeoff = (() => {
  const { format, marks, plot } = nvfp4bench;
  const { charged, columns, numeric, partsOf, putTable } = nvfp4bench.rows;
  const EDGE = 0.25; // decades between the outermost mark and the frame

  /** One mark per implementation from the rows of one workload, point and number of tokens. */
  function draw({ figure, table }, rows, { title, impls, orders }) {
    const costs = charged(rows);
    const points = costs.map((row) => ({ ...row, error: numeric(row.exact_relative_l2) })).filter(({ error }) => error !== null);
    putTable(table, "nvfp4bench-latency-errors", COLUMNS, costs);
    if (!points.length) {
      plot.leaveEmpty(figure, costs.length ? "No error was recorded at this shape." : "No number to draw: see the reasons below.");
      return;
    }
    const x = plot.rangeOf(points.map(({ charge }) => charge), EDGE);
    const y = plot.rangeOf(points.map(({ error }) => error), EDGE);
    const shown = impls.flatMap((impl) => points.filter((point) => point.impl === impl));
    plot.draw(figure, `Exact relative L2 error against time, ${title}.`, shown.map((point) => mark(point, orders, y)), {
      height: 360,
      xaxis: {
        ...{ type: "log", range: x, ticksuffix: "s", exponentformat: "SI" },
        title: { text: "latency, plus converting the cache", standoff: 6 },
        ...plot.decades(x, figure.clientWidth / 60),
      },
      yaxis: {
        ...{ type: "log", range: y, title: { text: "exact relative L2 error", standoff: 6 }, exponentformat: "none" },
        ...plot.decades(y, 6),
      },
    });
  }

  /** An error of 0, or an infinite one, is a hollow arrow at the frame: no logarithmic axis can hold it. */
  function mark({ impl, how, status, charge, error, ...parts }, orders, [low, high]) {
    const look = marks.lookOf(orders.get(impl));
    const colour = marks.colourOf(look);
    const held = error > 0 && Number.isFinite(error);
    const arrow = error === 0 ? "triangle-down-open" : "triangle-up-open";
    const words = [impl, `${format(charge, "s")}: ${partsOf(parts)}`, `error ${format(error)}, ${status}`, how];
    return {
      type: "scatter",
      mode: "markers",
      name: impl,
      x: [charge],
      y: [held ? error : 10 ** (error === 0 ? low : high)],
      text: [words.join("<br>")],
      hovertemplate: "%{text}<extra></extra>",
      cliponaxis: false,
      marker: { color: colour, symbol: held ? marks.symbolFor(look, how) : arrow, size: 11, line: { color: colour, width: 1 } },
    };
  }

  const COLUMNS = [
    columns.impl,
    columns.error,
    ...columns.charge,
    columns.number("cache_bytes", "cache bytes"),
    { key: "cache_layout", label: "cache layout", kind: "text" },
    columns.status,
    columns.how,
    columns.command,
  ];

  return { draw };
})();
