// Marks over named categories: the figures of the gate's errors and of the host costs.
"use strict";

nvfp4bench.dotPlot = (() => {
  const { marks, plot } = nvfp4bench;
  const ROW_HEIGHT = 20; // pixels of one category
  const EDGE = 0.35; // decades between the outermost number and the frame

  /**
   * Marks of several implementations over categories from top to bottom, on a logarithmic axis.
   *
   * A point is {category, impl, how, value, low, high, stroke}; `value` null is a gap, and `stroke` draws an upright
   * stroke, which `stroked` names, in place of the mark. What has no place on the axis, 0 and Inf, is a hollow arrow at the frame that says so.
   */
  function dotPlot(target, { label, categories, points, impls, orders, xTitle, suffix = "", bound = null, stroked = "quantisation" }) {
    if (!points.some(({ value }) => value !== null)) {
      plot.leaveEmpty(target, "No number to draw: see the reasons below.");
      return;
    }
    const range = plot.rangeOf([...points.flatMap(({ value, low, high }) => [value, low, high]), bound], EDGE);
    const rowOf = new Map(categories.map((name, index) => [name, index]));
    const traces = impls.flatMap((impl, index) => {
      const offset = impls.length > 1 ? (index / (impls.length - 1) - 0.5) * 0.5 : 0;
      const mine = points.filter((point) => point.impl === impl && point.value !== null);
      return [false, true].map((stroke) => trace(mine.filter((p) => p.stroke === stroke), impl, stroke, offset));
    });

    function trace(mine, impl, stroke, offset) {
      const look = marks.lookOf(orders.get(impl));
      const colour = marks.colourOf(look);
      const place = (value) => (value === 0 ? 10 ** range[0] : Number.isFinite(value) ? value : 10 ** range[1]);
      const symbol = ({ value, how }) => {
        if (value === 0) return "triangle-left-open";
        if (!Number.isFinite(value)) return "triangle-right-open";
        return stroke ? "line-ns-open" : marks.symbolFor(look, how);
      };
      return {
        type: "scatter",
        mode: "markers",
        x: mine.map(({ value }) => place(value)),
        y: mine.map(({ category }) => rowOf.get(category) + offset),
        text: mine.map((point) => hoverText(point, stroke ? `${impl}, ${stroked}` : impl, suffix)),
        hovertemplate: "%{text}<extra></extra>",
        cliponaxis: false,
        marker: {
          color: colour,
          symbol: mine.map(symbol),
          size: stroke ? 11 : 8,
          line: { color: colour, width: stroke ? 2 : 1 },
        },
        error_x: plot.quartileBars(mine, colour),
      };
    }

    const most = target.clientWidth < 480 ? 20 : 44;
    plot.draw(target, label, traces, {
      height: categories.length * ROW_HEIGHT + 82,
      xaxis: {
        type: "log",
        range,
        title: { text: xTitle, standoff: 6 },
        ticksuffix: suffix,
        exponentformat: suffix ? "SI" : "power",
        ...plot.decades(range, target.clientWidth / 60),
      },
      yaxis: {
        range: [categories.length - 0.5, -0.5],
        tickvals: categories.map((_, index) => index),
        ticktext: categories.map((name) => (name.length > most ? `${name.slice(0, most - 1)}…` : name)),
        ticklen: 4,
        tickcolor: "rgba(0,0,0,0)",
      },
      ...(bound !== null && boundLine(bound)),
    });
  }

  function hoverText({ category, value, low, high, how }, name, suffix) {
    const shown = (x) => nvfp4bench.format(x, suffix);
    const spread = low === undefined ? "" : ` (${shown(low)} to ${shown(high)})`;
    return `${category}<br>${name}: ${shown(value)}${spread}<br>${how}`;
  }

  function boundLine(bound) {
    const { color } = plot.boundStyle();
    const line = { type: "line", x0: bound, x1: bound, y0: 0, y1: 1, yref: "paper", line: plot.boundStyle() };
    const place = { x: Math.log10(bound), y: 1, yref: "paper", xanchor: "center", yanchor: "bottom" }; // x: the axis's own
    return { shapes: [line], annotations: [{ ...place, text: "bound", showarrow: false, font: { color, size: 11 } }] };
  }

  return dotPlot;
})();
