// One look per implementation, the same in every figure of every page: colour, marker and dash all differ, so that it
// can be told without colour. How a number was come by shows in the mark too: measured ones are filled, emulated ones
// are hollow, static ones are hollow with a dot, and a bound is a dashed line without marks (plot.js).
"use strict";

nvfp4bench.marks = (() => {
  const COLOURS = 10; // --mark-0 and on, in style.css
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "hexagon"];
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
  const STROKES = { solid: "", dash: "6 4", dot: "2 3", dashdot: "6 3 2 3", longdash: "10 4" };
  const OUTLINES = {
    circle: "M17 7a5 5 0 1 1-10 0a5 5 0 1 1 10 0",
    square: "M7.5 2.5h9v9h-9z",
    diamond: "M12 1l6 6l-6 6l-6-6z",
    "triangle-up": "M12 2l5.5 9.5h-11z",
    "triangle-down": "M12 12l5.5-9.5h-11z",
    hexagon: "M12 1.5l4.8 2.75v5.5l-4.8 2.75l-4.8-2.75v-5.5z",
    cross: "M10 2h4v3h3v4h-3v3h-4v-3h-3v-4h3z",
  };

  /** The look of the implementation that stands at `order` in the list of all. */
  function lookOf(order) {
    return {
      colour: `--mark-${order % COLOURS}`,
      symbol: SYMBOLS[order % SYMBOLS.length],
      dash: DASHES[order % DASHES.length],
    };
  }

  /** A Plotly symbol for a number that was come by as `how` says: "gpu", "cpu", "emulated:..." or "static:...". */
  function symbolFor(look, how) {
    if (how.startsWith("emulated")) return `${look.symbol}-open`;
    if (how.startsWith("static")) return `${look.symbol}-open-dot`;
    return look.symbol;
  }

  /** The look as a small picture, for lists of implementations. */
  function glyph(look) {
    const picture = stroke(look.colour, look.dash);
    picture.append(drawn("path", { d: OUTLINES[look.symbol], fill: `var(${look.colour})` }));
    return picture;
  }

  /** A line without a mark as a small picture. */
  function stroke(colour, dash) {
    const picture = drawn("svg", { viewBox: "0 0 24 14", width: 24, height: 14, "aria-hidden": "true" });
    const look = { stroke: `var(${colour})`, "stroke-width": 1.5, "stroke-dasharray": STROKES[dash] };
    picture.append(drawn("line", { x1: 0, x2: 24, y1: 7, y2: 7, ...look }));
    return picture;
  }

  function drawn(tag, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  /** The colour as it is in the colour scheme at hand. */
  function colourOf(look) {
    return variable(look.colour);
  }

  function variable(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  return { lookOf, symbolFor, glyph, stroke, colourOf, variable };
})();
