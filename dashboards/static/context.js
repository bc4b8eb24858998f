// Lines over cached tokens, both axes logarithmic: the frame of the latency and of the rate figures.
"use strict";

nvfp4bench.overContext = (() => {
  const { marks, plot } = nvfp4bench;
  const HEIGHT = { narrow: 320, wide: 400 };
  const TOKENS = { title: "cached tokens", unit: "tokens" };
  const ROOM = 0.06; // of the axis, at both ends: the text of the outermost level stands there

  /**
   * One line per implementation, with the band of its quartiles where the points have them.
   *
   * A point is {impl, how, kv_len, value, low, high, text}; `low` and `high` may be left out. `kvLens` are the tokens that the
   * workload has cells for: where an implementation has no number at one of them, its line and band stop, and start again
   * behind it. `levels` are {value, text} of measured limits, with their texts at the `side`. `bound` is [tokens, value] of
   * what was computed. `along` says what `kv_len` counts, where that is not tokens.
   */
  return function overContext(target, { label, points, kvLens, impls, orders, axis, levels, side, bound, along = TOKENS }) {
    if (!points.length) {
      plot.leaveEmpty(target, "No number to draw: see the reasons below.");
      return;
    }
    const lines = impls.flatMap((impl) => {
      const mine = points.filter((point) => point.impl === impl);
      return [...new Set(mine.map(({ how }) => how))].map((how) => {
        const at = new Map(mine.filter((point) => point.how === how).map((point) => [point.kv_len, point]));
        return { impl, how, look: marks.lookOf(orders.get(impl)), stops: kvLens.map((kvLen) => at.get(kvLen) ?? null) };
      });
    });
    const values = points.flatMap(({ value, low, high }) => [value, low, high]);
    const ends = plot.rangeOf([...values, ...levels.map(({ value }) => value), ...bound.map(([, value]) => value)], 0.1);
    const room = ROOM * (ends[1] - ends[0]);
    const range = [ends[0] - room, ends[1] + room];
    const { shapes, annotations } = plot.levels(levels, side);
    const banded = lines.filter(({ stops }) => stops.some((point) => point?.low !== undefined));

    plot.draw(target, label, [...banded.map(band), ...boundLine(bound), ...lines.map((one) => line(one, kvLens, along.unit))], {
      height: target.clientWidth < 480 ? HEIGHT.narrow : HEIGHT.wide,
      shapes,
      annotations: [...annotations, ...boundText(bound)],
      xaxis: {
        type: "log",
        tickvals: kvLens,
        ticktext: kvLens.map(nvfp4bench.tokens),
        title: { text: along.title, standoff: 6 },
      },
      yaxis: { type: "log", range, ...plot.decades(range, 6), ...axis },
    });
  };

  function line({ impl, how, look, stops }, kvLens, unit) {
    const colour = marks.colourOf(look);
    return {
      type: "scatter",
      mode: "lines+markers",
      name: impl,
      x: kvLens,
      y: stops.map((point) => point?.value ?? null),
      connectgaps: false,
      text: stops.map((point) => point && `${impl}<br>${point.kv_len} ${unit}: ${point.text}<br>${how}`),
      hovertemplate: "%{text}<extra></extra>",
      line: { color: colour, dash: look.dash, width: 1.75 },
      marker: { color: colour, symbol: marks.symbolFor(look, how), size: 7, line: { color: colour, width: 1 } },
    };
  }

  /** A closed outline for each stretch without a gap; a stretch of one point is an upright stroke. */
  function band({ impl, look, stops }) {
    const colour = marks.colourOf(look);
    const stretches = [[]];
    for (const point of stops) {
      if (point === null) stretches.push([]);
      else stretches.at(-1).push(point);
    }
    const outline = stretches.filter((stretch) => stretch.length).flatMap((stretch) => [
      ...stretch.map(({ kv_len, high }) => [kv_len, high]),
      ...[...stretch].reverse().map(({ kv_len, low }) => [kv_len, low]),
      [null, null],
    ]);
    return {
      type: "scatter",
      mode: "lines",
      name: `${impl} quartiles`,
      x: outline.map(([kvLen]) => kvLen),
      y: outline.map(([, value]) => value),
      fill: "toself",
      fillcolor: colour,
      line: { color: colour, width: 1 },
      opacity: 0.25,
      hoverinfo: "skip",
    };
  }

  function boundLine(bound) {
    if (!bound.length) return [];
    const [x, y] = [0, 1].map((part) => bound.map((one) => one[part]));
    return [{ type: "scatter", mode: "lines", name: "bound", x, y, line: plot.boundStyle(), hoverinfo: "skip" }];
  }

  /** The word below the last end of the line. */
  function boundText(bound) {
    if (!bound.length) return [];
    const [x, y] = bound.at(-1).map(Math.log10);
    const font = { color: plot.boundStyle().color, size: 11 };
    return [{ text: "bound", x, y, xanchor: "right", yanchor: "top", yshift: -4, showarrow: false, font }];
  }
})();
