// Which implementation to pick: the fastest of each shape among those whose error is within a budget.
"use strict";

nvfp4bench.fastest = (() => {
  const { element, format, marks, tokens } = nvfp4bench;
  const { charged, columns, distinct, groupBy, isMeasured, numeric, putTable } = nvfp4bench.rows;

  /**
   * The map of one workload: points downwards, tokens to the right. `budget` is the largest exact relative L2 error that a
   * reader takes, Infinity for any. Times are what is charged: the latency, and converting the cache where that is needed.
   */
  function draw({ figure, table }, rows, { title, kvLens, orders, budget }) {
    const points = distinct(rows.map(({ point }) => point));
    const places = points.map((point) =>
      kvLens.map((kvLen) => place(rows.filter((row) => row.point === point && row.kv_len === kvLen), point, kvLen, budget)),
    );
    const heads = [element("td"), ...kvLens.map((kvLen) => element("th", { scope: "col" }, tokens(kvLen)))];
    const lines = places.map((line, index) =>
      element("tr", {}, element("th", { scope: "row", className: "id" }, points[index]), ...line.map((one) => cell(one, orders))),
    );
    const caption = element("caption", {}, `${title}, by cached tokens`);
    const head = element("thead", {}, element("tr", {}, ...heads));
    figure.replaceChildren(element("table", { className: "fastest" }, caption, head, element("tbody", {}, ...lines)));
    putTable(table, "nvfp4bench-latency-fastest", COLUMNS, places.flat());
  }

  /** The winner of a shape and the second, or why there is none. What breaks its error bound wins nowhere. */
  function place(rows, point, kvLen, budget) {
    const within = ({ status, exact_relative_l2: error }) =>
      status === "ok" && (budget === Infinity || (numeric(error) !== null && numeric(error) <= budget));
    const costs = charged(rows.filter(isMeasured));
    const [first, second] = costs.filter(within).sort((a, b) => a.charge - b.charge);
    const out = [
      ...costs.filter((row) => !within(row)).map((row) => ({ ...row, why: whyOut(row) })),
      ...rows.filter((row) => !isMeasured(row)).map((row) => ({ ...row, why: row.status })),
    ];
    return {
      point,
      kv_len: kvLen,
      ...(first ?? { id: null, impl: null }),
      second: second?.impl ?? null,
      lead: second ? second.charge / first.charge : null,
      out: groupBy(out, ({ why }) => [why]).map((same) => ({ why: same[0].why, count: same.length })),
      reasons: out.map(({ impl, why, sentence }) => `${impl}: ${sentence ?? why}`).join(" "),
    };
  }

  function whyOut({ status, exact_relative_l2: error }) {
    if (status === "wrong") return "wrong";
    return numeric(error) === null ? "error not known" : "over the budget";
  }

  function cell({ impl, charge, second, lead, out }, orders) {
    if (impl === null) {
      const reasons = out.map(({ why, count }) => `${count} ${why}`).join(", ");
      return element("td", { className: "none" }, reasons ? `none: ${reasons}` : "not measured in this run");
    }
    const look = marks.lookOf(orders.get(impl));
    const made = element(
      "td",
      { className: "won" },
      element("span", { className: "impl" }, marks.glyph(look), element("span", {}, impl)),
      element("strong", {}, format(charge, "s")),
      element("span", { className: "lead-over" }, second === null ? "alone" : `${format(lead)} x as fast as ${second}`),
    );
    made.style.setProperty("--mark", `var(${look.colour})`);
    return made;
  }

  const COLUMNS = [
    columns.point,
    columns.tokens,
    { ...columns.impl, label: "fastest" },
    ...columns.charge,
    columns.error,
    { key: "second", label: "second", kind: "id" },
    columns.number("lead", "lead"),
    { key: "reasons", label: "left out", kind: "sentence" },
    columns.command,
  ];

  return { draw };
})();
