// Converting the cache once against reading NVFP4 in every call: from how many calls on the first is cheaper.
"use strict";

nvfp4bench.breakeven = (() => {
  const { format, marks, plot } = nvfp4bench;
  const { columns, distinct, groupBy, putTable } = nvfp4bench.rows;
  const EDGE = 0.25; // decades between the outermost mark and the frame
  const EXTEND = /^extend-q(\d+)$/;

  /** `rows` are measured ones of one point and number of tokens, of any workload; those of the extend workloads are drawn. */
  function draw({ figure, table }, rows, { title, impls, orders }) {
    const found = groupBy(rows.filter(({ workload }) => EXTEND.test(workload)), ({ workload }) => [workload]).flatMap(compare);
    found.sort((a, b) => a.q_len - b.q_len);
    putTable(table, "nvfp4bench-latency-breakeven", COLUMNS, found);
    const known = found.filter(({ calls }) => calls !== null);
    if (!found.length) {
      plot.leaveEmpty(figure, "No extend workload was measured here both ways, converting the cache and reading NVFP4.");
      return;
    }
    const range = plot.rangeOf([1, 10, ...known.flatMap(({ calls, low, high }) => [calls, low, high])], EDGE);
    const qLens = distinct(found.map(({ q_len }) => q_len)).map(Number);
    const { shapes, annotations } = plot.levels([{ value: 1, text: "below: cheaper in the first call" }], "left");
    const drawn = impls.filter((impl) => found.some((row) => row.impl === impl));
    const traces = drawn.flatMap((impl) => lines(found.filter((row) => row.impl === impl), marks.lookOf(orders.get(impl)), range));
    plot.draw(figure, `Calls from which on converting once is cheaper, against new tokens, ${title}.`, traces, {
      height: 340,
      shapes,
      annotations,
      xaxis: { type: "log", tickvals: qLens, ticktext: qLens.map(String), title: { text: "new tokens of a call", standoff: 6 } },
      yaxis: { type: "log", range, title: { text: "calls", standoff: 6 }, ...plot.decades(range, 6) },
    });
  }

  /** A row for each implementation that converts, against the fastest that does not, of the rows of one workload. */
  function compare(rows) {
    const cells = groupBy(rows.filter(({ status }) => status === "ok"), ({ id, how }) => [id, how]).map((cell) => {
      const [latency, pack] = ["latency", "pack"].map((name) => cell.find(({ series }) => series === name));
      return { latency, pack, converts: !cell[0].cache_layout?.startsWith("nvfp4") };
    });
    const timed = cells.filter(({ latency }) => latency);
    const [fused] = timed.filter(({ converts }) => !converts).sort((a, b) => a.latency.median - b.latency.median);
    if (!fused) return [];
    return timed.filter(({ converts, pack }) => converts && pack).map(({ latency, pack }) => ({
      ...{ id: latency.id, impl: latency.impl, how: latency.how, point: latency.point, kv_len: latency.kv_len },
      q_len: Number(EXTEND.exec(latency.workload)[1]),
      ...{ latency: latency.median, pack: pack.median, fused: fused.latency.impl, fused_latency: fused.latency.median },
      ...breakEven(latency, pack, fused.latency),
    }));
  }

  /**
   * {calls, low, high, verdict}: n calls cost pack + n * latency, or n * fused; they are equal at pack / (fused - latency).
   * `low` and `high` are that from the quartiles that are kindest, and hardest, on converting. Where the latencies' quartiles
   * overlap nothing is told.
   */
  function breakEven(latency, pack, fused) {
    const none = { calls: null, low: null, high: null };
    if (latency.q25 <= fused.q75 && fused.q25 <= latency.q75) return { ...none, verdict: "unsure: the latencies overlap" };
    if (latency.median > fused.median) return { ...none, verdict: "never: its calls are slower" };
    const calls = pack.median / (fused.median - latency.median);
    const verdict = calls < 1 ? "in the first call" : `from call ${Math.floor(calls) + 1} on`;
    return { calls, low: pack.q25 / (fused.q75 - latency.q25), high: pack.q75 / (fused.q25 - latency.q75), verdict };
  }

  /** The line with its gaps, and hollow arrows at the frame where converting never pays. */
  function lines(rows, look, [, top]) {
    const colour = marks.colourOf(look);
    const [{ impl, how }] = rows;
    const textOf = ({ q_len, fused, fused_latency, latency, pack, verdict }) =>
      [
        `${impl}: ${q_len} new tokens, cheaper ${verdict}`,
        `pack ${format(pack, "s")}, then ${format(latency, "s")} a call`,
        `${fused}: ${format(fused_latency, "s")} a call`,
      ].join("<br>");
    const trace = (shown, y, changes) => ({
      ...{ type: "scatter", name: impl, x: shown.map(({ q_len }) => q_len), y, cliponaxis: false },
      ...{ text: shown.map(textOf), hovertemplate: "%{text}<extra></extra>" },
      ...changes,
    });
    const never = rows.filter(({ verdict }) => verdict.startsWith("never"));
    const bars = rows.map(({ calls, low, high }) => (calls === null ? { value: null } : { value: calls, low, high }));
    return [
      trace(rows, rows.map(({ calls }) => calls), {
        mode: "lines+markers",
        connectgaps: false,
        error_y: plot.quartileBars(bars, colour),
        line: { color: colour, dash: look.dash, width: 1.75 },
        marker: { color: colour, symbol: marks.symbolFor(look, how), size: 8, line: { color: colour, width: 1 } },
      }),
      ...(never.length
        ? [
            trace(never, never.map(() => 10 ** top), {
              mode: "markers",
              name: `${impl}, never`,
              marker: { color: colour, symbol: "triangle-up-open", size: 10, line: { color: colour, width: 1 } },
            }),
          ]
        : []),
    ];
  }

  const COLUMNS = [
    columns.number("q_len", "new tokens"),
    columns.point,
    columns.tokens,
    columns.impl,
    columns.number("latency", "its latency", "s"),
    columns.number("pack", "its pack", "s"),
    { key: "fused", label: "fastest on NVFP4", kind: "id" },
    columns.number("fused_latency", "latency of that", "s"),
    columns.number("calls", "calls to break even"),
    columns.number("low", "at least"),
    columns.number("high", "at most"),
    { key: "verdict", label: "cheaper", kind: "text" },
    columns.command,
  ];

  return { draw, breakEven };
})();
