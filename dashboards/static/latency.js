// Seconds of a call over cached tokens, with what bounds them from below.
"use strict";

nvfp4bench.latency = (() => {
  const { format, overContext, roofline } = nvfp4bench;
  const { charged, columns, partsOf, putTable } = nvfp4bench.rows;
  const BOUNDED = ["latency", "charge", "total", "eager"]; // GPU time of the whole call: the others are of another thing
  const REPLAYED = ["latency", "attend", "charge"];
  const EMPTY_GRAPHS = { empty_graph_1_seconds: "empty graph, 1 launch:", empty_graph_2_seconds: "empty graph, 2 launches:" };

  /** `rows` are of one workload and point; `series` is that to draw, "charge" for what is `charged`, and `named` in words. */
  function draw({ figure, table }, rows, { title, series, named, kvLens, impls, orders, ceilings }) {
    const isCharge = series === "charge";
    const ofSeries = isCharge ? charged(rows) : rows.filter((row) => row.series === series);
    const drawn = ofSeries.map((row) => ({ ...row, bound: BOUNDED.includes(series) ? roofline.boundOf(row, ceilings) : null }));
    const bounds = new Map(drawn.filter(({ bound }) => bound !== null).map(({ kv_len, bound }) => [kv_len, bound]));
    overContext(figure, {
      ...{ label: `${named} of ${title} against cached tokens.`, kvLens, impls, orders, side: "right" },
      points: drawn.map(isCharge ? chargePoint : point),
      axis: { ticksuffix: "s", exponentformat: "SI" },
      levels: REPLAYED.includes(series) ? emptyGraphs(ceilings) : [],
      bound: [...bounds].sort(([a], [b]) => a - b),
    });
    const shown = columnsOf(isCharge ? columns.charge : columns.times);
    putTable(table, "nvfp4bench-latency-context", shown, drawn);
  }

  function point({ impl, how, kv_len, median, q25, q75, series, samples, status }) {
    const words = [`${format(median, "s")} (${format(q25, "s")} to ${format(q75, "s")})`, `${series}, ${samples} samples, ${status}`];
    return { impl, how, kv_len, value: median, low: q25, high: q75, text: words.join("<br>") };
  }

  function chargePoint({ impl, how, kv_len, charge, status, ...parts }) {
    const words = [`${format(charge, "s")}: ${partsOf(parts)}`, status];
    return { impl, how, kv_len, value: charge, text: words.join("<br>") };
  }

  function emptyGraphs(ceilings) {
    return Object.entries(EMPTY_GRAPHS)
      .filter(([name]) => ceilings.has(name))
      .map(([name, text]) => ({ value: ceilings.get(name), text: `${text} ${format(ceilings.get(name), "s")}` }));
  }

  const columnsOf = (times) => [
    columns.tokens,
    columns.impl,
    ...times,
    columns.number("bound", "bound", "s"),
    columns.status,
    columns.how,
    columns.command,
  ];

  return { draw };
})();
