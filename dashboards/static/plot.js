// What every figure is made with: its frame, its axes, and the lines that are no implementation's.
// Drawing into an element again replaces what is there.
"use strict";

nvfp4bench.plot = (() => {
  const { marks } = nvfp4bench;
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

  /** From `edge` decades below the least of `values` to as much above the greatest, for a logarithmic axis. */
  function rangeOf(values, edge) {
    const ends = values.filter((x) => Number.isFinite(x) && x > 0).map(Math.log10);
    return ends.length ? [Math.min(...ends) - edge, Math.max(...ends) + edge] : [-1, 1];
  }

  /** Upright ticks at powers of ten, about `most` of them; at 2 and 5 besides where there are few. */
  function decades([low, high], most) {
    return { tickangle: 0, dtick: high - low < 2 ? "D2" : Math.max(1, Math.ceil((high - low) / most)) };
  }

  /** Bars from `low` to `high` of points that have them. */
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
  const boundStyle = () => ({ color: marks.variable("--bound"), width: 1.5, dash: "dash" });

  /**
   * Level lines {value, text} that are measured but no implementation's, thin and whole, across the figure. Their texts
   * stand at the `side`: that of the highest above its line, the others below theirs. `place` is Math.log10 where the
   * y axis is logarithmic: annotations are placed in the axis's own numbers.
   */
  function levels(lines, side, place = Math.log10) {
    const color = marks.variable("--bound");
    const falling = [...lines].sort((a, b) => b.value - a.value);
    return {
      shapes: falling.map(({ value }) => ({
        ...{ type: "line", xref: "paper", x0: 0, x1: 1, y0: value, y1: value, layer: "below" },
        line: { color, width: 1 },
      })),
      annotations: falling.map(({ value, text }, index) => ({
        ...{ text, xref: "paper", x: side === "left" ? 0 : 1, xanchor: side, y: place(value) },
        ...{ yanchor: index ? "top" : "bottom", showarrow: false, font: { color, size: 11 } },
      })),
    };
  }

  return { draw, leaveEmpty, rangeOf, decades, quartileBars, boundStyle, levels };
})();
