// The latency section: what a reader chooses there, and which rows each of its figures is drawn from.
"use strict";

nvfp4bench.timing = (() => {
  const { breakeven, clocks, element, fastest, latency, marks, roofline, tradeoff, tokens } = nvfp4bench;
  const { distinct, isMeasured } = nvfp4bench.rows;
  const SERIES = ["latency", "attend", "charge", "pack", "total", "eager", "host"]; // in this order, others behind them
  const LABELS = new Map([
    ["attend", "attend: the call without its last launch, which joins splits or chunks"],
    ["charge", "latency, plus converting the cache where that is needed"],
    ["total", "pack and call, eager"],
  ]);
  const labelOf = (series) => LABELS.get(series) ?? series;

  const byId = (id) => document.getElementById(id);
  const part = (name) => ({ figure: byId(`latency-${name}`), table: byId(`latency-${name}-table`) });

  /** Draw from the rows that the reader has not filtered away; `all` are those of the run. */
  function show(rows, view, all) {
    const measured = rows.filter(isMeasured);
    byId("latency-empty").hidden = measured.length > 0;
    byId("latency-drawn").hidden = !measured.length;
    if (!measured.length) return;

    const workload = choose("workload", distinct(rows.map((row) => row.workload)), view, "decode");
    const ofWorkload = rows.filter((row) => row.workload === workload && row.kv_len !== null);
    const point = choose("point", distinct(ofWorkload.map((row) => row.point)), view, "d128");
    const taken = distinct(measured.map((row) => row.series));
    const named = taken.includes("latency") ? [...taken, "charge"] : taken; // `charge` is computed, and no series of a run
    const ordered = [...SERIES.filter((name) => named.includes(name)), ...named.filter((name) => !SERIES.includes(name))];
    const series = choose("series", ordered, view, "latency", labelOf);
    const kvLens = [...new Set(ofWorkload.map((row) => row.kv_len))].sort((a, b) => a - b);
    const here = ofWorkload.filter((row) => row.point === point && isMeasured(row));
    const kvLen = choose("kv", kvLens.map(String), view, String(kvLens.at(-1)), (one) => tokens(Number(one)));
    byId("budget").onchange = ({ target }) => view.choose({ budget: target.value || null });
    byId("budget").value = view.chosen.budget ?? "";
    if (byId("budget").selectedIndex < 0) byId("budget").value = "";

    const shape = { ...view, kvLens, title: `${workload} at ${point}` };
    showLegend(here, shape);
    latency.draw(part("context"), here, { ...shape, series, named: labelOf(series) });
    const rates = { compute: byId("latency-compute"), memory: byId("latency-memory"), table: byId("latency-rates-table") };
    roofline.draw(rates, here, shape);
    const budget = byId("budget").value === "" ? Infinity : Number(byId("budget").value);
    fastest.draw(part("fastest"), ofWorkload, { ...shape, title: workload, budget });
    const atTokens = here.filter((row) => row.kv_len === Number(kvLen));
    tradeoff.draw(part("errors"), atTokens, { ...shape, title: `${shape.title}, ${tokens(Number(kvLen))} tokens` });
    const extended = measured.filter((row) => row.point === point && row.kv_len === Number(kvLen));
    breakeven.draw(part("breakeven"), extended, { ...view, title: `${point}, ${tokens(Number(kvLen))} tokens` });
    clocks.draw({ ...part("clocks"), words: byId("latency-clocks-words") }, measured, clocks.highest(all));
  }

  /** Fill a select with `names`, and return the one that is chosen: the reader's, else `preferred`, else the first. */
  function choose(id, names, view, preferred, text = (name) => name) {
    const select = byId(id);
    select.replaceChildren(...names.map((name) => element("option", { value: name }, text(name))));
    select.disabled = names.length < 2;
    select.onchange = () => view.choose({ [id]: select.value });
    const chosen = [view.chosen[id], preferred, names[0]].find((name) => names.includes(name));
    select.value = chosen ?? "";
    return chosen;
  }

  /** The looks of those that have a number here, and of the lines that are no implementation's. */
  function showLegend(rows, { impls, orders }) {
    const present = impls.filter((impl) => rows.some((row) => row.impl === impl));
    byId("latency-legend").replaceChildren(
      ...present.map((impl) => element("li", {}, marks.glyph(marks.lookOf(orders.get(impl))), impl)),
      element("li", {}, marks.stroke("--bound", "dash"), "bound, computed"),
      element("li", {}, marks.stroke("--bound", "solid"), "limit measured in this run"),
    );
  }

  return { show };
})();
