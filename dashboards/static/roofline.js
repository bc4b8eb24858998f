// How near a call comes to what the device was measured to do: the bound of its time, and its rates under the ceilings.
"use strict";

nvfp4bench.roofline = (() => {
  const { format, overContext } = nvfp4bench;
  const { columns, putTable } = nvfp4bench.rows;
  const COMPUTE = "bf16_matmul_flops_per_s";
  const MEMORY = { copy: "copy_bytes_per_s", read: "read_bytes_per_s" };

  /**
   * Seconds to read the cache of `row`, or to multiply, whichever is longer, at the run's ceilings; null where a number is
   * not known. Attention reads far more than it writes, but which of the two kinds of traffic is faster differs by device:
   * it may do as well as the better one.
   */
  function boundOf({ flops, nvfp4_bytes: bytes }, ceilings) {
    const memory = Math.max(...Object.values(MEMORY).map((name) => ceilings.get(name)).filter(Number.isFinite));
    const known = [flops, bytes, ceilings.get(COMPUTE), memory];
    if (known.some((number) => !Number.isFinite(number))) return null;
    return Math.max(flops / ceilings.get(COMPUTE), bytes / memory);
  }

  /** TFLOP/s and TB/s over cached tokens, from the `latency` rows of one workload and point. */
  function draw(targets, rows, { title, kvLens, impls, orders, ceilings }) {
    const latency = rows.filter(({ series }) => series === "latency");
    const level = (name, text, unit) => {
      const value = ceilings.get(name) / 1e12;
      return Number.isFinite(value) ? [{ value, text: `${text} ${format(value)} ${unit}` }] : [];
    };
    const kinds = [
      [targets.compute, "flops", "TFLOP/s", level(COMPUTE, "bf16 matmul", "TFLOP/s")],
      [targets.memory, "nvfp4_bytes", "TB/s", Object.keys(MEMORY).flatMap((name) => level(MEMORY[name], name, "TB/s"))],
    ];
    for (const [target, work, unit, levels] of kinds) {
      const known = latency.filter((row) => Number.isFinite(row[work]));
      overContext(target, {
        ...{ label: `${unit} of ${title} against cached tokens.`, kvLens, impls, orders, levels, side: "left", bound: [] },
        points: known.map((row) => point(row, row[work] / 1e12, unit)),
        axis: { title: { text: unit, standoff: 6 }, exponentformat: "none" },
      });
    }
    putTable(targets.table, "nvfp4bench-latency-rates", COLUMNS, latency.map((row) => rated(row, ceilings)));
  }

  function point({ impl, how, kv_len, median, q25, q75 }, work, unit) {
    return { impl, how, kv_len, value: work / median, low: work / q75, high: work / q25, text: `${format(work / median)} ${unit}` };
  }

  function rated(row, ceilings) {
    const rate = (work) => (Number.isFinite(work) ? work / row.median : null);
    const share = (value, ceiling) => (value === null || !Number.isFinite(ceiling) ? null : value / ceiling);
    const [flops, bytes] = [rate(row.flops), rate(row.nvfp4_bytes)];
    return {
      ...row,
      flops_per_s: flops,
      bytes_per_s: bytes,
      of_matmul: share(flops, ceilings.get(COMPUTE)),
      of_copy: share(bytes, ceilings.get(MEMORY.copy)),
    };
  }

  const tera = (key, label) => ({ ...columns.number(key, label), text: (row) => format(row[key] === null ? null : row[key] / 1e12) });
  const COLUMNS = [
    columns.tokens,
    columns.impl,
    columns.number("median", "median latency", "s"),
    tera("flops_per_s", "TFLOP/s"),
    columns.number("of_matmul", "of the matmul ceiling"),
    tera("bytes_per_s", "TB/s"),
    columns.number("of_copy", "of the copy ceiling"),
    columns.status,
    columns.how,
    columns.command,
  ];

  return { boundOf, draw };
})();
