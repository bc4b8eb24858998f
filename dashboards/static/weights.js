// The sections of products with NVFP4 weights, and of layers made of them.
"use strict";

nvfp4bench.weights = (() => {
  const { element, format, overContext, roofline } = nvfp4bench;
  const { charged, columns, distinct, isMeasured, putTable } = nvfp4bench.rows;
  const { table } = nvfp4bench.tables;
  const ROWS = { title: "rows of x", unit: "rows" };

  const byId = (id) => document.getElementById(id);
  const isLatency = (row) => isMeasured(row) && row.series === "latency";

  /** Seconds over rows of one shape of weights, with the bound; the time to copy the weights is a level. */
  function projections(rows, view) {
    const names = distinct(rows.map((row) => row.point));
    const select = byId("weights");
    select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    select.disabled = names.length < 2;
    select.onchange = () => view.choose({ weights: select.value });
    const chosen = names.includes(view.chosen.weights) ? view.chosen.weights : names[0];
    select.value = chosen ?? "";
    const here = rows.filter((row) => isLatency(row) && row.point === chosen).map((row) => ({ ...row, kv_len: row.rows }));
    const bounds = new Map(here.map((row) => [row.kv_len, roofline.boundOf(row, view.ceilings)]));
    overContext(byId("projection-rows"), {
      ...{ label: `Latency of ${chosen} against rows.`, impls: view.impls, orders: view.orders, along: ROWS },
      kvLens: distinct(here.map((row) => String(row.kv_len))).map(Number),
      points: here.map(point),
      axis: { ticksuffix: "s", exponentformat: "SI" },
      levels: copied(here, view.ceilings),
      side: "right",
      bound: [...bounds].filter(([, bound]) => bound !== null).sort(([a], [b]) => a - b),
    });
    putTable(byId("projection-rates"), "nvfp4bench-projection-rates", RATES, here.map((row) => rated(row, view.ceilings)));
  }

  function point({ impl, how, kv_len, median, q25, q75, samples, status }) {
    const words = [`${format(median, "s")} (${format(q25, "s")} to ${format(q75, "s")})`, `${samples} samples, ${status}`];
    return { impl, how, kv_len, value: median, low: q25, high: q75, text: words.join("<br>") };
  }

  /** The time in which a copy moves as many bytes as the NVFP4 weights are. */
  function copied(rows, ceilings) {
    const bytes = rows.find((row) => Number.isFinite(row.nvfp4_bytes))?.nvfp4_bytes;
    const value = bytes / ceilings.get("copy_bytes_per_s");
    return Number.isFinite(value) ? [{ value, text: `as many bytes copied: ${format(value, "s")}` }] : [];
  }

  function rated(row, ceilings) {
    const known = (work) => (Number.isFinite(work) ? work / row.median : null);
    const [bytes, flops] = [known(row.nvfp4_bytes), known(row.flops)];
    const copy = ceilings.get("copy_bytes_per_s");
    const terabytes = bytes === null ? null : bytes / 1e12;
    const teraflops = flops === null ? null : flops / 1e12;
    return { ...row, terabytes, teraflops, of_copy: bytes === null || !copy ? null : bytes / copy };
  }

  /** What a layer takes: time, with that of converting the cache where it is needed, and memory of its weights and cache. */
  function layers(rows) {
    const cells = charged(rows.filter(isMeasured));
    const shown = cells.map((row) => ({ ...row, memory: total(row.weight_bytes, row.cache_bytes) }));
    byId("layer-costs").replaceChildren(...(shown.length ? [table(COSTS, shown)] : ["No number: see the reasons below."]));
  }

  const total = (...parts) => (parts.every(Number.isFinite) ? parts.reduce((a, b) => a + b) : null);
  const mebibytes = (key, label) => ({
    ...columns.number(key, label),
    text: (row) => format(Number.isFinite(row[key]) ? row[key] / 2 ** 20 : null),
  });
  const ends = [columns.status, columns.how, columns.command];
  const RATES = [
    columns.number("rows", "rows"),
    columns.impl,
    columns.number("median", "median latency", "s"),
    columns.number("terabytes", "TB/s of NVFP4"),
    columns.number("of_copy", "of the copy ceiling"),
    columns.number("teraflops", "TFLOP/s"),
    mebibytes("weight_bytes", "weights, MiB"),
    ...ends,
  ];
  const COSTS = [
    columns.workload,
    columns.point,
    columns.tokens,
    columns.impl,
    ...columns.charge,
    mebibytes("weight_bytes", "weights, MiB"),
    mebibytes("cache_bytes", "cache, MiB"),
    mebibytes("memory", "both, MiB"),
    ...ends,
  ];

  return { projections, layers };
})();
