// The figures. Each is drawn from rows of one run into an element that is there already; drawing again replaces it.
"use strict";

nvfp4bench.figures = (() => {
  const { marks } = nvfp4bench;
  const ROW_HEIGHT = 20; // pixels of one category
  const EDGE = 0.35; // decades between the outermost number and the frame
  const CONFIG = {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false, // plotly.js 4 offers that unless told not to; nothing leaves these pages
    plotlyServerURL: "",
    displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
    modeBarButtons: [["toImage", "resetScale2d"]],
  };

  function layout(changes) {
    const look = { gridcolor: marks.variable("--line"), zeroline: false, automargin: true };
    const axis = { ...look, exponentformat: "power", minexponent: 0 };
    return {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: marks.variable("--ink") },
      margin: { l: 8, r: 16, t: 22, b: 8 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: marks.variable("--faint"), activecolor: marks.variable("--ink") },
      hovermode: "closest",
      showlegend: false,
      ...changes,
      xaxis: { ...axis, ...changes.xaxis },
      yaxis: { ...axis, ...changes.yaxis },
    };
  }

  function draw(target, label, traces, changes) {
    target.setAttribute("role", "img");
    target.setAttribute("aria-label", `${label} Its table stands below.`);
    target.classList.remove("empty");
    return Plotly.react(target, traces, layout(changes), CONFIG);
  }

  /** A sentence in place of a figure that would have no mark. */
  function leaveEmpty(target, sentence) {
    Plotly.purge(target);
    target.removeAttribute("role");
    target.removeAttribute("aria-label");
    target.classList.add("empty");
    target.replaceChildren(sentence);
  }

  /**
   * Marks of several implementations over categories from top to bottom, on a logarithmic axis.
   *
   * A point is {category, impl, how, value, low, high, stroke}; `value` null is a gap, and `stroke` draws an upright
   * stroke in place of the mark. What has no place on the axis, 0 and Inf, is a hollow arrow at the frame that says so.
   */
  function dotPlot(target, { label, categories, points, impls, orders, xTitle, suffix = "", bound = null }) {
    const numbers = points.flatMap(({ value, low, high }) => [value, low, high]).filter((x) => Number.isFinite(x) && x > 0);
    if (!points.some(({ value }) => value !== null)) {
      leaveEmpty(target, "No number to draw: see the reasons below.");
      return;
    }
    const ends = [...numbers, ...(bound === null ? [] : [bound])].map(Math.log10);
    const range = ends.length ? [Math.min(...ends) - EDGE, Math.max(...ends) + EDGE] : [-1, 1];
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
        text: mine.map((point) => hoverText(point, impl, stroke, suffix)),
        hovertemplate: "%{text}<extra></extra>",
        cliponaxis: false,
        marker: {
          color: colour,
          symbol: mine.map(symbol),
          size: stroke ? 11 : 8,
          line: { color: colour, width: stroke ? 2 : 1 },
        },
        error_x: quartileBars(mine, colour),
      };
    }

    const most = target.clientWidth < 480 ? 20 : 44;
    draw(target, label, traces, {
      height: categories.length * ROW_HEIGHT + 82,
      xaxis: {
        type: "log",
        range,
        title: { text: xTitle, standoff: 6 },
        ticksuffix: suffix,
        exponentformat: suffix ? "SI" : "power",
        ...decades(range, target.clientWidth / 60),
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

  /** Upright ticks at powers of ten, about `most` of them; at 2 and 5 besides where there are few. */
  function decades([low, high], most) {
    return { tickangle: 0, dtick: high - low < 2 ? "D2" : Math.max(1, Math.ceil((high - low) / most)) };
  }

  function hoverText({ category, value, low, high, how }, impl, stroke, suffix) {
    const shown = (x) => nvfp4bench.format(x, suffix);
    const spread = low === undefined ? "" : ` (${shown(low)} to ${shown(high)})`;
    return `${category}<br>${impl}${stroke ? ", quantisation" : ""}: ${shown(value)}${spread}<br>${how}`;
  }

  function quartileBars(points, colour) {
    return {
      visible: points.some(({ low }) => low !== undefined),
      type: "data",
      symmetric: false,
      array: points.map(({ value, high = value }) => high - value),
      arrayminus: points.map(({ value, low = value }) => value - low),
      color: colour,
      thickness: 1.2,
      width: 3,
    };
  }

  /** A bound is computed, not measured: a dashed line without marks, named as what it is. */
  function boundLine(bound) {
    const color = marks.variable("--bound");
    const line = { type: "line", x0: bound, x1: bound, y0: 0, y1: 1, yref: "paper", line: { color, width: 1.5, dash: "dash" } };
    const place = { x: Math.log10(bound), y: 1, yref: "paper", xanchor: "center", yanchor: "bottom" }; // x: the axis's own
    return { shapes: [line], annotations: [{ ...place, text: "bound", showarrow: false, font: { color, size: 11 } }] };
  }

  /**
   * Latency against cached tokens, both logarithmic, one line per implementation.
   *
   * `kvLens` are the tokens that the workload has cells for. Where an implementation has no number at one of them, its
   * line stops and starts again behind it. `range` of the y axis is given, so that neighbours can be compared.
   */
  function latency(target, { label, rows, kvLens, impls, orders, range }) {
    const byImpl = impls.map((impl) => [impl, rows.filter((row) => row.impl === impl)]);
    const traces = byImpl.flatMap(([impl, mine]) =>
      [...new Set(mine.map(({ how }) => how))].map((how) => line(impl, how, mine.filter((row) => row.how === how))),
    );

    function line(impl, how, mine) {
      const look = marks.lookOf(orders.get(impl));
      const colour = marks.colourOf(look);
      const at = new Map(mine.map((row) => [row.kv_len, row]));
      const points = kvLens.map((kvLen) => at.get(kvLen) ?? null);
      const spreads = points.map((row) => (row ? { value: row.median, low: row.q25, high: row.q75 } : { value: 0 }));
      const told = ({ kv_len, median, samples }) =>
        `${impl}<br>${kv_len} tokens: ${nvfp4bench.format(median, "s")}<br>${samples} samples, ${how}`;
      return {
        type: "scatter",
        mode: "lines+markers",
        name: impl,
        x: kvLens,
        y: points.map((row) => row?.median ?? null),
        connectgaps: false,
        text: points.map((row) => row && told(row)),
        hovertemplate: "%{text}<extra></extra>",
        line: { color: colour, dash: look.dash, width: 1.75 },
        marker: { color: colour, symbol: marks.symbolFor(look, how), size: 7, line: { color: colour, width: 1 } },
        error_y: quartileBars(spreads, colour),
      };
    }

    return draw(target, label, traces, {
      height: 300,
      xaxis: {
        type: "log",
        tickvals: kvLens,
        ticktext: kvLens.map(nvfp4bench.tokens),
        title: { text: "cached tokens", standoff: 6 },
      },
      yaxis: { type: "log", range, ticksuffix: "s", exponentformat: "SI", ...decades(range, 6) },
    });
  }

  return { dotPlot, latency, leaveEmpty };
})();
