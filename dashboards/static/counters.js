// The section of emulated counters: what the calls of one kind of work and head dim execute, move and are bound by.
"use strict";

nvfp4bench.counters = (() => {
  const { dotPlot, element } = nvfp4bench;
  const { collator, columns, distinct, groupBy, isMeasured } = nvfp4bench.rows;
  const byId = (id) => document.getElementById(id);
  const count = (key, label) => ({ key, label, kind: "number" });

  const COLUMNS = [
    { key: "work", label: "work", kind: "text" },
    { key: "head_dim", label: "head dim", kind: "number" },
    columns.impl,
    { key: "kernel", label: "kernel", kind: "id" },
    count("blocks", "blocks"),
    count("executed", "instructions"),
    { key: "mma", label: "MMA", kind: "list" },
    count("global_bytes", "global bytes asked for"),
    count("sector_bytes", "in sectors"),
    count("sectors_per_request", "sectors a request"),
    count("dram_bytes", "from DRAM at least"),
    count("nvfp4_bytes", "NVFP4 bytes"),
    count("wavefronts", "wavefronts"),
    count("ideal_wavefronts", "without conflicts"),
    count("barriers", "barriers"),
    count("divergent_branches", "divergent branches"),
    { key: "limit", label: "limit", kind: "text" },
    count("limit_clocks", "clocks of an SM at least"),
    { key: "unknown", label: "pipes of unknown rate", kind: "list" },
    { key: "product", label: "SMs and DRAM of", kind: "text" },
  ];

  /** `rows` are those that the reader has not filtered away, a row a launch. */
  function show(rows, view) {
    const work = choose("counters-work", distinct(rows.map((row) => row.work)), view, "decode");
    const ofWork = rows.filter((row) => row.work === work);
    const dim = choose("counters-dim", distinct(ofWork.map((row) => row.head_dim)), view, "128");
    const here = ofWork.filter((row) => row.head_dim === dim && isMeasured(row));
    const calls = groupBy(here, ({ id }) => [id]);
    const title = `${work}, head dim ${dim}, emulated`;
    const draw = (id, label, points, changes) =>
      dotPlot(byId(id), { ...view, label: `${label} of ${title}.`, categories: categoriesOf(points), points, ...changes });

    draw("counters-classes", "Executed instructions by class", calls.flatMap(byClass), { xTitle: "PTX instructions of warps" });
    draw("counters-bounds", "Least clocks by pipe", calls.flatMap(byPipe), { xTitle: "clocks of an SM, at least" });
    const waves = { xTitle: "wavefronts", stroked: "without conflicts" };
    draw("counters-wavefronts", "Wavefronts of shared memory", here.filter(({ wavefronts }) => wavefronts).flatMap(waved), waves);
    const bytes = { xTitle: "bytes", stroked: "NVFP4 K and V" };
    draw("counters-bytes", "Bytes of global memory", calls.flatMap(moved), bytes);
    byId("counters-rules").replaceChildren(...view.documented.map((rule) => element("li", {}, rule)));
  }

  const point = ({ impl, how }, category, value, stroke = false) => ({ category, impl, how, value, stroke });
  const sum = (rows, key) => rows.reduce((total, row) => total + row[key], 0);

  function byClass(launches) {
    const totals = new Map();
    for (const { classes } of launches) {
      for (const [name, executed] of classes) totals.set(name, (totals.get(name) ?? 0) + executed);
    }
    return [...totals].filter(([, executed]) => executed).map(([name, executed]) => point(launches[0], name, executed));
  }

  function byPipe(launches) {
    const [longest] = [...launches].sort((a, b) => b.limit_clocks - a.limit_clocks);
    return longest.bounds.map(([pipe, clocks]) => point(longest, pipe, clocks));
  }

  const waved = (row) => [
    point(row, row.kernel, row.wavefronts),
    point(row, row.kernel, row.ideal_wavefronts, true),
  ];

  const moved = (launches) => [
    point(launches[0], "in sectors", sum(launches, "sector_bytes")),
    point(launches[0], "in sectors", launches[0].nvfp4_bytes, true),
    point(launches[0], "from DRAM", sum(launches, "dram_bytes")),
    point(launches[0], "from DRAM", launches[0].nvfp4_bytes, true),
  ];

  const categoriesOf = (points) => distinct(points.map(({ category }) => category)).sort(collator.compare);

  /** Fill a select with `names`, and return the one that is chosen: the reader's, else `preferred`, else the first. */
  function choose(id, names, view, preferred) {
    const select = byId(id);
    select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    select.disabled = names.length < 2;
    select.onchange = () => view.choose({ [id]: select.value });
    const chosen = [view.chosen[id], preferred, names[0]].find((name) => names.includes(name));
    select.value = chosen ?? "";
    return chosen;
  }

  return { COLUMNS, show };
})();
