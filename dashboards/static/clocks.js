// The SM clock of each cell against the highest of the run: a time taken at a lower clock says less about the code.
"use strict";

nvfp4bench.clocks = (() => {
  const { marks, plot } = nvfp4bench;
  const { columns, groupBy, putTable } = nvfp4bench.rows;
  const SAGGING = 0.95; // of the highest clock of the run

  /** The highest clock among `rows`, in MHz; null where none has one. */
  function highest(rows) {
    return rows.reduce((most, { clock_high_mhz: clock }) => Math.max(most, clock ?? 0), 0) || null;
  }

  /** One mark per cell, by its series with the lowest quartile of clocks, in the order of the journal. `top` is `highest`. */
  function draw({ figure, table, words }, rows, top) {
    const clocked = rows.filter(({ clock_mhz: clock }) => Number.isFinite(clock));
    const cells = groupBy(clocked, ({ id, how }) => [id, how]).map((ofCell, order) => {
      const lowest = ofCell.reduce((least, row) => (row.clock_q25_mhz < least.clock_q25_mhz ? row : least));
      const share = lowest.clock_q25_mhz / top; // of what a quarter of the samples does not exceed
      return { ...lowest, order: order + 1, share, clock: share < SAGGING ? "sagging" : "steady" };
    });
    const sagging = cells.filter(({ clock }) => clock === "sagging");
    putTable(table, "nvfp4bench-latency-clocks", COLUMNS, [...cells].sort((a, b) => a.share - b.share));
    words.textContent = "";
    if (!cells.length) {
      plot.leaveEmpty(figure, "No clock was recorded with these cells.");
      return;
    }
    words.textContent = `${sagging.length} of ${cells.length} cells sagged: a quarter of the samples below ${SAGGING} of ${top} MHz, the highest clock of the run.`;
    const least = Math.min(SAGGING * top, ...cells.map(({ clock_low_mhz: clock }) => clock));
    const { shapes, annotations } = plot.levels(
      [{ value: top, text: `highest: ${top} MHz` }, { value: SAGGING * top, text: `sagging below ${Math.round(SAGGING * top)} MHz` }],
      "right",
      (value) => value,
    );
    const steady = cells.filter(({ clock }) => clock === "steady");
    const traces = [trace("steady", steady, "--faint", "circle"), trace("sagging", sagging, "--bad", "x")];
    plot.draw(figure, "SM clock of each cell in MHz.", traces, {
      height: 280,
      shapes,
      annotations,
      xaxis: { title: { text: "cells in the order of the journal", standoff: 6 }, range: [0, cells.length + 1], exponentformat: "none" },
      yaxis: { title: { text: "SM clock, MHz", standoff: 6 }, range: [least - 0.02 * top, top * 1.03], exponentformat: "none" },
    });
  }

  /** Marks at the lower quartiles, bars down to the lowest clocks. */
  function trace(name, cells, variable, symbol) {
    const colour = marks.variable(variable);
    const told = ({ id, series, clock_mhz, clock_q25_mhz, clock_low_mhz }) =>
      `${id}<br>${series}: median ${clock_mhz} MHz, lower quartile ${clock_q25_mhz} MHz, lowest ${clock_low_mhz} MHz<br>${name}`;
    return {
      type: "scatter",
      mode: "markers",
      name,
      x: cells.map(({ order }) => order),
      y: cells.map(({ clock_q25_mhz }) => clock_q25_mhz),
      text: cells.map(told),
      hovertemplate: "%{text}<extra></extra>",
      marker: { color: colour, symbol, size: name === "sagging" ? 8 : 5 },
      error_y: plot.quartileBars(cells.map((cell) => ({ value: cell.clock_q25_mhz, low: cell.clock_low_mhz })), colour),
    };
  }

  const COLUMNS = [
    columns.workload,
    columns.point,
    columns.tokens,
    columns.impl,
    { key: "series", label: "series", kind: "text" },
    { key: "clock_mhz", label: "median MHz", kind: "number" },
    { key: "clock_q25_mhz", label: "lower quartile MHz", kind: "number" },
    { key: "clock_low_mhz", label: "lowest MHz", kind: "number" },
    { key: "late", label: "late samples", kind: "number" },
    { key: "apart", label: "timed", kind: "text" },
    columns.number("share", "of the highest"),
    { key: "clock", label: "clock", kind: "text" },
    columns.command,
  ];

  return { highest, draw };
})();
