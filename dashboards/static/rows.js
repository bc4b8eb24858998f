// What the sections and figures share about rows: which hold a number, how they are grouped, the columns of their tables.
"use strict";

nvfp4bench.rows = (() => {
  const { format } = nvfp4bench;
  const { foldedTable } = nvfp4bench.tables;
  const collator = new Intl.Collator("en", { numeric: true });

  const isMeasured = (row) => row.status === "ok" || row.status === "wrong";
  const distinct = (values) => [...new Set(values)].sort(collator.compare);
  const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
  const numeric = (value) => (value === null || value === undefined ? null : value === "inf" ? Infinity : value);

  function groupBy(items, keyOf) {
    const groups = new Map();
    for (const item of items) {
      const key = JSON.stringify(keyOf(item));
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(item);
    }
    return [...groups.values()];
  }

  const OF_ONE_SERIES = /^(series|median|q25|q75|minimum|samples|clock_.*)$/;

  /**
   * What a call costs all in all, a row a cell that has a latency: `charge` is the median of `latency`, plus that of `pack`
   * where the cache is converted to something else than NVFP4 first: pages of NVFP4 are what a paged cache has already. Both
   * parts stand in the row; quartiles do not, since those of a sum are not the sums of theirs. `total` is no such cost: it is not replayed as a graph, so nothing that is can be compared with it.
   */
  function charged(rows) {
    return groupBy(rows, ({ id, how }) => [id, how]).flatMap((cell) => {
      const [latency, pack] = ["latency", "pack"].map((name) => cell.find(({ series }) => series === name));
      if (!latency) return [];
      const ofCell = Object.fromEntries(Object.entries(latency).filter(([key]) => !OF_ONE_SERIES.test(key)));
      const converts = !latency.cache_layout?.startsWith("nvfp4");
      const parts = { latency: latency.median, pack: (converts && pack?.median) || null };
      return [{ ...ofCell, ...parts, charge: parts.latency + (parts.pack ?? 0) }];
    });
  }

  /** What a charge is made of, for the text at a mark. */
  function partsOf({ latency, pack }) {
    return pack === null ? `latency ${format(latency, "s")}` : `latency ${format(latency, "s")} + pack ${format(pack, "s")}`;
  }

  const number = (key, label, suffix) => ({ key, label, kind: "number", text: (row) => format(row[key], suffix) });
  const columns = {
    number,
    impl: { key: "impl", label: "implementation", kind: "id" },
    how: { key: "how", label: "how", kind: "text" },
    status: { key: "status", label: "status", kind: "status" },
    sentence: { key: "sentence", label: "reason", kind: "sentence" },
    command: { key: "id", label: "reproduce", kind: "command", text: (row) => (row.id ? `nvfp4bench cell ${row.id}` : "") },
    workload: { key: "workload", label: "workload", kind: "id" },
    point: { key: "point", label: "point", kind: "id" },
    tokens: { key: "kv_len", label: "tokens", kind: "number" },
    times: [
      { key: "series", label: "series", kind: "text" },
      number("median", "median", "s"),
      number("q25", "1st quartile", "s"),
      number("q75", "3rd quartile", "s"),
      number("minimum", "minimum", "s"),
      number("samples", "samples"),
    ],
    charge: [
      number("charge", "latency, plus converting", "s"),
      number("latency", "median latency", "s"),
      number("pack", "median pack", "s"),
    ],
    error: number("exact_relative_l2", "exact relative L2"),
  };

  /** Put the folded table of a figure into `target`; one that a reader has open stays open. */
  function putTable(target, name, shown, rows) {
    const open = target.querySelector("details")?.open ?? false;
    const made = rows.length ? [foldedTable(`Table: ${counted(rows.length, "row")}`, name, shown, rows)] : [];
    for (const table of made) table.open = open;
    target.replaceChildren(...made);
  }

  return { isMeasured, distinct, counted, numeric, groupBy, charged, partsOf, collator, columns, putTable };
})();
